import { findMismatch, findSchemaFault, type JsonSchema } from '@tollkeeper/runtime/jsonSchema'
import { textOf } from '@tollkeeper/sdk/protocol/fields'

/**
 * The extension `bazaar` of x402 v2 (specs/extensions/bazaar.md). It describes how to call a resource and what the resource answers, with a
 * JSON schema.
 */

/** A provider's registered description of how to call a resource and what it answers. */
export type Interface = {
  /** Schema of the query string for GET and DELETE, of the JSON body for other methods, and of the arguments for an MCP tool. */
  inputSchema: JsonSchema | null
  outputSchema: JsonSchema | null
  inputExample: unknown
  outputExample: unknown
}

export type BazaarExtension = {
  info: { input: Record<string, unknown>; output?: Record<string, unknown> }
  schema: JsonSchema
  routeTemplate?: string
}

/** The fields by which a challenge's `resource` describes its service, by the same specification. */
export type ServiceMetadata = { serviceName: string | null; tags: readonly string[]; iconUrl: string | null }

export type Described = Interface & { method: string; url: string; description: string }

const bodyMethods = ['POST', 'PUT', 'PATCH']
/** The HTTP methods by which a resource can be sold. */
export const methodsOfSellers = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const

/** Returns `mcp` for an MCP tool, which x402 names `mcp://tool/<name>`. */
export function typeOfResource(resource: string): 'http' | 'mcp' {
  return resource.startsWith('mcp:') ? 'mcp' : 'http'
}

/** Returns the method to show for an endpoint: GET if it accepts any method. */
export function shownMethod(method: string): string {
  return method === '*' ? 'GET' : method
}

export function hasBody(method: string): boolean {
  return bodyMethods.includes(method)
}

export function describeEndpoint(endpoint: Described): BazaarExtension {
  const isTool = typeOfResource(endpoint.url) === 'mcp'
  const [input, properties, required] = isTool ? toolInput(endpoint) : httpInput(endpoint)
  const { outputSchema, outputExample: example } = endpoint
  const output = { type: 'json', ...(example !== null && { example }) }
  const template = isTool ? undefined : routeTemplateOf(endpoint.url)
  return {
    info: { input, ...(example !== null && { output }) },
    schema: {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      properties: {
        input: { type: 'object', properties, required, additionalProperties: false },
        output: { type: 'object', properties: { type: { type: 'string' }, example: outputSchema ?? {} } },
      },
      required: ['input'],
    },
    ...(template !== undefined && { routeTemplate: template }),
  }
}

type Input = [input: Record<string, unknown>, properties: JsonSchema, required: string[]]

function httpInput({ method: registered, url, inputSchema, inputExample }: Described): Input {
  const method = shownMethod(registered)
  const kinds = { type: { type: 'string', const: 'http' }, method: { type: 'string', enum: [method] } }
  const shape = inputSchema ?? { type: 'object' }
  const pathParams = routeTemplateOf(url) !== undefined && { pathParams: { type: 'object' } }
  if (hasBody(method)) {
    return [
      { type: 'http', method, bodyType: 'json', body: inputExample ?? {} },
      { ...kinds, bodyType: { type: 'string', enum: ['json'] }, body: shape, ...pathParams },
      ['type', 'method', 'bodyType', 'body'],
    ]
  }
  const queryParams = inputExample === null ? {} : { queryParams: inputExample }
  return [
    { type: 'http', method, ...queryParams },
    { ...kinds, queryParams: shape, ...pathParams },
    ['type', 'method'],
  ]
}

function toolInput({ url, description, inputSchema, inputExample }: Described): Input {
  const toolName = decodeURIComponent(url.slice(url.lastIndexOf('/') + 1))
  const shape = inputSchema ?? { type: 'object' }
  return [
    {
      type: 'mcp',
      toolName,
      inputSchema: shape,
      ...(description !== '' && { description }),
      ...(inputExample !== null && { example: inputExample }),
    },
    {
      type: { type: 'string', const: 'mcp' },
      toolName: { type: 'string' },
      description: { type: 'string' },
      inputSchema: { type: 'object' },
      example: shape,
    },
    ['type', 'toolName', 'inputSchema'],
  ]
}

/** Returns the path of a route that matches many paths, in the form `/cities/:city`; undefined if the route matches a single path. */
function routeTemplateOf(url: string): string | undefined {
  const { pathname } = new URL(url)
  return /\/:\w|\*$/.test(pathname) ? pathname.replace(/\*$/, ':rest') : undefined
}

/** Maximum bytes of discovery data in a challenge, so that its header, and the header that a client sends back, stay below 8 KB. */
export const maxDiscoveryBytes = 2_048

/** The discovery data of a challenge. */
export type ChallengeDiscovery = {
  serviceName?: string
  tags?: readonly string[]
  iconUrl?: string
  bazaar: BazaarExtension
}

/**
 * Returns a challenge's discovery data for an endpoint, in at most {@link maxDiscoveryBytes}. If the data is too long, it leaves out the
 * examples first, then the output's schema, then the input's. The catalog and `/openapi.json` have the full description.
 */
export function discoveryOf(
  endpoint: Described,
  { serviceName, tags, iconUrl }: ServiceMetadata,
): ChallengeDiscovery | undefined {
  const service = {
    ...(serviceName !== null && { serviceName }),
    ...(tags.length > 0 && { tags }),
    ...(iconUrl !== null && { iconUrl }),
  }
  const bare = { inputSchema: null, outputSchema: null, inputExample: null, outputExample: null }
  const { inputSchema, inputExample, outputSchema } = endpoint
  // If the schema requires a body, `info` must contain one.
  const input = { inputSchema, inputExample: hasBody(endpoint.method) ? inputExample : null }
  for (const shorter of [endpoint, { ...bare, ...input, outputSchema }, { ...bare, ...input }, bare]) {
    const discovery = { ...service, bazaar: describeEndpoint({ ...endpoint, ...shorter }) }
    if (Buffer.byteLength(JSON.stringify(discovery)) <= maxDiscoveryBytes) return discovery
  }
  return undefined
}

/**
 * Shortens an extension so that it states only the kind of resource and its method. The catalog uses it if a page would otherwise exceed its maximum
 * size.
 */
export function shortExtension({ info }: BazaarExtension): BazaarExtension {
  const { type, method, toolName } = info.input
  const schema = { type: 'object' }
  if (type === 'mcp') return { info: { input: { type, toolName, inputSchema: schema } }, schema }
  const body = hasBody(textOf(method)) && { bodyType: 'json', body: {} }
  return { info: { input: { type, method, ...body } }, schema }
}

/** Returns why an interface can't be shown; null if it can. */
export function findInterfaceFault(endpoint: Described): { field: keyof Interface; fault: string } | null {
  for (const [schema, example] of [
    ['inputSchema', 'inputExample'],
    ['outputSchema', 'outputExample'],
  ] as const) {
    const declared = endpoint[schema]
    const fault = declared && findSchemaFault(declared)
    if (fault) return { field: schema, fault }
    const mismatch = declared && endpoint[example] !== null ? findMismatch(declared, endpoint[example]) : null
    if (mismatch) return { field: example, fault: `does not match ${schema}: ${mismatch}` }
  }
  const { inputSchema, inputExample, method, url } = endpoint
  // Clients of the extension check the example body against the schema, so a schema with required fields needs an example.
  const needsExample =
    typeOfResource(url) === 'http' && hasBody(method) && inputSchema && inputExample === null
  if (needsExample && findMismatch(inputSchema, {}) !== null)
    return {
      field: 'inputExample',
      fault: 'expected an example, because inputSchema does not accept an empty body',
    }
  return null
}

const transports = ['streamable-http', 'sse']

/**
 * Returns why a resource with this declared extension can't be listed; null if it can. The extension's `info` must have the standard's form and
 * match the extension's `schema`.
 */
export function findExtensionFault(extension: unknown): string | null {
  const { info, schema } = record(extension)
  const { input } = record(info)
  const given = record(input)
  const isText = (value: unknown) => typeof value === 'string' && value !== ''
  if (given.type === 'http') {
    if (given.method !== undefined && !/^(GET|HEAD|DELETE|POST|PUT|PATCH)$/.test(textOf(given.method)))
      return 'info.input.method: expected GET, HEAD, DELETE, POST, PUT or PATCH'
    if (hasBody(textOf(given.method)) && !['json', 'form-data', 'text'].includes(textOf(given.bodyType)))
      return 'info.input.bodyType: expected json, form-data or text'
  } else if (given.type === 'mcp') {
    if (!isText(given.toolName)) return 'info.input.toolName: expected the name of the tool'
    if (typeof given.inputSchema !== 'object' || given.inputSchema === null)
      return 'info.input.inputSchema: expected a schema'
    if (given.transport !== undefined && !transports.includes(textOf(given.transport)))
      return `info.input.transport: expected ${transports.join(' or ')}`
  } else return 'info.input.type: expected http or mcp'
  const fault = findSchemaFault(schema)
  if (fault) return `schema: ${fault}`
  const mismatch = findMismatch(schema, info)
  return mismatch && `info does not match schema: ${mismatch}`
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}
