import { textOf } from '@tollkeeper/sdk/protocol/fields'
import { hasBody } from './bazaar.ts'
import type { Declared } from './declarations.ts'

/*
 * Reads how a resource describes itself, in either version of x402. The description comes from the resource's own 402, or from a payment that repeats
 * it. These functions don't check it.
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

/**
 * Reads version 1's `outputSchema`; null if it declares no HTTP input, if it sets `discoverable` to false, or if there is no URL, which a listing
 * needs.
 */
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
  // In version 1, the input is an example without a defined shape.
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
