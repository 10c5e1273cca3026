import { maxAmount, parseUsdc } from './amount.ts'
import { ProtocolError } from './errors.ts'
import { isRecord } from './fields.ts'

/**
 * A seller's decision whether and how to sell a request, made before the request is paid. The middleware's `beforeAccept` returns the decision. A
 * provider's hook, which the gateway calls, returns the decision as JSON.
 *
 * - `accept`: sell at the normal price
 * - `refuse`: don't sell; the buyer sees the reason (up to 200 characters) and the seller's own code
 * - `free`: serve without a payment
 * - `price`: sell at another price, in decimal USDC
 */
export type AcceptDecision =
  | { accept: true }
  | { refuse: string; code?: string }
  | { free: true }
  | { price: string | number }

/** A checked decision. `price` is in USDC base units. */
export type ParsedDecision =
  | { kind: 'accept' }
  | { kind: 'refuse'; reason: string; code?: string }
  | { kind: 'free' }
  | { kind: 'price'; price: bigint }

const kinds = ['accept', 'refuse', 'free', 'price'] as const
/** Maximum length of a reason. */
const maxReasonLength = 200
/** A seller's own code for a refusal. */
const ownCodePattern = /^[a-z0-9_.-]{1,64}$/i

/**
 * Checks a seller's decision.
 *
 * @throws {ProtocolError} `invalid_field` if it isn't exactly one decision, or if its price can't be paid.
 */
export function parseAcceptDecision(value: unknown): ParsedDecision {
  if (!isRecord(value)) throw invalid('an object')
  const [kind, another] = kinds.filter((one) => value[one] !== undefined)
  // Reject a value with two decisions, because they contradict each other.
  if (kind === undefined || another !== undefined) throw invalid(`exactly one of ${kinds.join(', ')}`)
  const given = value[kind]
  if (kind === 'refuse') {
    if (typeof given !== 'string') throw invalid('a text as `refuse`')
    const { code } = value
    if (code !== undefined && !(typeof code === 'string' && ownCodePattern.test(code)))
      throw invalid('a `code` of letters, digits and _.- only')
    return { kind, reason: tidyReason(given), ...(code !== undefined && { code }) }
  }
  if (kind === 'price') return { kind, price: parseDecidedPrice(given) }
  if (given !== true) throw invalid(`true as \`${kind}\``)
  return { kind }
}

/**
 * Returns a name that identifies a payment among all payments.
 *
 * @param nonce the payment's nonce or, for a request on a tab, the tab's id and the request's number.
 */
export function paymentName(payer: string, nonce: string): string {
  return `${payer}:${nonce}`
}

function parseDecidedPrice(given: unknown): bigint {
  const price = parseUsdc((typeof given === 'string' ? given.replace(/^\$/, '') : given) as string)
  if (price === 0n || price > maxAmount)
    throw invalid('a price above 0 that can be paid; for 0 return `free`')
  return price
}

/** Makes a reason safe for logs and terminals: removes line breaks. */
function tidyReason(reason: string): string {
  const plain = reason.replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, ' ').trim()
  return [...plain].slice(0, maxReasonLength).join('') || 'Seller declined this request'
}

function invalid(expected: string): ProtocolError {
  return new ProtocolError('invalid_field', `Decision: expected ${expected}`)
}
