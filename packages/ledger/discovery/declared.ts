import { textOf } from '@tollkeeper/sdk/protocol/fields'
import { hasBody } from './bazaar.ts'
import type { Declared } from './declarations.ts'

/*
 * How a resource describes itself in the two versions of x402: in its own 402, or in a payment that repeats it. Nothing is checked yet.
 */

/** Reads version 2's `resource` and `extensions.bazaar`; null if nothing is declared. */
export function declaredInV2(
  { resource, extensions }: { resource?: unknown; extensions?: unknown },
  maxTimeoutSeconds: unknown,
): Declared | null {
  const { bazaar } = record(extensions)
  if (typeof resource !== 'object' || resource === null || bazaar === undefined) return null
  const { url, serviceName, tags, iconUrl, ...described } = record(resource)
  return {
    resource: textOf(url),
    x402Version: 2,
    serviceName,
    tags,
    iconUrl,
    bazaar,
    ...words(described, maxTimeoutSeconds),
  }
}

/** Reads version 1's `outputSchema`; null if the seller didn't declare itself `discoverable`, or names no URL, which a listing needs. */
export function declaredInV1(requirements: {
  resource?: unknown
  outputSchema?: unknown
  description?: unknown
  mimeType?: unknown
  maxTimeoutSeconds?: unknown
}): Declared | null {
  const resource = textOf(requirements.resource)
  const { input, output } = record(requirements.outputSchema)
  if (resource === '' || typeof input !== 'object' || input === null) return null
  const { discoverable, type, method, ...parts } = record(input)
  if (type !== 'http' || discoverable === false) return null
  const shown = typeof method === 'string' ? method.toUpperCase() : 'GET'
  // Version 1 shows the input by an example of no particular shape.
  const given = hasBody(shown)
    ? { bodyType: 'json', body: parts.bodyFields ?? parts.body ?? {} }
    : { ...(parts.queryParams !== undefined && { queryParams: parts.queryParams }) }
  const info = {
    input: { type, method: shown, ...given },
    ...(output !== undefined && { output: { example: output } }),
  }
  return {
    resource,
    x402Version: 1,
    bazaar: { info, schema: { type: 'object' } },
    ...words(requirements, requirements.maxTimeoutSeconds),
  }
}

function words(
  { description, mimeType }: { description?: unknown; mimeType?: unknown },
  maxTimeoutSeconds: unknown,
) {
  return {
    description: textOf(description),
    mimeType: textOf(mimeType),
    maxTimeoutSeconds: typeof maxTimeoutSeconds === 'number' ? Math.floor(maxTimeoutSeconds) : 60,
  }
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}
