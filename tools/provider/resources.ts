import type { Description, Operation, Parameter, Schema } from './description.ts'
import { leftOut, lineTypes, methodNames, repeatable, typesAlone } from './names.ts'
import { docLines, endSentence, nameOfRef, renderComponents, successOf, typeOf } from './types.ts'

const types = 'sdk/src/provider/generated/types.ts'
const resources = 'sdk/src/provider/generated/resources.ts'
const webhookTypes = 'sdk/src/provider/generated/webhookTypes.ts'
const head = '// Made by `npm run generate` from the OpenAPI document of the gateway.\n'

/** One method of the client: its documentation, declaration and implementation. */
type Method = {
  resource: string
  name: string
  doc: string[]
  declaration: string
  implementation: string
}

type Found = { method: string; path: string; operation: Operation }

/** Renders the generated files of `@tollkeeper/sdk/provider` from the gateway's document, by their paths. */
export function renderProvider(document: Description): Map<string, string> {
  const found = operationsOf(document)
  requireNames(found.map(({ operation }) => operation.operationId))
  const named = found.filter(({ operation }) => operation.operationId in methodNames)
  const order = Object.keys(methodNames)
  const placed = named.toSorted(
    (one, other) => order.indexOf(one.operation.operationId) - order.indexOf(other.operation.operationId),
  )
  const written = new TypeWriter(document)
  const methods = placed.flatMap((one) => methodsOf(one, written))
  for (const one of found.filter(({ operation }) => typesAlone.includes(operation.operationId)))
    written.nameBoth(one)
  const text = written.render(named)
  const typeNames = [...text.matchAll(/^export type (\w+)/gm)].map(([, name = '']) => name)
  return new Map([
    [types, text],
    [resources, renderResources(methods, typeNames.toSorted())],
    [webhookTypes, renderWebhookTypes(document)],
  ])
}

function renderWebhookTypes({ webhooks }: Description): string {
  const lines = Object.keys(webhooks).map((type) => `  '${type}',`)
  return `${head}\n/** The types of webhook messages. */\nexport const webhookTypes = [\n${lines.join('\n')}\n] as const\n`
}

function operationsOf({ paths }: Description): Found[] {
  return Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  )
}

/** @throws Error that lists the operations without a name, and the names without an operation. */
function requireNames(ids: readonly string[]): void {
  const known = [...Object.keys(methodNames), ...Object.keys(leftOut)]
  const unnamed = ids.filter((id) => !known.includes(id))
  const gone = known.filter((id) => !ids.includes(id))
  if (unnamed.length + gone.length === 0) return
  throw new Error(
    `tools/provider/names.ts: name these operations of the gateway, or leave them out with a reason: ${unnamed.join(', ') || 'none'}. ` +
      `The gateway no longer has these operations, so remove their names: ${gone.join(', ') || 'none'}`,
  )
}

/** Collects the types that methods need. */
class TypeWriter {
  readonly #document: Description
  readonly #own = new Map<string, string>()
  readonly #requests: unknown[] = []
  readonly #answers: unknown[] = []
  readonly #uses = new Map<string, string>()
  /** Types that aren't components of the document. Some components are used only in these types. */
  readonly #parts: [name: string, schema: Schema][] = []

  constructor(document: Description) {
    this.#document = document
  }

  /**
   * Returns the name of the type of an answer or of a request's body. If the schema is a component, the type has the component's name. Otherwise,
   * this function adds a new type with the given name.
   */
  name(schema: Schema, direction: 'request' | 'answer', name: string, about: string): string {
    ;(direction === 'request' ? this.#requests : this.#answers).push(schema)
    if (schema.$ref) {
      const component = nameOfRef(schema.$ref)
      if (!this.#uses.has(component)) this.#uses.set(component, about)
      return component
    }
    this.#parts.push([name, schema])
    this.#own.set(
      name,
      [...docLines(about, ''), `export type ${name} = ${typeOf(schema, direction)}`].join('\n'),
    )
    return name
  }

  /** Adds the components of an operation's body and answer. */
  nameBoth({ method, path, operation }: Found): void {
    const body = operation.requestBody?.content?.['application/json']?.schema
    const answer = successOf(operation).content['application/json']?.schema
    if (body) this.name(body, 'request', 'Body', `Body of \`${method} ${path}\``)
    if (answer) this.name(answer, 'answer', 'Answer', `Answer of \`${method} ${path}\``)
  }

  component(name: string): Schema {
    return this.#document.components.schemas[name] ?? {}
  }

  render(named: readonly Found[]): string {
    const { webhooks } = this.#document
    const messages = Object.entries(webhooks).map(([type, item]) => {
      const schema = Object.values(item)[0]?.requestBody?.content?.['application/json']?.schema
      if (!schema?.$ref) throw new Error(`The webhook ${type} has no body`)
      this.#answers.push(schema)
      return nameOfRef(schema.$ref)
    })
    const components = renderComponents(this.#document, {
      requests: this.#requests,
      answers: this.#answers,
      uses: this.#uses,
      parts: this.#parts,
    })
    const union = `/** The body of a webhook's message: \`type\` says which. */\nexport type WebhookMessage =\n${messages.map((name) => `  | ${name}`).join('\n')}`
    if (named.some(({ operation }) => operation.operationId in lineTypes))
      this.#own.set('ReceiptLine', receiptLine)
    const own = [...this.#own].toSorted(([one], [other]) => (one < other ? -1 : 1)).map(([, text]) => text)
    const imports = "import type { NetworkName } from '../../protocol/networks.ts'"
    return `${[head + imports, union, ...components, ...own].join('\n\n')}\n`
  }
}

/** The type of a line of `GET /providers/{id}/receipts`, which the document describes only in words. */
const receiptLine = `/** A receipt or a signed tab line, and the cursor of the next line. */
export type ReceiptLine = {
  paymentId: string
  /** A JWS, signed again with the current status. */
  receipt?: string
  /** A JWS that replaces \`receipt\` if the call asked for \`tabLines\`. */
  tabLine?: string
  /** \`cursor\` of a later call that continues after this line. */
  cursor: string
}`

const provider = '/providers/{id}'

function methodsOf({ method, path, operation }: Found, types: TypeWriter): Method[] {
  const { operationId, summary, description, parameters = [] } = operation
  const [resource = '', name = ''] = (methodNames[operationId] ?? '').split('.')
  const typeName = `${capital(resource)}${capital(name)}`
  const place = `${method} ${path}`
  const { content, about } = successOf(operation)

  // The client belongs to one provider, so on these paths `id` is that provider's id. On other paths, `id` is an argument.
  const isOwn = path.startsWith(provider) || path === '/discovery/providers/{id}'
  const ids = parameters.filter((one) => one.in === 'path' && !(isOwn && one.name === 'id'))
  const url = path.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
    isOwn && name === 'id' ? `\${own}` : `\${encodeURIComponent(${name})}`,
  )
  const isVersioned = parameters.some((one) => one.in === 'header' && one.name === 'if-match')
  const queryOf = (left: readonly string[], suffix = capital(name)) => {
    const asked = parameters.filter((one) => one.in === 'query' && !left.includes(one.name))
    if (asked.length === 0) return undefined
    const type = types.name(
      querySchema(asked),
      'request',
      `${capital(resource)}${suffix}Query`,
      `Query of \`${place}\``,
    )
    return { type, isOptional: asked.every((one) => !one.required) }
  }
  const bodySchema = operation.requestBody?.content?.['application/json']?.schema
  const body = bodySchema && types.name(bodySchema, 'request', `${typeName}Body`, `Body of \`${place}\``)

  /** Returns a method with all parameters of the operation. `kind` chooses the return type and the call, according to the kind of answer. */
  const write = (
    methodName: string,
    kind: (call: string) => { type: string; text: string },
    more: { query?: ReturnType<typeof queryOf>; format?: string; note?: string } = {},
  ): Method => {
    const { query, format, note } = more
    const options = isVersioned ? 'ChangeOptions' : 'RequestOptions'
    const parametersText = [
      ...ids.map((id) => `${id.name}: ${argumentType(id)}`),
      ...(body ? [`body: ${body}`] : []),
      ...(query ? [`query${query.isOptional ? '?' : ''}: ${query.type}`] : []),
      `options${isVersioned ? '' : '?'}: ${options}`,
    ].join(', ')
    const names = [
      ...ids.map((id) => id.name),
      ...(body ? ['body'] : []),
      ...(query ? ['query'] : []),
      'options',
    ]
    const queryText = format
      ? query
        ? `query: { ...query, format: '${format}' }`
        : `query: { format: '${format}' }`
      : 'query'
    const call = [
      `method: '${method}'`,
      `path: ${url.includes('${') ? `\`${url}\`` : `'${url}'`}`,
      ...(query || format ? [queryText] : []),
      ...(body ? ['body'] : []),
      ...(repeatable.has(operationId) ? ['isRepeatable: true'] : []),
      'options',
    ].join(', ')
    const { type, text } = kind(`{ ${call} }`)
    const lines = [
      note ?? endSentence(summary),
      ...(description ? ['', endSentence(description)] : []),
      '',
      `\`${place}\``,
    ]
    return {
      resource,
      name: methodName,
      doc: docLines(lines.join('\n'), '    '),
      declaration: `${methodName}(${parametersText}): ${type}`,
      implementation: `${methodName}: (${names.join(', ')}) => ${text}`,
    }
  }

  const media = Object.keys(content)
  if (media.length === 0)
    return [
      write(name, (call) => ({ type: 'Promise<void>', text: `transport.nothing(${call})` }), {
        query: queryOf([]),
      }),
    ]
  if (operationId in lineTypes) {
    const line = lineTypes[operationId]
    return [
      write(name, (call) => ({ type: `AsyncIterable<${line}>`, text: `transport.lines(${call})` }), {
        query: queryOf([]),
      }),
    ]
  }

  const hasFormat = parameters.some((one) => one.name === 'format')
  const schema = content['application/json']?.schema
  const methods: Method[] = []
  if (schema) {
    const page = types.name(schema, 'answer', `${typeName}Answer`, `Answer of \`${place}\`: ${about}`)
    const list = listShape(schema.$ref ? types.component(page) : schema, page, parameters, name)
    methods.push(
      list
        ? write(
            name,
            (call) => ({
              type: `List<${list.item}, ${page}>`,
              text: `transport.list(${call}, ${list.shape})`,
            }),
            { query: queryOf(['format', list.position]) },
          )
        : write(name, (call) => ({ type: `Promise<${page}>`, text: `transport.json(${call})` }), {
            query: queryOf(['format']),
          }),
    )
  }
  for (const [type, suffix] of [
    ['text/csv', 'csv'],
    ['text/html', 'html'],
  ] as const) {
    if (!media.includes(type)) continue
    const fileName = schema
      ? `${name === 'list' ? '' : name}${name === 'list' ? suffix : capital(suffix)}`
      : name
    methods.push(
      write(fileName, (call) => ({ type: 'Promise<Response>', text: `transport.file(${call})` }), {
        query: queryOf(['format', ...(schema ? ['limit'] : [])], capital(fileName)),
        ...(hasFormat && schema && { format: suffix }),
        note: schema
          ? `${endSentence(summary)} As ${suffix.toUpperCase()}: the response's \`body\` is a stream.`
          : endSentence(summary),
      }),
    )
  }
  return methods
}

/** Returns how the pages of a list are read: by a cursor, by an offset, or all at once. Returns undefined if the answer isn't a list. */
function listShape(
  schema: Schema,
  page: string,
  parameters: readonly Parameter[],
  name: string,
): { item: string; shape: string; position: string } | undefined {
  const properties = Object.entries(schema.properties ?? {})
  const lists = properties.filter(([, { type }]) => type === 'array')
  const has = (query: string) => parameters.some((one) => one.in === 'query' && one.name === query)
  const [first] = lists
  const isPaged = has('cursor') || has('offset')
  if (!first || lists.length !== 1 || !(isPaged || (name === 'list' && properties.length === 1))) {
    if (isPaged) throw new Error(`${page}: expected one array in a page of a list, got ${lists.length}`)
    return undefined
  }
  const [field, { items = {} }] = first
  const item = items.$ref ? nameOfRef(items.$ref) : `${page}['${field}'][number]`
  const position = has('cursor') ? 'cursor' : 'offset'
  const isNested = 'pagination' in (schema.properties ?? {})
  const next = !isPaged
    ? '() => null'
    : has('offset')
      ? `({ pagination, ${field} }) => nextOffset(pagination, ${field}.length)`
      : isNested
        ? '({ pagination }) => pagination.cursor'
        : '({ cursor }) => cursor'
  return {
    item,
    position: isPaged ? position : '',
    shape: `{ items: (page: ${page}) => page.${field}, next: ${next}, position: '${position}' }`,
  }
}

function querySchema(parameters: readonly Parameter[]): Schema {
  return {
    type: 'object',
    properties: Object.fromEntries(
      parameters.map(({ name, description, schema }) => [
        name,
        { ...asAsked(schema), ...(description && { description }) },
      ]),
    ),
    required: parameters.filter(({ required }) => required).map(({ name }) => name),
  }
}

/** Returns the type that a caller passes for a parameter: a boolean for the texts `true` and `false`, and a date for the text of a date. */
function asAsked(schema: Schema): Schema {
  if (schema.enum?.join() === 'true,false') return { type: 'boolean' }
  if (schema.format === 'date-time') return { anyOf: [{ type: 'string' }, { type: 'Date' }] }
  return schema
}

function argumentType({ schema }: Parameter): string {
  return schema.type === 'integer' ? 'number' : 'string'
}

function renderResources(methods: readonly Method[], typeNames: readonly string[]): string {
  const groups = Map.groupBy(methods, ({ resource }) => resource)
  const declared = [...groups].map(
    ([resource, own]) =>
      `  readonly ${resource}: {\n${own.map(({ doc, declaration }) => [...doc, `    ${declaration}`].join('\n')).join('\n')}\n  }`,
  )
  const done = [...groups].map(
    ([resource, own]) =>
      `    ${resource}: {\n${own.map(({ implementation }) => `      ${implementation},`).join('\n')}\n    },`,
  )
  const text = `/** The methods of a provider's client, by resource. */
export type ProviderResources = {
${declared.join('\n')}
}

/** Binds the methods to a provider. */
export function createResources(transport: Transport, providerId: string): ProviderResources {
  const own = encodeURIComponent(providerId)
  return {
${done.join('\n')}
  }
}

function nextOffset({ offset, total }: { offset: number; total: number }, count: number): string | null {
  return count === 0 || offset + count >= total ? null : String(offset + count)
}
`
  const imported = typeNames.filter((name) => new RegExp(`\\b${name}\\b`).test(text))
  return `${head}import type { List } from '../list.ts'
import type { ChangeOptions, RequestOptions, Transport } from '../transport.ts'
import type {
${imported.map((name) => `  ${name},`).join('\n')}
} from './types.ts'

${text}`
}

function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1)
}
