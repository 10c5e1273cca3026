import { type Address, decodeFunctionData, encodeFunctionData, type Hex } from 'viem'
import { batchSettlementAbi } from './abi/batchSettlement.ts'
import { feeNonce } from './challenge.ts'
import { compactSignature, expandSignature } from './eip3009.ts'
import type { SignedAuthorization } from './payload.ts'

/** Why a batch was started; the byte that goes on chain. */
export const triggerCodes = {
  amount: 0,
  count: 1,
  time: 2,
  high_value: 3,
  expiry: 4,
  direct: 5,
} as const

export type Trigger = keyof typeof triggerCodes

/** The trigger of a byte seen on chain; undefined for a byte that only a stranger can have sent. */
export function triggerOfCode(code: number): Trigger | undefined {
  return (Object.keys(triggerCodes) as Trigger[]).find((trigger) => triggerCodes[trigger] === code)
}

/** What became of one authorization of a batch. */
export const outcomes = ['not_tried', 'settled', 'used', 'failed', 'skipped'] as const

/**
 * `not_tried`: the gas ran out before it, or there is no such half. `used`: used or cancelled before.
 * `skipped`: the fee of a provider's authorization that failed.
 */
export type Outcome = (typeof outcomes)[number]

export type PaymentOutcome = { provider: Outcome; fee: Outcome }

/** One payment of a batch: both authorizations, or one alone. */
export type SettlementItem = {
  authorization: SignedAuthorization
  /** Same payer and window as `authorization`, paid to the batch's fee recipient. */
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

export type EncodedSettle = {
  payees: Address[]
  payments: Payment[]
  /** Signatures that can't be compacted, referred to by index. */
  signatures: Hex[]
  /** Of `settle(batch, payees, payments, signatures)`. */
  calldata: Hex
}

const zeroWord: Hex = `0x${'0'.repeat(64)}`

/**
 * The items that settle a payment: one for both authorizations, or two single ones where the contract can't take them
 * together (their windows differ, the fee goes to another recipient than the batch's, or its nonce is 0, which stands for another).
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
 * @param addSignature keeps a signature that can't be compacted and returns its index.
 */
export function encodePayment(
  { authorization, fee }: SettlementItem,
  payeeIndex: number,
  addSignature: (signature: Hex) => number,
): Payment {
  const { from, value, validAfter, validBefore, nonce } = authorization
  const own = encodeSignature(authorization.signature, addSignature)
  const feeSignature = fee ? encodeSignature(fee.signature, addSignature) : { r: zeroWord, vs: zeroWord }
  return {
    head: (BigInt(from) << 96n) | (BigInt(payeeIndex) << 80n) | (validAfter << 40n) | validBefore,
    values: (value << 128n) | (fee?.value ?? 0n),
    nonce,
    feeNonce: fee && fee.nonce !== feeNonce(nonce) ? fee.nonce : zeroWord,
    r: own.r,
    vs: own.vs,
    feeR: feeSignature.r,
    feeVs: feeSignature.vs,
  }
}

/**
 * Packs a batch into the calldata of `settle`.
 *
 * @throws {TypeError} where two authorizations of an item can't share it: see {@link settlementItems}.
 */
export function encodeSettle(batch: Batch, items: readonly SettlementItem[]): EncodedSettle {
  const payeeIndexes = new Map<Address, number>()
  const signatures: Hex[] = []
  const addSignature = (signature: Hex) => signatures.push(signature) - 1
  const payments = items.map((item, position) => {
    const { authorization, fee } = item
    if (fee && !canShare(authorization, fee, batch.feeRecipient)) {
      throw new TypeError(
        `Item ${position}: its fee has another payer, window or recipient, or no value or nonce`,
      )
    }
    let payeeIndex = payeeIndexes.get(authorization.to)
    if (payeeIndex === undefined) {
      payeeIndex = payeeIndexes.size
      if (payeeIndex > 0xffff) throw new TypeError('A batch has at most 65,536 payees')
      payeeIndexes.set(authorization.to, payeeIndex)
    }
    return encodePayment(item, payeeIndex, addSignature)
  })
  const payees = [...payeeIndexes.keys()]
  const calldata = encodeFunctionData({
    abi: batchSettlementAbi,
    functionName: 'settle',
    args: [batch, payees, payments, signatures],
  })
  return { payees, payments, signatures, calldata }
}

/**
 * Reads what {@link encodeSettle} wrote: the batch, and its items with their signatures as the payers gave them.
 *
 * @example
 * decodeSettle(encodeSettle(batch, items).calldata) // { batch, items }
 * @param calldata of a call of `settle`, addresses and hex in any case.
 * @returns addresses and hex in lower-case.
 * @throws {TypeError} for a call of another function, or one that refers to a payee or signature that it doesn't carry.
 */
export function decodeSettle(calldata: Hex): { batch: Batch; items: SettlementItem[] } {
  const call = decodeFunctionData({ abi: batchSettlementAbi, data: calldata })
  if (call.functionName !== 'settle')
    throw new TypeError(`A call of settle was expected, got ${call.functionName}`)
  const [{ token, feeRecipient, ...batch }, payees, payments, signatures] = call.args
  const recipient = feeRecipient.toLowerCase() as Address
  return {
    batch: { ...batch, token: token.toLowerCase() as Address, feeRecipient: recipient },
    items: payments.map((payment) => decodePayment(payment, payees, recipient, signatures)),
  }
}

/** The reverse of {@link encodePayment}. */
function decodePayment(
  { head, values, nonce, ...packed }: Payment,
  payees: readonly Address[],
  feeRecipient: Address,
  signatures: readonly Hex[],
): SettlementItem {
  const payee = payees[Number(bits(head, 80n, 16n))]
  if (!payee) throw new TypeError(`The payment with nonce ${nonce} names a payee that the batch doesn't have`)
  const shared = {
    from: `0x${(head >> 96n).toString(16).padStart(40, '0')}` as Address,
    validAfter: bits(head, 40n, 40n),
    validBefore: bits(head, 0n, 40n),
  }
  const authorization = {
    ...shared,
    to: payee.toLowerCase() as Address,
    value: values >> 128n,
    nonce,
    signature: decodeSignature(packed.r, packed.vs, signatures),
  }
  const feeValue = bits(values, 0n, 128n)
  if (feeValue === 0n) return { authorization }
  const fee = {
    ...shared,
    to: feeRecipient,
    value: feeValue,
    nonce: packed.feeNonce === zeroWord ? feeNonce(nonce) : packed.feeNonce,
    signature: decodeSignature(packed.feeR, packed.feeVs, signatures),
  }
  return { authorization, fee }
}

function bits(word: bigint, from: bigint, count: bigint): bigint {
  return (word >> from) & ((1n << count) - 1n)
}

/**
 * Reads the outcomes that `settle` returns and `BatchSettled` carries: a byte a payment, high nibble the provider's
 * authorization, low nibble the fee's.
 *
 * @throws {TypeError} for a nibble that the contract never writes.
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

function encodeSignature(signature: Hex, addSignature: (signature: Hex) => number): { r: Hex; vs: Hex } {
  const compact = compactSignature(signature)
  if (compact) return compact
  return { r: `0x${addSignature(signature).toString(16).padStart(64, '0')}`, vs: zeroWord }
}

function decodeSignature(r: Hex, vs: Hex, signatures: readonly Hex[]): Hex {
  // The contract's sign of an index: no compact signature has an s of zero.
  if (bits(BigInt(vs), 0n, 255n) !== 0n) return expandSignature({ r, vs })
  const signature = signatures[Number(r)]
  if (!signature) throw new TypeError(`The batch has no signature ${BigInt(r)}`)
  return signature
}
