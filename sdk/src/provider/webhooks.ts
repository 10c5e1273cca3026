import { type ErrorCode, ProtocolError } from '../protocol/errors.ts'
import { isRecord, parseJson } from '../protocol/fields.ts'
import type { WebhookMessage } from './generated/types.ts'
import { webhookTypes } from './generated/webhookTypes.ts'

/** A message of a type that this version of the SDK doesn't know. A newer gateway may send one. */
export type UnrecognizedMessage = {
  type: 'unrecognized'
  /** The type in the message. */
  eventType: string
  timestamp: string
  data: Readonly<Record<string, unknown>>
}

/** A verified message from the gateway. `type` determines the type of `data`. */
export type WebhookEvent = (WebhookMessage | UnrecognizedMessage) & {
  /**
   * Id of the message (`webhook-id`), the same for each delivery. Store the ids of messages that you have handled, because a message can arrive more
   * than once.
   */
  id: string
}

/** Options of {@link unwrapWebhook}. */
export type UnwrapOptions = {
  /** Maximum difference in seconds between the message's time and the current time. Default 300, as Standard Webhooks recommends. */
  toleranceSeconds?: number
  /** Current time in Unix milliseconds. Default: the system's time. */
  now?: number
}

/** Headers in any form that servers use. */
export type WebhookHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>

const defaultToleranceSeconds = 300
/** Maximum number of signatures to check. The gateway signs a message with each valid secret, of which there are at most two. */
const mostSignatures = 10
const types: ReadonlySet<string> = new Set(webhookTypes)

/**
 * Verifies that a webhook message is recent and comes from the gateway, and returns it with types (Standard Webhooks 1.0: HMAC-SHA256 over
 * `id.timestamp.body`, compared in constant time).
 *
 * @param body the exact bytes as received, before any JSON parser
 * @param secret `whsec_…` from the webhook's registration. During a rotation, pass both secrets in any order.
 * @throws {ProtocolError} `webhook_signature_invalid`; `webhook_expired` if the message is too old or too far in the future; `webhook_malformed`
 *
 * @example
 * import { unwrapWebhook } from '@tollkeeper/sdk/provider'
 *
 * // A handler from Request to Response, such as in a Worker.
 * export async function receive(request: Request): Promise<Response> {
 *   const event = await unwrapWebhook(await request.text(), request.headers, 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw')
 *   if (event.type === 'payment.settled') console.log(event.data.paymentId, event.data.providerUsdc)
 *   return new Response(null, { status: 204 })
 * }
 */
export async function unwrapWebhook(
  body: string | Uint8Array,
  headers: WebhookHeaders,
  secret: string | readonly string[],
  { toleranceSeconds = defaultToleranceSeconds, now = Date.now() }: UnwrapOptions = {},
): Promise<WebhookEvent> {
  const [id, timestamp, signatures] = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) =>
    readHeader(headers, name),
  ) as [string, string, string]
  const ageSeconds = Math.abs(now / 1_000 - Number(timestamp))
  if (ageSeconds > toleranceSeconds)
    throw refusal(
      'webhook_expired',
      `the message's time is ${Math.round(ageSeconds)} s from the current time, but at most ${toleranceSeconds} s are allowed`,
    )
  const text = typeof body === 'string' ? body : new TextDecoder('utf-8', { ignoreBOM: true }).decode(body)
  const given = signatures.split(' ').slice(0, mostSignatures)
  if (!(await isSigned(`${id}.${timestamp}.${text}`, given, typeof secret === 'string' ? [secret] : secret)))
    throw refusal('webhook_signature_invalid', 'no signature matches this body, id and secret')
  return { ...readMessage(text), id }
}

async function isSigned(
  content: string,
  given: readonly string[],
  secrets: readonly string[],
): Promise<boolean> {
  const bytes = new TextEncoder().encode(content)
  const keys = await Promise.all(secrets.map(importSecret))
  const checks = given.flatMap((signature) => {
    const [version, text = ''] = signature.split(',')
    const raw = version === 'v1' ? decodeBase64(text) : undefined
    // Web Crypto compares in constant time.
    return raw ? keys.map((key) => crypto.subtle.verify('HMAC', key, raw, bytes)) : []
  })
  return (await Promise.all(checks)).includes(true)
}

function importSecret(secret: string): Promise<CryptoKey> {
  const raw = decodeBase64(secret.replace(/^whsec_/, ''))
  if (!raw || raw.length === 0)
    throw new TypeError('secret: expected whsec_… as the registration of the webhook returned it')
  return crypto.subtle.importKey('raw', raw, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify'])
}

function decodeBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
  } catch {
    return undefined
  }
}

function readHeader(headers: WebhookHeaders, name: string): string {
  const value =
    typeof headers.get === 'function'
      ? headers.get(name)
      : Object.entries(headers).find(([other]) => other.toLowerCase() === name)?.[1]
  const text = typeof value === 'string' ? value : (value?.[0] ?? '')
  if (text === '' || (name === 'webhook-timestamp' && !/^\d{1,12}$/.test(text)))
    throw refusal('webhook_malformed', `expected the header ${name}`)
  return text
}

function readMessage(text: string): WebhookMessage | UnrecognizedMessage {
  const message = parseJson(text)
  const { type, timestamp, data } = isRecord(message) ? message : {}
  if (typeof type !== 'string' || typeof timestamp !== 'string' || !isRecord(data))
    throw refusal('webhook_malformed', 'expected an object with type, timestamp and data')
  // The message needs no further checks, because only the gateway has the secret, and sends the documented form.
  if (types.has(type)) return { type, timestamp, data } as WebhookMessage
  return { type: 'unrecognized', eventType: type, timestamp, data }
}

function refusal(code: ErrorCode, reason: string): ProtocolError {
  return new ProtocolError(code, `Webhook refused: ${reason}`)
}
