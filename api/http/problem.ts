import { HTTPException } from 'hono/http-exception'
import { BaseError, type ErrorCode } from '#protocol/errors'
import { failedDependency, isUnstorableText } from '../dependencies.ts'
import { Refusal } from '../refusal.ts'

const codeOfStatus: Partial<Record<number, ErrorCode>> = {
  400: 'invalid_json', // what hono's validator throws where a body is no JSON
  404: 'not_found',
  408: 'request_timeout',
  413: 'payload_too_large',
  415: 'unsupported_media_type',
}

/** Turns anything thrown into an error with a code. What is nobody's fault but ours becomes `internal_error`. */
export function toCodedError(error: unknown): BaseError {
  if (error instanceof BaseError) return error
  if (error instanceof HTTPException) {
    return new Refusal(codeOfStatus[error.status] ?? 'invalid_request', undefined, { cause: error })
  }
  if (isUnstorableText(error)) {
    return new Refusal('invalid_request', 'Text must not contain a NUL character', { cause: error })
  }
  const dependency = failedDependency(error)
  if (dependency !== undefined) {
    return new Refusal('dependency_unavailable', undefined, { details: { dependency }, cause: error })
  }
  return new Refusal('internal_error', undefined, { cause: error })
}
