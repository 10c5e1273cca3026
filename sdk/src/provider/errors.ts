import { type ErrorCode, errorCodes, isErrorCode, TollkeeperError } from '../protocol/errors.ts'
import { isRecord, textOf } from '../protocol/fields.ts'

/**
 * A stable code of a {@link GatewayError}: an {@link ErrorCode} of the gateway, an unknown code of a newer gateway, or one of the client's codes:
 *
 * - `timeout`: no response within `timeout`.
 * - `network_error`: the connection failed or was interrupted.
 * - `gateway_redirects`: the gateway redirects to another origin. The client doesn't send the API key there.
 * - `http_error`: the response doesn't look like a gateway's response.
 */
export type GatewayErrorCode =
  | ErrorCode
  | 'timeout'
  | 'network_error'
  | 'gateway_redirects'
  | 'http_error'
  | (string & {})

/** Options of a {@link GatewayError}. */
export type GatewayErrorOptions = {
  status?: number
  detail?: string | undefined
  details?: Record<string, unknown>
  retryAfterSeconds?: number | undefined
  cause?: unknown
}

/**
 * Thrown for every call that fails.
 *
 * @example
 * import { GatewayError, type ProviderClient } from '@tollkeeper/sdk/provider'
 *
 * // Changes a price, unless someone else has changed the endpoint since it was read.
 * export async function reprice(client: ProviderClient, endpointId: string, usdcPerUnit: string) {
 *   const { version } = await client.endpoints.get(endpointId)
 *   try {
 *     return await client.endpoints.update(endpointId, { pricing: { usdcPerUnit } }, { ifMatch: version })
 *   } catch (error) {
 *     if (error instanceof GatewayError && error.code === 'precondition_failed') return undefined
 *     throw error
 *   }
 * }
 */
export class GatewayError extends TollkeeperError<GatewayErrorCode> {
  override readonly name = 'GatewayError'
  /** HTTP status of the response. Undefined if there was no response. */
  readonly status: number | undefined
  /** The gateway's description of the error, if it sent one. The message includes it. */
  readonly detail: string | undefined
  /** The other members of the problem (RFC 9457), such as the expected and the received value. */
  readonly details: Readonly<Record<string, unknown>>
  /** Seconds to wait before the next attempt, if the gateway sent `Retry-After`. */
  readonly retryAfterSeconds: number | undefined

  constructor(code: GatewayErrorCode, message: string, options: GatewayErrorOptions = {}) {
    super(code, message, options)
    this.status = options.status
    this.detail = options.detail
    this.details = options.details ?? {}
    this.retryAfterSeconds = options.retryAfterSeconds
  }

  /**
   * Whether the same call can succeed later. Even if this is true, a call that changes something may already have changed it.
   */
  get retryable(): boolean {
    if (this.code === 'timeout' || this.code === 'network_error') return true
    return isErrorCode(this.code) && 'retryable' in errorCodes[this.code]
  }

  /** The rejected fields of the request, each with a reason. */
  get fields(): readonly { field: string; message: string }[] {
    const { errors } = this.details
    if (!Array.isArray(errors)) return []
    return errors
      .filter(isRecord)
      .map(({ field, message }) => ({ field: textOf(field), message: textOf(message) }))
  }
}

/** Returns the error for an unexpected response: a problem of the gateway, or a response of another server. */
export function toGatewayError(
  call: string,
  { status, retryAfterSeconds }: { status: number; retryAfterSeconds: number | undefined },
  body: unknown,
): GatewayError {
  const { type: _, title, status: __, detail, code, ...details } = isRecord(body) ? body : {}
  const options = { status, details, retryAfterSeconds }
  if (typeof code !== 'string')
    return new GatewayError(
      'http_error',
      `${call} responded with status ${status}, but the response does not look like a gateway’s`,
      options,
    )
  const reason = textOf(detail) || textOf(title)
  return new GatewayError(code, `${call} answered ${status} ${code}: ${reason}`, {
    ...options,
    detail: reason,
  })
}
