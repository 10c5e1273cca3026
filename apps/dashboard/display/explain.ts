import type { GatewayError } from '../gateway/gateway.ts'
import { describeCode } from './format.ts'

/** Explains why a view can't be shown, and what happens next. */
export function explain({ status, code, message }: GatewayError): { title: string; text: string } {
  if (status === 0) {
    return { title: 'The gateway does not answer', text: 'It may be restarting, or you may be offline.' }
  }
  if (code === 'dependency_unavailable') {
    return {
      title: 'The gateway can’t reach its database or the chain',
      text: 'Payments and receipts are safe. This page comes back by itself.',
    }
  }
  if (status === 404) return { title: 'There is no such thing here', text: message }
  if (status === 429)
    return { title: 'Too many requests', text: 'This page slows down and goes on by itself.' }
  return { title: 'The gateway could not answer', text: message }
}

/** Advice for a refused request. */
const advice: Record<string, string> = {
  unreachable: 'Nothing may have been changed: look before you try again.',
  endpoint_exists: 'Change the endpoint that is there, or give this one another path or method.',
  endpoint_limit_reached: 'Let one URL stand for many, as in /users/:id or /files/*.',
  last_api_key: 'Issue another key first. Without one, only the operator can let you in again.',
  payee_refused: 'Money sent there would be lost. Give an address of your own.',
  precondition_failed: 'See below what was changed. What you typed is still here.',
  insufficient_balance: 'Send USDC to that wallet first.',
  payment_not_settled: 'Wait until both parts are confirmed on chain.',
  payment_replayed: 'Look at the list: it may have been asked for already.',
  price_below_minimum: 'Ask for more.',
  provider_disabled: 'Enable yourself first, under Provider.',
  rate_limited: 'Try again later.',
  unauthorized: 'Check that it was copied whole.',
  registration_closed: 'Ask the operator of this gateway.',
  unknown_wallet: 'Register a wallet there first.',
  wallet_exists: 'It is in the list already.',
  wallet_in_use: 'Replace it instead: its endpoints go over to the new one.',
  wallet_retired: 'Choose another one.',
  webhook_limit_reached: 'Delete one that you no longer need.',
  upstream_url_refused: 'It must be https, and public.',
  webhook_url_refused: 'It must be https, and public.',
}

/** The field that a refusal is about, if the gateway doesn't name it. */
const fieldOfCode: Record<string, string> = {
  endpoint_exists: 'url',
  payee_refused: 'address',
  price_below_minimum: 'pricing.usdcPerUnit',
  upstream_url_refused: 'url',
  wallet_exists: 'address',
  webhook_url_refused: 'url',
}

export type Refused = { title: string; text: string; code: string; fields: ReadonlyMap<string, string> }

/** Explains why a form's request was refused, and what to do; `fields` by their names in the request. */
export function explainRefusal({ status, code, message, fields }: GatewayError): Refused {
  const title = status === 0 ? message : describeCode(code)
  const said = new Map(fields.map(({ field, message }) => [field, message]))
  const field = fieldOfCode[code]
  if (field !== undefined) said.set(field, message === title ? title : `${title}: ${message}`)
  const detail = message === title || said.size > 0 ? [] : [`${message.replace(/\.$/, '')}.`]
  return { title, text: [...detail, advice[code] ?? ''].join(' ').trim(), code, fields: said }
}
