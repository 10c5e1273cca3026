import type { GatewayError } from '../gateway/gateway.ts'
import { describeCode } from './format.ts'

/** The filters' names on the pages. */
const filterNames: Record<string, string> = {
  status: 'Status',
  endpointId: 'Endpoint',
  payer: 'Buyer',
  network: 'Network',
  from: 'From',
  to: 'To',
  min_usdc: 'Minimum amount',
  max_usdc: 'Maximum amount',
  tx_hash: 'Transaction',
  keeper: 'Keeper',
  month: 'Month',
}

/** Explains why a view can't be shown, and what will happen next. */
export function explain({ status, code, message, fields }: GatewayError): { title: string; text: string } {
  const [wrong] = fields
  if ((status === 400 || status === 422) && wrong !== undefined) {
    const name = filterNames[wrong.field] ?? wrong.field
    const all = fields.map(({ field, message }) => `${filterNames[field] ?? field}: ${message}.`)
    return { title: `${name} can’t be used as a filter`, text: all.join(' ') }
  }
  if (code === 'invalid_date_range') return { title: 'This period can’t be shown', text: `${message}.` }
  if (status === 0) {
    return {
      title: 'The gateway isn’t responding',
      text: 'It may be restarting, or you may be offline. This page reconnects automatically.',
    }
  }
  if (code === 'dependency_unavailable') {
    return {
      title: 'The gateway can’t reach its database or the chain',
      text: 'Payments and receipts are safe. This page reconnects automatically.',
    }
  }
  if (status === 404) return { title: 'Not found', text: message }
  if (status === 429)
    return { title: 'Too many requests', text: 'This page slows down and continues automatically.' }
  if (status < 500) return { title: describeCode(code), text: `${message.replace(/\.$/, '')}.` }
  return { title: 'The gateway couldn’t answer', text: message }
}

/** Advice for a rejected request, by error code. */
const advice: Record<string, string> = {
  unreachable: 'It isn’t known whether anything changed. Check before you try again.',
  endpoint_exists: 'Change the existing endpoint, or use another host, path or method for this one.',
  endpoint_limit_reached: 'Use one URL for many paths, as in /users/:id or /files/*.',
  last_api_key: 'Issue another key first. Without one, only the operator can restore your access.',
  payee_refused: 'Money sent there would be lost. Enter an address that you control.',
  precondition_failed: 'The changes are shown below. Your input is still here.',
  insufficient_balance: 'Send USDC to that wallet first.',
  payment_not_settled: 'Wait until both parts are confirmed on chain.',
  payment_replayed: 'Check the list of refunds: this refund may already have been requested.',
  price_below_minimum: 'Set a higher price.',
  provider_disabled: 'First enable your sales again, under Provider.',
  rate_limited: 'Try again later.',
  unauthorized: 'Check that you copied the whole key.',
  registration_closed: 'Ask the operator of this gateway.',
  unknown_wallet: 'Register a wallet on this network first.',
  wallet_exists: 'It is already in the list.',
  wallet_in_use: 'Replace it instead: its endpoints then use the new one.',
  wallet_retired: 'Choose another wallet.',
  webhook_limit_reached: 'Delete one that you no longer need.',
  hook_url_refused: 'It must use https and be publicly reachable.',
  upstream_url_refused: 'It must use https and be publicly reachable.',
  webhook_url_refused: 'It must use https and be publicly reachable.',
}

/** The field that a rejection is about, by error code. Used if the gateway doesn't name the field. */
const fieldOfCode: Record<string, string> = {
  endpoint_exists: 'url',
  payee_refused: 'address',
  price_below_minimum: 'pricing.usdcPerUnit',
  hook_url_refused: 'url',
  upstream_url_refused: 'url',
  wallet_exists: 'address',
  webhook_url_refused: 'url',
}

export type Refused = { title: string; text: string; code: string; fields: ReadonlyMap<string, string> }

/**
 * Explains why a form's request was rejected, and what to do. `fields` are keyed by their names in the
 * request.
 */
export function explainRefusal({ status, code, message, fields }: GatewayError): Refused {
  const title = status === 0 ? message : describeCode(code)
  const said = new Map(fields.map(({ field, message }) => [field, message]))
  const field = fieldOfCode[code]
  if (field !== undefined) said.set(field, message === title ? title : `${title}: ${message}`)
  const detail = message === title || said.size > 0 ? [] : [`${message.replace(/\.$/, '')}.`]
  return { title, text: [...detail, advice[code] ?? ''].join(' ').trim(), code, fields: said }
}
