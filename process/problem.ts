import type { Context } from 'hono'
import { HTTPException } from 'hono/http-exception'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import postgres from 'postgres'
import { ChainUnavailable } from '#chain/everywhere'
import { BaseError, type ErrorCode, errorCodes } from '#protocol/errors'

/** Answers with RFC 9457 problem details and our stable `code`; `extensions` go to its top level. */
export function answerProblem(
  c: Context,
  error: BaseError,
  extensions: Record<string, unknown> = {},
): Response {
  const { status, title } = errorCodes[error.code]
  const problem = {
    ...extensions,
    ...error.details,
    type: `urn:tollkeeper:problem:${error.code}`,
    title,
    status,
    detail: error.message,
    code: error.code,
  }
  const { retryAfter } = error.details
  if (typeof retryAfter === 'number') c.header('Retry-After', String(retryAfter))
  return c.body(JSON.stringify(problem), status as ContentfulStatusCode, {
    'content-type': 'application/problem+json',
  })
}

const codeOfStatus: Partial<Record<number, ErrorCode>> = {
  404: 'not_found',
  408: 'request_timeout',
  413: 'payload_too_large',
}

/** Turns anything thrown into an error with a code. What is nobody's fault but ours becomes `internal_error`. */
export function toCodedError(error: unknown): BaseError {
  if (error instanceof BaseError) return error
  if (error instanceof HTTPException) {
    return new BaseError(codeOfStatus[error.status] ?? 'invalid_request', undefined, { cause: error })
  }
  const dependency = failedDependency(error)
  if (dependency)
    return new BaseError('dependency_unavailable', undefined, { details: { dependency }, cause: error })
  return new BaseError('internal_error', undefined, { cause: error })
}

function failedDependency(error: unknown): 'database' | 'chain' | null {
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof ChainUnavailable) return 'chain'
    // viem's errors of transport: the chain didn't answer.
    if (['HttpRequestError', 'TimeoutError', 'RpcRequestError'].includes(cause.name)) return 'chain'
    if (cause instanceof postgres.PostgresError) return null
    if ('code' in cause && /^(CONNECT|CONNECTION_|ECONN|ENOTFOUND|ETIMEDOUT)/.test(String(cause.code)))
      return 'database'
  }
  return null
}
