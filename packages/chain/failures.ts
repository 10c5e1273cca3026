import { type Hex, hexToBytes } from 'viem'

/**
 * The reason why an authorization failed, and who is responsible.
 *
 * - `payment`: the buyer or the provider; counts as an attempt
 * - `token`: the token is paused; doesn't count as an attempt
 * - `race`: the authorization was used or cancelled in the meantime; the chain shows by whom
 */
export type Failure = { owner: 'payment' | 'token' | 'race'; code: string; detail: string }

// The messages of FiatTokenV2_2. Source: centrehq/centre-tokens, contracts/v2/EIP3009.sol, v1/FiatTokenV1.sol,
// v1/Blacklistable.sol
const known: [RegExp, Failure['owner'], string][] = [
  [/authorization is used or canceled/, 'race', 'authorization_used'],
  [/authorization is expired/, 'payment', 'authorization_expired'],
  [/authorization is not yet valid/, 'payment', 'authorization_not_yet_valid'],
  [/transfer amount exceeds balance/, 'payment', 'insufficient_balance'],
  [/invalid signature/i, 'payment', 'invalid_signature'],
  [/account is blacklisted/, 'payment', 'account_blacklisted'],
  [/Pausable: paused/, 'token', 'token_paused'],
]

/** Returns the text of an `Error(string)`, even if the contract truncated it; an empty text for any other data. */
export function revertText(data: Hex): string {
  if (!data.startsWith('0x08c379a0')) return ''
  const bytes = hexToBytes(data)
  // The layout is: selector, offset, length, text.
  const length = Number(bytes[67] ?? 0) + 256 * Number(bytes[66] ?? 0)
  return new TextDecoder().decode(bytes.subarray(68, 68 + length))
}

/** Classifies the token's response to a failed transfer. */
export function classifyRevert(data: Hex): Failure {
  const text = revertText(data)
  const match = known.find(([pattern]) => pattern.test(text))
  if (match) return { owner: match[1], code: match[2], detail: text }
  // The token gives no reason if the signature check of a contract wallet reverted or used up its gas.
  if (text === '') return { owner: 'payment', code: 'invalid_signature', detail: data.slice(0, 74) }
  return { owner: 'payment', code: 'transfer_refused', detail: text }
}
