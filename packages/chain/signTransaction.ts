import { hexToBytes } from '@tollkeeper/sdk/protocol/bytes'
import { isCanonicalSignature } from '@tollkeeper/sdk/protocol/eip3009'
import {
  type Address,
  type Hex,
  type LocalAccount,
  parseTransaction,
  serializeTransaction,
  type TransactionSerializableEIP1559,
} from 'viem'
import { toAccount } from 'viem/accounts'
import { hashHex } from './keccak256.ts'
import { areSigned, questionLength } from './recoverPayer.ts'

/**
 * The reason why a wallet has no transaction to send.
 *
 * - `signer_unavailable`: the signer gave no response, or none in time; a later request may succeed
 * - `signer_refused`: the signer refuses to sign this transaction, or for this address
 * - `signer_mismatch`: the signer returned something other than requested
 */
export type SignerCode = 'signer_unavailable' | 'signer_refused' | 'signer_mismatch'

/** Thrown if a wallet's signer returned no transaction, or one that must not be sent. */
export class SignerError extends Error {
  override name = 'SignerError'
  readonly code: SignerCode

  constructor(code: SignerCode, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.code = code
  }
}

export type Transaction = TransactionSerializableEIP1559 & { type: 'eip1559' }

/** The part of a viem account that we need. */
export type SigningAccount = Pick<LocalAccount, 'address' | 'signTransaction'>

/**
 * Asks an account to sign, and checks the result: the bytes must be exactly this transaction, signed by this address. A remote
 * signer may hold another key, be configured for another chain, fill in other values, or belong to someone else.
 *
 * @returns the signed transaction, in lower case.
 * @throws {SignerError}
 */
export async function signTransaction(account: SigningAccount, transaction: Transaction): Promise<Hex> {
  const answer: unknown = await account.signTransaction(transaction).catch((error: unknown) => {
    if (error instanceof SignerError) throw error
    throw new SignerError('signer_refused', 'the account did not sign', { cause: error })
  })
  const raw = typeof answer === 'string' ? answer.toLowerCase() : ''
  const signature = readSignature(raw, transaction)
  const rs = `${signature.r}${signature.s.slice(2)}` as const
  if (!isCanonicalSignature(`${rs}${signature.yParity === 0 ? '1b' : '1c'}`))
    throw mismatch('no chain accepts its signature')
  const question = new Uint8Array(questionLength)
  question.set(hexToBytes(rs), 0)
  question[64] = signature.yParity
  question.set(hexToBytes(hashHex(serializeTransaction(transaction))), 65)
  question.set(hexToBytes(account.address.toLowerCase() as Address), 97)
  if (areSigned(question)[0] !== 1) throw mismatch(`it is not signed by the key of ${account.address}`)
  return raw as Hex
}

/** Wraps an account for viem's clients, so that {@link signTransaction} checks its transactions. */
export function checkedAccount(account: LocalAccount): LocalAccount {
  return toAccount({
    ...account,
    signTransaction: async (transaction) => signTransaction(account, transaction as Transaction),
  })
}

/** Returns the signature in these bytes, after checking that they encode exactly this transaction. */
function readSignature(raw: string, asked: Transaction): { r: Hex; s: Hex; yParity: number } {
  const signed = parse(raw)
  const differing = fields.filter((field) => textOf(asked[field]) !== textOf(signed[field]))
  if (differing.length > 0) {
    const chains = `it is for chain ${signed.chainId}, not ${asked.chainId}`
    const rest = differing.filter((field) => field !== 'chainId').join(', ')
    const parts = [differing.includes('chainId') && chains, rest && `it differs in ${rest}`]
    throw mismatch(parts.filter(Boolean).join('; '))
  }
  const { r, s, yParity } = signed
  if (r === undefined || s === undefined || yParity === undefined) throw mismatch('it is not signed')
  const signature = { r, s, yParity }
  if (serializeTransaction(asked, signature).toLowerCase() !== raw) throw mismatch('its encoding differs')
  return signature
}

type Parsed = Partial<Transaction> & { r?: Hex; s?: Hex; yParity?: number }

function parse(raw: string): Parsed {
  try {
    return parseTransaction(raw as `0x02${string}`) as Parsed
  } catch {
    throw mismatch('it is not a transaction')
  }
}

const fields = [
  ...(['type', 'chainId', 'nonce', 'to', 'value', 'data', 'gas'] as const),
  ...(['maxFeePerGas', 'maxPriorityFeePerGas', 'accessList'] as const),
]

function textOf(value: unknown): string {
  return value === undefined || value === '0x' ? '0' : String(value).toLowerCase()
}

function mismatch(detail: string): SignerError {
  return new SignerError('signer_mismatch', `the response is not what was requested: ${detail}`)
}
