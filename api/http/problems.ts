import { z } from '@hono/zod-openapi'
import { errorCodes } from '@tollkeeper/sdk/protocol/errors'

/** A problem document (RFC 9457) with a stable `code`. */
const problem = z
  .object({
    type: z.string().openapi({ example: 'urn:tollkeeper:problem:unknown_endpoint' }),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    code: z.string().openapi({ enum: Object.keys(errorCodes) }),
  })
  .loose()
  .openapi('Problem')

const descriptions = {
  400: 'Malformed',
  401: 'No API key, or a wrong one',
  402: 'The payment was refused; the body says `verified: false` and why',
  403: 'Not allowed with these credentials',
  404: 'Unknown',
  409: 'Conflicts with the current state',
  412: 'The resource has changed since the version in `If-Match`',
  413: 'The body is too large',
  415: 'The body is not application/json',
  422: 'Well formed, but violates a rule',
  428: '`If-Match` is missing',
  429: 'Too many requests',
  501: 'WebSockets are not supported',
  502: 'The upstream sent no usable response',
  503: 'A dependency is unavailable, or too many payments are waiting',
  504: 'The upstream did not answer in time',
} as const

export type ProblemStatus = keyof typeof descriptions

/** The `responses` entries of a route's problems, for the OpenAPI document. */
export function problems<S extends ProblemStatus>(...statuses: S[]) {
  const content = { 'application/problem+json': { schema: problem } }
  const responses = {} as Record<S, { description: string; content: typeof content }>
  for (const status of statuses) responses[status] = { description: descriptions[status], content }
  return responses
}

/** A JSON answer in a route's `responses`. */
export function jsonAnswer<T>(description: string, schema: T) {
  return { description, content: { 'application/json': { schema } } } as const
}
