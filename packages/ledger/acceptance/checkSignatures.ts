import { setImmediate as nextTurn } from 'node:timers/promises'
import type { ChainReads, PayerOptions, PayerState } from '@tollkeeper/chain/chainReads'
import { isSignedByContract } from '@tollkeeper/chain/contractSignature'
import type { PayerSignatures } from '@tollkeeper/chain/payerSignatures'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { BaseError, type ErrorCode } from '@tollkeeper/sdk/protocol/errors'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { faultOfForm } from '@tollkeeper/sdk/protocol/signature'
import type { Address, Hex } from 'viem'
import type { Payers } from './payers.ts'

export type SignatureCheckOptions = {
  payerSignatures: PayerSignatures
  /** Maximum time in ms for a contract wallet's answer. */
  contractTimeoutMs: number
}

/** Which checks to make, and which payers are allowed. */
export type CheckOptions = SignatureCheckOptions & {
  /** Whether the call that reads the payers' accounts also looks up the nonces. */
  asksNonces: boolean
  /** Whether the call that reads the payers' accounts also checks whether USDC has blacklisted the payees. */
  asksPayees?: boolean
  /**
   * Whether payers may be contracts. If false, a signature that isn't by the payer's key is rejected without a call to the chain. Default
   * true.
   */
  mayHaveCode?: boolean
  /**
   * Called before each query to the chain. `hasCode` is true if a payer may be a contract, because the query may then run the contract's code. Throws
   * if the query isn't allowed.
   */
  admit?: (hasCode: boolean) => void
}

/** Reason why an authorization is refused; `index`: its position among the presented authorizations. */
export type PresentedFailure = { index: number; code: ErrorCode; detail: string }

/** Thrown if presented authorizations are refused. Its code and message are those of the first failure. */
export class PresentedRefused extends BaseError {
  readonly failures: readonly PresentedFailure[]

  constructor(
    failures: readonly [PresentedFailure, ...PresentedFailure[]],
    details: Record<string, unknown> = {},
  ) {
    const [{ index, code, detail }] = failures
    const payload = `payloads[${index}]`
    super(code, `${payload}: ${detail}`, { details: { payload, ...details } })
    this.failures = failures
  }
}

/** @throws {PresentedRefused} if there is a failure. */
export function refuse(
  [first, ...others]: readonly PresentedFailure[],
  details?: Record<string, unknown>,
): void {
  if (first) throw new PresentedRefused([first, ...others], details)
}

/** Refuses the items that have a fault. @throws {PresentedRefused} if there is one. */
export function refuseWhere<T>(
  presented: readonly T[],
  faultOf: (one: T, index: number) => Omit<PresentedFailure, 'index'> | null,
): void {
  refuse(
    presented.flatMap((one, index): PresentedFailure[] => {
      const fault = faultOf(one, index)
      return fault ? [{ index, ...fault }] : []
    }),
  )
}

export type SignatureCheck = {
  /** Whether the payer has code. */
  hasCode: boolean
  /** The chain's state of the payer and its nonce; undefined if it wasn't read. */
  state: PayerState | undefined
  isUsed: boolean
}

/** Maximum number of key recoveries in a row before other requests get their turn. This many recoveries take about 2 ms. */
const togetherAtMost = 32

/**
 * Checks the signatures of authorizations: by the payer's contract (ERC-1271) if it has code, otherwise by recovering its key. The cheapest
 * checks come first: keys, the cache, the chain, contracts.
 *
 * @throws {BaseError} `invalid_signature`; `unauthorized` if a payer has code although payers must not; `payee_refused`;
 * `dependency_unavailable` if a payer's contract doesn't answer in time.
 */
export async function checkSignatures(
  authorizations: readonly SignedAuthorization[],
  { served, reads, payers }: { served: ServedNetwork; reads: ChainReads; payers: Payers },
  { asksNonces, asksPayees = false, mayHaveCode = true, admit = () => {}, ...options }: CheckOptions,
): Promise<SignatureCheck[]> {
  const refuseSignatures = (isBad: readonly boolean[], reasonFor: (signature: Hex) => string) =>
    refuseWhere(authorizations.slice(0, isBad.length), ({ signature }, index) => {
      if (!isBad[index]) return null
      const detail = `the signature is not the payer's: ${reasonFor(signature)}`
      return { code: 'invalid_signature', detail }
    })
  const isUnsigned: boolean[] = []
  for (let from = 0; from < authorizations.length; from += togetherAtMost) {
    if (from > 0) await nextTurn()
    const some = authorizations.slice(from, from + togetherAtMost)
    isUnsigned.push(...(await options.payerSignatures(served.domainSeparator, some)).map((signed) => !signed))
    if (!mayHaveCode) refuseSignatures(isUnsigned, withoutKey)
  }
  admit(isUnsigned.includes(true))
  // Reject an invalid signature of a payer without code before the chain is queried for balances and nonces.
  const isPlain = await Promise.all(
    authorizations.map(
      async ({ from }, index) => isUnsigned[index] === true && !(await payers.hasCode(from)),
    ),
  )
  const expected = (signature: Hex) =>
    faultOfForm(signature) ??
    `expected 65 bytes with a low s that recover to its \`from\` on ${served.network.name}`
  refuseSignatures(isPlain, expected)

  const states = asksNonces ? await readStates(reads, authorizations, asksPayees) : undefined
  const checks = await Promise.all(
    authorizations.map(async (one, index): Promise<SignatureCheck> => {
      const asked = states?.get(one)
      const known = asked?.state ?? (isUnsigned[index] ? undefined : await payers.allowance(one.from))
      return {
        hasCode: known?.hasCode ?? (await payers.hasCode(one.from)),
        state: asked?.state,
        isUsed: asked?.isUsed ?? false,
      }
    }),
  )
  const withCode = checks.findIndex(({ hasCode }) => hasCode)
  if (withCode < 0) {
    refuseSignatures(isUnsigned, expected)
    return checks
  }
  if (!mayHaveCode)
    throw new BaseError(
      'unauthorized',
      `${authorizations[withCode]?.from} is a contract wallet: send its payments with an API key`,
    )
  admit(true)
  const answers = await Promise.all(
    authorizations.map((one, index) =>
      checks[index]?.hasCode
        ? isSignedByContract(served, one, options.contractTimeoutMs)
        : !isUnsigned[index],
    ),
  )
  refuseSignatures(
    answers.map((yes) => !yes),
    () => 'its contract rejects the signature (ERC-1271)',
  )
  return checks
}

/**
 * Explains a rejected signature without looking up whether the payer has code: invalid signatures without an API key must not cost a call to the
 * chain.
 */
const withoutKey = (signature: Hex) =>
  `${faultOfForm(signature) ?? 'its own key did not sign it'}. If the payer is a contract, send it with an API key`

/** Reads the payers' accounts, the nonces, and whether payees can be paid, all at the same block. */
async function readStates(
  reads: ChainReads,
  authorizations: readonly SignedAuthorization[],
  asksPayees: boolean,
): Promise<Map<SignedAuthorization, { state: PayerState; isUsed: boolean }>> {
  const asked = [...Map.groupBy(authorizations, ({ from }) => from).values()].flatMap((own) =>
    own.flatMap((one, index) =>
      index % 2 === 0 ? [[one, ...own.slice(index + 1, index + 2)] as const] : [],
    ),
  )
  const payees = asksPayees ? [...new Set(authorizations.map(({ to }) => to))] : []
  const states = await reads.readTogether([
    ...asked.map(([one, second]): PayerOptions => {
      return { payer: one.from, nonces: second ? [one.nonce, second.nonce] : [one.nonce] }
    }),
    ...payees.map((payer) => ({ payer })),
  ])
  const blocked = new Set<Address>(payees.filter((_, index) => states[asked.length + index]?.isBlacklisted))
  refuseWhere(authorizations, ({ to }) =>
    blocked.has(to) ? { code: 'payee_refused', detail: `USDC has blacklisted ${to}` } : null,
  )
  return new Map(
    asked.flatMap((own, index) =>
      own.map((one, half) => {
        const state = states[index] as PayerState
        return [one, { state, isUsed: state.isUsed[half] === true }] as const
      }),
    ),
  )
}
