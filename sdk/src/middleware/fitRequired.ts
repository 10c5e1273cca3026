import { isRecord } from '../protocol/fields.ts'
import { encodePaymentHeader, type PaymentRequired } from '../protocol/x402.ts'

/**
 * Maximum length of `PAYMENT-REQUIRED`. By default, nginx reads at most 4,096 bytes of a response's head, and responds with 502 to a longer head. The
 * remaining bytes are for the status line and for headers of other software.
 */
export const maxRequiredLength = 3_400

const smallSchema = { $schema: 'https://json-schema.org/draft/2020-12/schema', type: 'object' }

/** Keywords of a JSON schema that restrict nothing. */
const annotations: ReadonlySet<string> = new Set(['$comment', 'default', 'description', 'examples', 'title'])
/** Keywords whose values map names to schemas. */
const schemasByName: ReadonlySet<string> = new Set([
  '$defs',
  'definitions',
  'patternProperties',
  'properties',
])

type Step = (required: PaymentRequired) => PaymentRequired

/**
 * Steps that are applied one after another until the header fits. The first steps omit parts that only catalogs read. No step omits the payment
 * terms.
 */
const steps: readonly Step[] = [
  (required) => withBazaar(required, (bazaar) => ({ ...bazaar, schema: withoutAnnotations(bazaar.schema) })),
  (required) => withBazaar(required, (bazaar) => ({ ...bazaar, schema: withoutFrame(bazaar.schema) })),
  // This step omits the interface's schema. The complete schema is in `/openapi.json` and in the gateway's catalog.
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

/** Encodes the x402 v2 header of a 402 in at most `maxLength` characters. Default {@link maxRequiredLength}. */
export function encodeRequired(required: PaymentRequired, maxLength = maxRequiredLength): string {
  let fitting = required
  let header = encodePaymentHeader(fitting)
  for (const step of steps) {
    if (header.length <= maxLength) break
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

/** Omits parts that are the same in every interface's schema, for example the method, which `info` also contains. */
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
