import { Validator } from '@cfworker/json-schema'

/*
 * JSON Schemas from untrusted authors. This module checks them and compares them with examples. It never fetches their
 * references, and never runs their regular expressions.
 */

export type JsonSchema = Record<string, unknown>

/** Maximum nesting depth of a schema. */
const maxDepth = 16
/** Maximum number of schemas that a schema contains, including itself. */
const maxSchemas = 500

const types = new Set(['null', 'boolean', 'object', 'array', 'number', 'string', 'integer'])
/** Keywords by the kind of their values (JSON Schema 2020-12, Core section 10.3, Validation section 6). */
const ofOne = new Set([
  ...['additionalProperties', 'contains', 'else', 'if', 'items', 'not', 'propertyNames', 'then'],
  ...['unevaluatedItems', 'unevaluatedProperties', 'contentSchema'],
])
const ofMany = new Set(['allOf', 'anyOf', 'oneOf', 'prefixItems'])
const ofNamed = new Set(['$defs', 'definitions', 'dependentSchemas', 'properties'])
/** Keywords that are never resolved or run: a regular expression may never end, and a reference may lead anywhere. */
const left = new Set(['$anchor', '$id', '$schema', '$vocabulary', 'format', 'pattern', 'patternProperties'])

class Invalid extends Error {}

/**
 * Describes what is wrong with a schema; returns null for a valid one.
 *
 * `$ref` is rejected: a program that follows references would fetch an external reference, and would never finish with a circular reference.
 */
export function findSchemaFault(schema: unknown): string | null {
  try {
    reduce(schema, { path: '', depth: 0, count: { schemas: 0 } })
    return null
  } catch (error) {
    if (error instanceof Invalid) return error.message
    throw error
  }
}

/**
 * Describes how a value violates a schema; returns null if it is valid. Ignores regular expressions and formats.
 *
 * @param schema a schema for which {@link findSchemaFault} returns null.
 */
export function findMismatch(schema: unknown, value: unknown): string | null {
  const reduced = reduce(schema, { path: '', depth: 0, count: { schemas: 0 } })
  try {
    const { valid, errors } = new Validator(reduced as JsonSchema, '2020-12').validate(value)
    if (valid) return null
    const { instanceLocation, error } = errors.at(-1) ?? { instanceLocation: '#', error: 'it differs' }
    return `${instanceLocation}: ${error}`.slice(0, 300)
  } catch (error) {
    // The validator throws if a keyword in the schema has a value of the wrong kind.
    return `the value can't be checked: ${error instanceof Error ? error.message : String(error)}`.slice(
      0,
      300,
    )
  }
}

type Place = { path: string; depth: number; count: { schemas: number } }

/** Returns a schema without the keywords in {@link left}. @throws {Invalid} */
function reduce(schema: unknown, place: Place): unknown {
  if (typeof schema === 'boolean') return schema
  if (!isRecord(schema)) throw new Invalid(`${place.path || 'the schema'}: expected an object`)
  if (place.depth > maxDepth) throw new Invalid(`${place.path}: more than ${maxDepth} levels`)
  if (++place.count.schemas > maxSchemas) throw new Invalid(`more than ${maxSchemas} nested schemas`)
  const reduced: JsonSchema = {}
  for (const [keyword, value] of Object.entries(schema)) {
    const path = `${place.path}/${keyword}`
    const under = (part = ''): Place => ({ ...place, path: path + part, depth: place.depth + 1 })
    if (/^\$(dynamic|recursive)?ref$/i.test(keyword))
      throw new Invalid(`${path}: write it out; references are not followed`)
    if (left.has(keyword)) continue
    if (ofOne.has(keyword)) reduced[keyword] = reduce(value, under())
    else if (ofMany.has(keyword)) {
      if (!Array.isArray(value)) throw new Invalid(`${path}: expected an array`)
      reduced[keyword] = value.map((one, index) => reduce(one, under(`/${index}`)))
    } else if (ofNamed.has(keyword)) {
      if (!isRecord(value)) throw new Invalid(`${path}: expected an object`)
      reduced[keyword] = Object.fromEntries(
        Object.entries(value).map(([name, one]) => [name, reduce(one, under(`/${name}`))]),
      )
    } else reduced[keyword] = requireKeyword(keyword, value, path)
  }
  return reduced
}

function requireKeyword(keyword: string, value: unknown, path: string): unknown {
  const isNames = (names: unknown) => Array.isArray(names) && names.every((name) => typeof name === 'string')
  const isFine =
    keyword === 'type'
      ? [value].flat().every((type) => types.has(type as string))
      : keyword === 'required'
        ? isNames(value)
        : keyword === 'enum'
          ? Array.isArray(value)
          : true
  if (!isFine) throw new Invalid(`${path}: not a valid value for this keyword`)
  return value
}

function isRecord(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
