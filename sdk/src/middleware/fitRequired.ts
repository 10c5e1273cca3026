import { isRecord } from '../protocol/fields.ts'
import { encodePaymentHeader, type PaymentRequired } from '../protocol/x402.ts'

/**
 * Maximum length of `PAYMENT-REQUIRED`. nginx reads the head of an answer into 4,096 bytes by default, and answers 502 for a longer one.
 * The rest is for the status line and for headers of other software.
 */
export const maxRequiredLength = 3_400

const smallSchema = { $schema: 'https://json-schema.org/draft/2020-12/schema', type: 'object' }

/** Keywords of a JSON schema that restrict nothing. */
const annotations: ReadonlySet<string> = new Set(['$comment', 'default', 'description', 'examples', 'title'])
/** Keywords whose values are names with a schema each. */
const schemasByName: ReadonlySet<string> = new Set([
  '$defs',
  'definitions',
  'patternProperties',
  'properties',
])

type Step = (required: PaymentRequired) => PaymentRequired

/** What is left out, one after the other, until the header fits: first what only catalogues read, and never what is paid. */
const steps: readonly Step[] = [
  (required) => withBazaar(required, (bazaar) => ({ ...bazaar, schema: withoutAnnotations(bazaar.schema) })),
  (required) => withBazaar(required, (bazaar) => ({ ...bazaar, schema: withoutFrame(bazaar.schema) })),
  // The whole interface is in `/openapi.json` and in the gateway's catalogue.
  (required) =>
    withBazaar(required, ({ info, routeTemplate }) => ({ info, routeTemplate, schema: smallSchema })),
  (required) => withUrl(required, (url) => url.replace(/[?#].*$/s, '')),
  ({ extensions: _, ...required }) => required,
  ({ resource: { url, description, mimeType }, ...required }) => ({
    ...required,
    resource: { url, description, mimeType },
  }),
  (required) => ({ ...required, resource: { ...required.resource, description: '' } }),
  (required) => withUrl(required, (url) => (URL.canParse(url) ? new URL('/', url).href : url)),
]

/** Writes a 402's header of x402 v2 in at most {@link maxRequiredLength} characters. */
export function encodeRequired(required: PaymentRequired): string {
  let fitting = required
  let header = encodePaymentHeader(fitting)
  for (const step of steps) {
    if (header.length <= maxRequiredLength) break
    fitting = step(fitting)
    header = encodePaymentHeader(fitting)
  }
  return header
}

type Bazaar = { info?: unknown; routeTemplate?: unknown; schema?: unknown }

function withBazaar(required: PaymentRequired, change: (bazaar: Bazaar) => object): PaymentRequired {
  const { extensions } = required
  return extensions ? { ...required, extensions: { bazaar: change(extensions.bazaar) } } : required
}

function withUrl(required: PaymentRequired, change: (url: string) => string): PaymentRequired {
  return { ...required, resource: { ...required.resource, url: change(required.resource.url) } }
}

function withoutAnnotations(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutAnnotations)
  if (!isRecord(schema)) return schema
  const kept = Object.entries(schema).filter(([keyword]) => !annotations.has(keyword))
  return Object.fromEntries(
    kept.map(([keyword, value]) => {
      if (keyword === 'const' || keyword === 'enum') return [keyword, value]
      if (!schemasByName.has(keyword) || !isRecord(value)) return [keyword, withoutAnnotations(value)]
      const named = Object.entries(value).map(([name, own]) => [name, withoutAnnotations(own)])
      return [keyword, Object.fromEntries(named)]
    }),
  )
}

/** Leaves out what is the same in the schema of every interface, such as the method, which `info` has anyway. */
function withoutFrame(schema: unknown): unknown {
  const { input, output } = propertiesOf(schema)
  const parameters = Object.entries(propertiesOf(input)).filter(
    ([name, own]) => !/^(type|method|bodyType)$/.test(name) && Object.keys(propertiesOf(own)).length > 0,
  )
  const { example } = propertiesOf(output)
  return objectOf({
    input: objectOf(Object.fromEntries(parameters)),
    ...(example !== undefined && { output: objectOf({ example }) }),
  })
}

function objectOf(properties: object) {
  return { type: 'object', properties }
}

function propertiesOf(schema: unknown): Record<string, unknown> {
  return isRecord(schema) && isRecord(schema.properties) ? schema.properties : {}
}
