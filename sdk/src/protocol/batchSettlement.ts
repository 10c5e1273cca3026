import { type Address, decodeFunctionData, encodeFunctionData, type Hex } from 'viem'
import { batchSettlementAbi } from './abi/batchSettlement.ts'
import { feeNonce } from './challenge.ts'
import { compactSignature, expandSignature, type Keccak256, lower, zeroWord } from './eip3009.ts'
import type { SignedAuthorization } from './payload.ts'

/**
 * The reasons to start a batch (conformance 8.1), each with the byte that encodes it on chain.
 *
 * @example
 * import { triggerCodes } from '@tollkeeper/sdk/protocol/settlement'
 *
 * console.log(triggerCodes.amount, triggerCodes.high_value)
 * // 0 3
 */
export const triggerCodes = {
  amount: 0,
  count: 1,
  time: 2,
  high_value: 3,
  expiry: 4,
  submission: 5,
} as const

/** Why a batch was started: a key of {@link triggerCodes}. */
export type Trigger = keyof typeof triggerCodes

/** Converts a byte that was read from the chain to its trigger. @returns undefined for a byte that our keepers don't send. */
export function triggerOfCode(code: number): Trigger | undefined {
  return (Object.keys(triggerCodes) as Trigger[]).find((trigger) => triggerCodes[trigger] === code)
}

/** The possible outcomes of an authorization in a batch. */
export const outcomes = ['not_tried', 'settled', 'used', 'failed', 'skipped', 'expired'] as const

/**
 * The outcome of an authorization in a batch:
 *
 * - `not_tried`: the gas ran out before this authorization, or the payment doesn't have this authorization.
 * - `settled`: the authorization transferred its USDC.
 * - `used`: the authorization had already been used or cancelled.
 * - `failed`: the token rejected the authorization.
 * - `skipped`: another authorization of the same payer failed immediately before this one.
 * - `expired`: only for a tab, because the contract enforces a tab's expiry.
 */
export type Outcome = (typeof outcomes)[number]

/** The outcomes of the two authorizations of a payment: the provider's and the fee's. */
export type PaymentOutcome = { provider: Outcome; fee: Outcome }

/** One payment of a batch: both authorizations, or only one. */
export type SettlementItem = {
  authorization: SignedAuthorization
  /** The platform's authorization. It has the same payer and validity as `authorization`, and pays the batch's fee recipient. */
  fee?: SignedAuthorization
}

/** The contract's `Batch` struct. */
export type Batch = {
  token: Address
  feeRecipient: Address
  batchId: Hex
  trigger: number
  callGasLimit: bigint
}

/** The contract's `Payment` struct. */
export type Payment = {
  head: bigint
  values: bigint
  nonce: Hex
  feeNonce: Hex
  r: Hex
  vs: Hex
  feeR: Hex
  feeVs: Hex
}

/** The contract's `Authorization` struct. It represents a payment with one signature. */
export type PackedAuthorization = { head: bigint; value: bigint; nonce: Hex; r: Hex; vs: Hex }

/** The contract's `Sweep` struct: the splitters to sweep after a batch has settled. Their platform is the batch's `feeRecipient`. */
export type Sweep = {
  factory: Address
  /** Maximum gas for the sweeps. The settlement of authorizations leaves this amount of gas unused. */
  gasLimit: bigint
  /** The packed terms of each splitter (see {@link encodeSplit}). If empty, nothing is swept. */
  splits: bigint[]
}

/** The calldata of one batch, and the arguments encoded in it. */
export type EncodedSettle = {
  payees: Address[]
  payments: Payment[]
  /** The signatures that can't be compacted. Payments refer to them by index. */
  signatures: Hex[]
  /** The call `settle(batch, payees, payments, signatures)`. */
  calldata: Hex
}

const noSweep: Sweep = { factory: `0x${'0'.repeat(40)}`, gasLimit: 0n, splits: [] }

/**
 * Returns the items that settle a payment: one item for both authorizations, or two items if the contract can't settle them together.
 *
 * The contract can't settle them together if their payers or validity differ, if the fee's recipient isn't the batch's fee recipient, or if the fee's
 * value or nonce is 0. On chain, a value of 0 represents a missing fee, and a nonce of 0 represents the derived nonce.
 *
 * @param authorization the provider's authorization, as {@link parsePayload} returns it.
 * @param fee the platform's authorization.
 * @param feeRecipient the fee recipient of the batch, lower-case.
 * @example
 * import { parsePayload } from '@tollkeeper/sdk/protocol'
 * import { settlementItems } from '@tollkeeper/sdk/protocol/settlement'
 *
 * export const itemsOf = ([provider, fee]: [string, string], feeRecipient: `0x${string}`) =>
 *   settlementItems(parsePayload(provider), parsePayload(fee), feeRecipient)
 */
export function settlementItems(
  authorization: SignedAuthorization,
  fee: SignedAuthorization,
  feeRecipient: Address,
): SettlementItem[] {
  return canShare(authorization, fee, feeRecipient)
    ? [{ authorization, fee }]
    : [{ authorization }, { authorization: fee }]
}

/**
 * Packs one item into the contract's struct.
 *
 * @param payeeIndex position of `authorization.to` in the batch's payees, < 2^16.
 * @param addSignature stores a signature that can't be compacted, and returns its index.
 */
export function encodePayment(
  { authorization, fee }: SettlementItem,
  payeeIndex: number,
  addSignature: (signature: Hex) => number,
  keccak?: Keccak256,
): Payment {
  const { value, nonce } = authorization
  const { r, vs } = encodeSignature(authorization.signature, addSignature)
  const feeSignature = fee ? encodeSignature(fee.signature, addSignature) : { r: zeroWord, vs: zeroWord }
  return {
    head: encodeHead(authorization, payeeIndex),
    values: (value << 128n) | (fee?.value ?? 0n),
    nonce,
    feeNonce: fee && fee.nonce !== feeNonce(nonce, keccak) ? fee.nonce : zeroWord,
    r,
    vs,
    feeR: feeSignature.r,
    feeVs: feeSignature.vs,
  }
}

/**
 * Encodes a batch as calldata for BatchSettlement's `settle`.
 *
 * @param batch the contract's `Batch`, with addresses in lower-case, a `trigger` of {@link triggerCodes}, and the gas limit per call.
 * @param items the results of {@link settlementItems}: one or two items per payment.
 * @param keccak a faster keccak256 than the portable one.
 * @throws {TypeError} if an item has two authorizations that the contract can't settle together (see {@link settlementItems}), or if the batch has
 * more than 65,536 payees.
 * @example
 * import { encodeSettle, triggerCodes } from '@tollkeeper/sdk/protocol/settlement'
 *
 * const batch = {
 *   token: '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913',
 *   feeRecipient: `0x${'c'.repeat(40)}`,
 *   batchId: `0x${'0'.repeat(63)}1`,
 *   trigger: triggerCodes.amount,
 *   callGasLimit: 200_000n,
 * } as const
 * const authorization = {
 *   from: `0x${'a'.repeat(40)}`,
 *   to: `0x${'b'.repeat(40)}`,
 *   value: 47_500n,
 *   validAfter: 0n,
 *   validBefore: 1_800_093_600n,
 *   nonce: `0x${'0'.repeat(63)}1`,
 *   signature: `0x${'1'.repeat(128)}1b`,
 * } as const
 * console.log(encodeSettle(batch, [{ authorization }]).payees)
 * // [ '0xbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb' ]
 */
export function encodeSettle(
  batch: Batch,
  items: readonly SettlementItem[],
  keccak?: Keccak256,
): EncodedSettle {
  const { payees, indexOf } = collectPayees()
  const signatures: Hex[] = []
  const addSignature = (signature: Hex) => signatures.push(signature) - 1
  const payments = items.map((item, position) => {
    const { authorization, fee } = item
    if (fee && !canShare(authorization, fee, batch.feeRecipient)) {
      throw new TypeError(
        `Item ${position}: the fee must have the item's payer and validity, pay the batch's feeRecipient, and have a value and a nonce`,
      )
    }
    return encodePayment(item, indexOf(authorization.to), addSignature, keccak)
  })
  const calldata = encodeFunctionData({
    abi: batchSettlementAbi,
    functionName: 'settle',
    args: [batch, payees, payments, signatures],
  })
  return { payees, payments, signatures, calldata }
}

/**
 * Encodes a batch of payments with one signature each as calldata for BatchSettlement's `settleAuthorizations`. Each payment goes to the recipient
 * that its payer signed: a splitter, or any other address.
 *
 * @param batch as for {@link encodeSettle}. Its `feeRecipient` is the platform that the splitters pay.
 * @param authorizations authorizations as {@link parsePayload} returns them.
 * @param sweep the splitters to sweep in the same transaction. Default: none.
 * @throws {TypeError} for a batch with more than 65,536 recipients.
 * @example
 * import { encodeSplit, type SignedAuthorization } from '@tollkeeper/sdk/protocol'
 * import { type Batch, encodeSettleAuthorizations } from '@tollkeeper/sdk/protocol/settlement'
 *
 * export function settleAndSweep(batch: Batch, paid: SignedAuthorization[], factory: `0x${string}`) {
 *   const split = encodeSplit({ provider: `0x${'b'.repeat(40)}`, providerShare: 19n, platformShare: 1n })
 *   const sweep = { factory, gasLimit: 100_000n, splits: [split] }
 *   return encodeSettleAuthorizations(batch, paid, sweep).calldata
 * }
 */
export function encodeSettleAuthorizations(
  batch: Batch,
  authorizations: readonly SignedAuthorization[],
  sweep: Sweep = noSweep,
): { payees: Address[]; authorizations: PackedAuthorization[]; signatures: Hex[]; calldata: Hex } {
  const { payees, indexOf } = collectPayees()
  const signatures: Hex[] = []
  const packed = authorizations.map((authorization): PackedAuthorization => {
    const { to, value, nonce, signature } = authorization
    const { r, vs } = encodeSignature(signature, (long) => signatures.push(long) - 1)
    return { head: encodeHead(authorization, indexOf(to)), value, nonce, r, vs }
  })
  const calldata = encodeFunctionData({
    abi: batchSettlementAbi,
    functionName: 'settleAuthorizations',
    args: [batch, payees, packed, signatures, sweep],
  })
  return { payees, authorizations: packed, signatures, calldata }
}

/** Collects the distinct recipients of a batch, in the order in which they are first needed. */
function collectPayees(): { payees: Address[]; indexOf: (payee: Address) => number } {
  const payees: Address[] = []
  const indexes = new Map<Address, number>()
  const indexOf = (payee: Address) => {
    const known = indexes.get(payee)
    if (known !== undefined) return known
    if (payees.length > 0xffff) throw new TypeError('A batch has at most 65,536 payees')
    indexes.set(payee, payees.length)
    return payees.push(payee) - 1
  }
  return { payees, indexOf }
}

/**
 * Decodes the calldata of {@link encodeSettle} or {@link encodeSettleAuthorizations}. Returns the batch, and its items with the payers' signatures. A
 * payment with one signature is an item without a fee.
 *
 * @param calldata calldata of `settle` or `settleAuthorizations`. Addresses and hex may have any case.
 * @returns addresses and hex in lower-case. `sweep` is set only for `settleAuthorizations`.
 * @throws {TypeError} for a call of any other function, or for a reference to a payee or signature that the call doesn't contain.
 * @example
 * import { decodeSettle } from '@tollkeeper/sdk/protocol/settlement'
 * import type { PublicClient } from 'viem'
 *
 * export async function itemsOf(client: PublicClient, hash: `0x${string}`) {
 *   const { input } = await client.getTransaction({ hash })
 *   return decodeSettle(input).items
 * }
 */
export function decodeSettle(calldata: Hex): { batch: Batch; items: SettlementItem[]; sweep?: Sweep } {
  const call = decodeFunctionData({ abi: batchSettlementAbi, data: calldata })
  if (call.functionName === 'settle') {
    const [args, payees, payments, signatures] = call.args
    const batch = decodeBatch(args)
    return {
      batch,
      items: payments.map((payment) => decodePayment(payment, payees, batch.feeRecipient, signatures)),
    }
  }
  if (call.functionName === 'settleAuthorizations') {
    const [batch, payees, authorizations, signatures, { factory, splits, ...sweep }] = call.args
    return {
      batch: decodeBatch(batch),
      items: authorizations.map((packed) => ({
        authorization: decodeAuthorization(packed, payees, signatures),
      })),
      sweep: { ...sweep, factory: lower(factory), splits: [...splits] },
    }
  }
  throw new TypeError(`A call of settle or settleAuthorizations was expected, got ${call.functionName}`)
}

export function decodeBatch({ token, feeRecipient, batchId, trigger, callGasLimit }: Batch): Batch {
  return { token: lower(token), feeRecipient: lower(feeRecipient), batchId, trigger, callGasLimit }
}

function decodeAuthorization(
  { head, value, nonce, r, vs }: PackedAuthorization,
  payees: readonly Address[],
  signatures: readonly Hex[],
): SignedAuthorization {
  const payee = payees[Number(bits(head, 80n, 16n))]
  if (!payee)
    throw new TypeError(`The payment with nonce ${nonce} refers to a payee that the batch doesn't have`)
  return {
    from: `0x${(head >> 96n).toString(16).padStart(40, '0')}`,
    to: lower(payee),
    value,
    validAfter: bits(head, 40n, 40n),
    validBefore: bits(head, 0n, 40n),
    nonce,
    signature: decodeSignature(r, vs, signatures),
  }
}

/** Decodes what {@link encodePayment} encoded. */
function decodePayment(
  { values, ...packed }: Payment,
  payees: readonly Address[],
  feeRecipient: Address,
  signatures: readonly Hex[],
): SettlementItem {
  const authorization = decodeAuthorization({ ...packed, value: values >> 128n }, payees, signatures)
  const feeValue = bits(values, 0n, 128n)
  if (feeValue === 0n) return { authorization }
  const fee = {
    ...authorization,
    to: feeRecipient,
    value: feeValue,
    nonce: packed.feeNonce === zeroWord ? feeNonce(packed.nonce) : packed.feeNonce,
    signature: decodeSignature(packed.feeR, packed.feeVs, signatures),
  }
  return { authorization, fee }
}

function encodeHead({ from, validAfter, validBefore }: SignedAuthorization, payeeIndex: number): bigint {
  return (BigInt(from) << 96n) | (BigInt(payeeIndex) << 80n) | (validAfter << 40n) | validBefore
}

export function bits(word: bigint, from: bigint, count: bigint): bigint {
  return (word >> from) & ((1n << count) - 1n)
}

/**
 * Decodes the outcomes that `settle` returns and that its event `BatchSettled` contains, one for each item of the batch.
 *
 * Each item's outcomes are one byte. The high four bits are the outcome of the provider's authorization, and the low four bits are the outcome of the
 * fee's. In a batch of tabs, the high four bits are the tab's outcome, and the low four bits are 0.
 *
 * @throws {TypeError} if four bits have a value that the contract never writes.
 * @example
 * import { decodeOutcomes } from '@tollkeeper/sdk/protocol/settlement'
 *
 * console.log(decodeOutcomes('0x1134'))
 * // [ { provider: 'settled', fee: 'settled' }, { provider: 'failed', fee: 'skipped' } ]
 */
export function decodeOutcomes(hex: Hex): PaymentOutcome[] {
  const decoded: PaymentOutcome[] = []
  for (let i = 2; i < hex.length; i += 2) {
    decoded.push({ provider: outcomeOf(hex.charAt(i)), fee: outcomeOf(hex.charAt(i + 1)) })
  }
  return decoded
}

function outcomeOf(nibble: string): Outcome {
  const outcome = outcomes[Number.parseInt(nibble, 16)]
  if (!outcome) throw new TypeError(`An outcome is 0 to ${outcomes.length - 1}, got "${nibble}"`)
  return outcome
}

function canShare(
  authorization: SignedAuthorization,
  fee: SignedAuthorization,
  feeRecipient: Address,
): boolean {
  return (
    fee.value > 0n &&
    fee.nonce !== zeroWord &&
    fee.from === authorization.from &&
    fee.to === feeRecipient &&
    fee.validAfter === authorization.validAfter &&
    fee.validBefore === authorization.validBefore
  )
}

export function encodeSignature(
  signature: Hex,
  addSignature: (signature: Hex) => number,
): { r: Hex; vs: Hex } {
  const compact = compactSignature(signature)
  if (compact) return compact
  return { r: `0x${addSignature(signature).toString(16).padStart(64, '0')}`, vs: zeroWord }
}

export function decodeSignature(r: Hex, vs: Hex, signatures: readonly Hex[]): Hex {
  // If `s` is zero, `r` is the index of a full signature. No compact signature has an `s` of zero.
  if (bits(BigInt(vs), 0n, 255n) !== 0n) return expandSignature({ r, vs })
  const signature = signatures[Number(r)]
  if (!signature) throw new TypeError(`The batch has no signature ${BigInt(r)}`)
  return signature
}
