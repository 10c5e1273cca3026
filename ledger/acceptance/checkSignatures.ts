import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Address } from 'viem'
import type { ChainReads, PayerQuestion, PayerState } from '#chain/chainReads'
import { isSignedByContract } from '#chain/contractSignature'
import type { PayerSignatures } from '#chain/payerSignatures'
import type { ServedNetwork } from '#chain/servedNetworks'
import { BaseError, type ErrorCode } from '#protocol/errors'
import type { SignedAuthorization } from '#protocol/payload'
import type { Payers } from './payers.ts'

export type SignatureCheckOptions = {
  payerSignatures: PayerSignatures
  /** How long a contract wallet may take to answer. */
  contractTimeoutMs: number
}

/** What is asked, and of whom it is taken. */
export type CheckOptions = SignatureCheckOptions & {
  /** Whether to look up the nonces as well, in the call that reads the payers' accounts. */
  asksNonces: boolean
  /** Whether that call also asks if USDC has blacklisted who is paid. */
  asksPayees?: boolean
  /** Whether payers may have code. If not, what their own keys did not sign costs no call to the chain. Default: they may. */
  mayHaveCode?: boolean
  /** Called before the chain is asked, and with `true` before payers' contracts are; throws where that is too much to ask. */
  admit?: (hasCode: boolean) => void
}

/** Why an authorization is refused; `index`: its position among those that were presented. */
export type PresentedFailure = { index: number; code: ErrorCode; detail: string }

/** Authorizations that are refused for the same reason, all of them. */
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

/** @throws {PresentedRefused} if there is one. */
export function refuse(
  [first, ...others]: readonly PresentedFailure[],
  details?: Record<string, unknown>,
): void {
  if (first) throw new PresentedRefused([first, ...others], details)
}

/** Refuses those that have a fault. @throws {PresentedRefused} if there is one. */
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
  /** What the chain says of the payer, and whether the nonce is used; undefined where that was not asked for. */
  state: PayerState | undefined
  isUsed: boolean
}

/** Recoveries in a row before other requests get their turn: 2 ms. */
const togetherAtMost = 32

/**
 * Holds the signatures of authorizations against their payers: by its contract (ERC-1271) where a payer has code, else by
 * recovery of its key. The cheapest questions first: keys, what is remembered, the chain, contracts.
 *
 * @throws {BaseError} `invalid_signature`; `unauthorized` for payers with code that may have none; `payee_refused`;
 *   `dependency_unavailable` where a payer's contract does not answer in time.
 */
export async function checkSignatures(
  authorizations: readonly SignedAuthorization[],
  { served, reads, payers }: { served: ServedNetwork; reads: ChainReads; payers: Payers },
  { asksNonces, asksPayees = false, mayHaveCode = true, admit = () => {}, ...options }: CheckOptions,
): Promise<SignatureCheck[]> {
  const refuseSignatures = (isBad: readonly boolean[], reason: string) =>
    refuseWhere(isBad, (bad) =>
      bad ? { code: 'invalid_signature', detail: `the signature is not the payer's: ${reason}` } : null,
    )
  const isUnsigned: boolean[] = []
  for (let from = 0; from < authorizations.length; from += togetherAtMost) {
    if (from > 0) await nextTurn()
    const some = authorizations.slice(from, from + togetherAtMost)
    isUnsigned.push(...(await options.payerSignatures(served.domainSeparator, some)).map((signed) => !signed))
    if (!mayHaveCode) refuseSignatures(isUnsigned, withoutKey)
  }
  admit(isUnsigned.includes(true))
  // Balance and nonces are asked for only where the payer itself wants something.
  const isPlain = await Promise.all(
    authorizations.map(
      async ({ from }, index) => isUnsigned[index] === true && !(await payers.hasCode(from)),
    ),
  )
  const expected = `expected 65 bytes with a low s that recover to its \`from\` on ${served.network.name}`
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
      `${authorizations[withCode]?.from} has code: it can pay with an API key only`,
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
    'its contract says no (ERC-1271)',
  )
  return checks
}

/** Whether its payer has code isn't looked up: junk without a key is to cost no call to the chain. */
const withoutKey = 'its own key did not sign it. If the payer is a contract, send it with an API key'

/** All of one block: the payers' accounts, the nonces, and whether who is paid can be. */
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
    ...asked.map(([one, second]): PayerQuestion => {
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
