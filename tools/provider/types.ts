import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import type { Description, Operation, Schema } from './description.ts'

/** Whether a schema describes a request or an answer. In a request, an optional property may be `undefined`, which omits it. */
export type Direction = 'request' | 'answer'

export function typeOf(schema: Schema, direction: Direction, indent = ''): string {
  const { $ref, type, allOf, anyOf, oneOf } = schema
  if ($ref) return nameOfRef($ref)
  // A gateway may also serve networks that its operator describes.
  if (schema.enum?.join() === networkNames.join()) return unionOf(['NetworkName', ...nullOf(type)])
  if (schema.enum) return unionOf([...schema.enum.map((value) => JSON.stringify(value)), ...nullOf(type)])
  const all = allOf?.filter((part) => part.$ref ?? part.properties)
  if (all) {
    // If a component may be null, the document's generator writes `allOf` with the component and a nullable type.
    const isNullable = allOf?.some((part) => Array.isArray(part.type) && part.type.includes('null'))
    const joined = all.map((part) => typeOf(part, direction, indent)).join(' & ')
    return isNullable ? `${joined} | null` : joined
  }
  const any = anyOf ?? oneOf
  if (any) return unionOf(any.map((part) => typeOf(part, direction, indent)))
  const types = Array.isArray(type) ? type : [type ?? 'unknown']
  return unionOf(types.map((one) => plainType(one, schema, direction, indent)))
}

function plainType(type: string, schema: Schema, direction: Direction, indent: string): string {
  if (type === 'integer') return 'number'
  if (type === 'array') {
    const item = typeOf(schema.items ?? {}, direction, indent)
    return /^[\w.]+$/.test(item) ? `${item}[]` : `Array<${item}>`
  }
  if (type !== 'object') return type
  const { properties = {}, additionalProperties } = schema
  if (Object.keys(properties).length > 0) return objectType(schema, direction, indent)
  const values =
    typeof additionalProperties === 'object' ? typeOf(additionalProperties, direction, indent) : 'unknown'
  return `Record<string, ${values === 'any' ? 'unknown' : values}>`
}

function objectType(
  { properties = {}, required = [] }: Schema,
  direction: Direction,
  indent: string,
): string {
  const inner = `${indent}  `
  const lines = Object.entries(properties).flatMap(([name, schema]) => {
    const isRequired = required.includes(name)
    const type = typeOf(schema, direction, inner)
    const optional = direction === 'request' ? `${type} | undefined` : type
    return [
      ...docLines(schema.description, inner),
      `${inner}${keyOf(name)}${isRequired ? `: ${type}` : `?: ${optional}`}`,
    ]
  })
  return `{\n${lines.join('\n')}\n${indent}}`
}

/** Returns a doc comment, in as many lines as it needs. */
export function docLines(text: string | undefined, indent: string): string[] {
  if (!text) return []
  const safe = endSentence(text.replaceAll('*/', '* /'))
  const single = `${indent}/** ${safe} */`
  if (single.length <= 130 && !safe.includes('\n')) return [single]
  const wrapped = safe.split('\n').flatMap((line) => wrap(line, 124 - indent.length))
  return [
    `${indent}/**`,
    ...wrapped.map((line) => `${indent} *${line === '' ? '' : ` ${line}`}`),
    `${indent} */`,
  ]
}

/** Adds a period to a text. Doesn't change a text that already ends with a period, `!` or `?`, or with a route on a separate line. */
export function endSentence(text: string): string {
  return /[.!?]$|(?:^|\n)`[^`]*`$/.test(text) ? text : `${text}.`
}

function wrap(text: string, width: number): string[] {
  const lines = ['']
  for (const word of text.split(' ')) {
    const line = lines.at(-1) ?? ''
    if (line !== '' && line.length + word.length + 1 > width) lines.push(word)
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`
  }
  return lines
}

function keyOf(name: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : `'${name}'`
}

export function nameOfRef($ref: string): string {
  return $ref.slice($ref.lastIndexOf('/') + 1)
}

function nullOf(type: Schema['type']): string[] {
  return Array.isArray(type) && type.includes('null') ? ['null'] : []
}

function unionOf(types: readonly string[]): string {
  return [...new Set(types)].join(' | ').replaceAll('"', "'")
}

/** Returns the names of the components to which a schema refers directly. */
function refsIn(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([key, inner]) =>
    key === '$ref' && typeof inner === 'string' ? [nameOfRef(inner)] : refsIn(inner),
  )
}

/** The uses of components. */
export type Uses = {
  /** Schemas of the operations' requests. */
  requests: readonly unknown[]
  /** Schemas of the operations' answers. */
  answers: readonly unknown[]
  /** By component that an operation uses directly: a description of that use. It documents a component that has no description of its own. */
  uses: ReadonlyMap<string, string>
  /** Other generated types that refer to components. */
  parts: readonly (readonly [name: string, schema: Schema])[]
}

/** Renders all components on which the given schemas depend, directly or through other components, in the order of their names. */
export function renderComponents(
  { components: { schemas } }: Description,
  { requests, answers, uses, parts }: Uses,
): string[] {
  const closure = (roots: readonly unknown[]) => {
    const found = new Set<string>()
    const queue = roots.flatMap(refsIn)
    for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
      if (found.has(name)) continue
      found.add(name)
      queue.push(...refsIn(schemas[name]))
    }
    return found
  }
  const requested = closure(requests)
  const names = [...new Set([...requested, ...closure(answers)])].toSorted()
  const wholes = [...parts, ...names.map((name) => [name, schemas[name]] as const)]
  const parents = new Map(
    wholes.flatMap(([name, schema]) => refsIn(schema).map((part): [string, string] => [part, name])),
  )
  return names.map((name) => {
    const schema = schemas[name]
    if (!schema) throw new Error(`The document has no component ${name}`)
    const about = schema.description ?? uses.get(name) ?? `Part of ${parents.get(name)}`
    const type = typeOf(schema, requested.has(name) ? 'request' : 'answer')
    return [...docLines(about, ''), `export type ${name} = ${type}`].join('\n')
  })
}

/** Returns an operation's successful response: its schema by media type, and its description. `content` is empty if it has no body. */
export function successOf({ responses }: Operation): {
  content: Record<string, { schema: Schema }>
  about: string
} {
  const [, success] = Object.entries(responses).find(([status]) => status.startsWith('2')) ?? []
  return { content: success?.content ?? {}, about: success?.description ?? '' }
}
