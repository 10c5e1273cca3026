import { BaseError, type ErrorCode, errorCodes } from '@tollkeeper/sdk/protocol/errors'
import type { Context } from 'hono'
import { HTTPException } from 'hono/http-exception'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { failedDependency, isUnstorableText } from './dependencies.ts'

/** Responds with problem details (RFC 9457) and our stable `code`. The members of `extensions` become top-level members. */
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
  // Close the connection: to keep it open, the server would have to read the rest of the body, which is too large.
  if (error.code === 'payload_too_large') c.header('Connection', 'close')
  return c.body(JSON.stringify(problem), status as ContentfulStatusCode, {
    'content-type': 'application/problem+json',
  })
}

const codeOfStatus: Partial<Record<number, ErrorCode>> = {
  400: 'invalid_json', // hono's validator throws status 400 for a body that isn't JSON.
  404: 'not_found',
  408: 'request_timeout',
  413: 'payload_too_large',
  415: 'unsupported_media_type',
}

/** Converts any thrown value into an error with a code. An unknown error is a bug in our code and becomes `internal_error`. */
export function toCodedError(error: unknown): BaseError {
  if (error instanceof BaseError) return error
  if (error instanceof HTTPException) {
    return new BaseError(codeOfStatus[error.status] ?? 'invalid_request', undefined, { cause: error })
  }
  if (isUnstorableText(error)) {
    return new BaseError('invalid_request', 'Text must not contain a NUL character', { cause: error })
  }
  const dependency = failedDependency(error)
  if (dependency !== undefined) {
    return new BaseError('dependency_unavailable', undefined, { details: { dependency }, cause: error })
  }
  return new BaseError('internal_error', undefined, { cause: error })
}
