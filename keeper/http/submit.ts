import { setTimeout as delay } from 'node:timers/promises'
import { type Address, type Hex, keccak256, toBytes } from 'viem'
import { z } from 'zod'
import type { Failure } from '#chain/failures'
import type { ServedNetwork } from '#chain/servedNetworks'
import { diagnose } from '#chain/simulate'
import { findKeyOwner, findRegisteredPayees } from '#ledger/apiKeys'
import type { Database } from '#ledger/database'
import { pairTransfers } from '#ledger/pairTransfers'
import { findPayments, insertSubmission, readSubmission, TransferInProgress } from '#ledger/submissions'
import type { RateLimiter } from '#process/rateLimiter'
import { BaseError, type ErrorCode } from '#protocol/errors'
import type { Network } from '#protocol/networks'
import { encodePayload, parsePayload, type SignedAuthorization } from '#protocol/payload'
import { splitPrice } from '#protocol/tier'
import type { Checkpoint } from '../loops/context.ts'

/** Two a payment, and no more payments than the largest batch has. */
const mostTransfers = 344

const transferObject = z.strictObject({
  from: z.string(),
  to: z.string(),
  value: z.string(),
  validAfter: z.string(),
  validBefore: z.string(),
  nonce: z.string(),
  signature: z.string(),
})
const bodySchema = z.strictObject({
  network: z.string(),
  transfers: z
    .array(z.union([z.string(), transferObject]))
    .min(1)
    .max(mostTransfers),
})

export type SubmitDependencies = {
  sql: Database
  networks: readonly ServedNetwork[]
  platformWallets: readonly Address[]
  rateLimiter: RateLimiter
  /** Submissions a minute that an address may make without an API key. */
  keylessLimit: number
  now: () => Date
  /** Milliseconds that a caller is kept waiting for its hash. */
  timeoutMs: number
  /** Tells the workers that there is something to do. */
  wake: () => void
  checkpoint: Checkpoint
}

export type SubmitCaller = { apiKey: string | null; address: string }

/**
 * Settles signed transfers at once (SPEC.md 4.2) and answers with the transaction that carries them.
 *
 * @param caller with a provider's API key; or without one: then every payee must be registered, each payment with its fee
 *   among the transfers, and an address has a limit, since the gas is ours.
 * @throws {BaseError} with the code that the answer is to carry; nothing was sent then.
 */
export async function submitTransfers(
  dependencies: SubmitDependencies,
  body: unknown,
  caller: SubmitCaller,
): Promise<{ txHash: Hex }> {
  const { sql, now, checkpoint } = dependencies
  const { served, transfers } = parseSubmission(dependencies, body)
  const { chainId } = served.network
  await authorize(dependencies, served.network, transfers, caller)

  const key = submissionKey(chainId, served.token, transfers)
  const earlier = await readSubmission(sql, key)
  if (earlier?.txHash && earlier.failureCode === null) return { txHash: earlier.txHash }
  if (!earlier || earlier.failureCode !== null) {
    checkWindows(transfers, now())
    await checkWithToken(served, transfers)
    await checkpoint('before-submission-recorded')
    await store(dependencies, served, key, transfers)
    await checkpoint('after-submission-recorded')
  }
  dependencies.wake()
  const answer = await waitForHash(dependencies, key)
  await checkpoint('before-submission-answer')
  return answer
}

function parseSubmission({ networks }: SubmitDependencies, body: unknown) {
  const parsed = bodySchema.safeParse(body)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    throw new BaseError('invalid_request', `${issue?.path.join('.') || 'body'}: ${issue?.message}`)
  }
  const served = networks.find((one) => one.network.name === parsed.data.network)
  if (!served) {
    const names = networks.map((one) => one.network.name).join(', ')
    throw new BaseError(
      'unknown_network',
      `Expected one of ${names}, got "${parsed.data.network.slice(0, 80)}"`,
    )
  }
  const transfers = parsed.data.transfers.map((transfer) =>
    parsePayload(
      typeof transfer === 'string'
        ? transfer
        : [
            transfer.from,
            transfer.to,
            transfer.value,
            transfer.validAfter,
            transfer.validBefore,
            transfer.nonce,
            transfer.signature,
          ].join(','),
    ),
  )
  if (new Set(transfers.map(nameOf)).size !== transfers.length) {
    throw new BaseError('nonce_reused', 'Two of the transfers have the same payer and nonce')
  }
  return { served, transfers }
}

async function authorize(
  { sql, platformWallets, rateLimiter, keylessLimit }: SubmitDependencies,
  network: Network,
  transfers: readonly SignedAuthorization[],
  { apiKey, address }: SubmitCaller,
): Promise<void> {
  if (apiKey !== null && (await findKeyOwner(sql, apiKey)) !== undefined) return
  const { isAllowed, limit, resetSeconds } = rateLimiter.count(`submit:${address}`, keylessLimit)
  if (!isAllowed) {
    const details = { retryAfter: resetSeconds }
    throw new BaseError('rate_limited', `At most ${limit} a minute without an API key`, { details })
  }
  if (apiKey !== null) throw new BaseError('unauthorized')
  const payees = [...new Set(transfers.map((transfer) => transfer.to))].filter(
    (to) => !platformWallets.includes(to),
  )
  const registered =
    payees.length > 0 ? await findRegisteredPayees(sql, network.chainId, payees) : new Set<string>()
  const unknown = payees.find((payee) => !registered.has(payee))
  if (unknown) {
    throw new BaseError('payee_refused', `${unknown} is not a registered wallet: an API key is needed`, {
      details: { payee: unknown },
    })
  }
  requireFees(network, platformWallets, transfers)
}

/** Each transfer to a provider comes with the same payer's fee for it, or we would settle for nothing. */
function requireFees(
  network: Network,
  platformWallets: readonly Address[],
  transfers: readonly SignedAuthorization[],
): void {
  const isFee = (transfer: SignedAuthorization) => platformWallets.includes(transfer.to)
  const byValue = (a: SignedAuthorization, b: SignedAuthorization) => (a.value < b.value ? -1 : 1)
  const fees = transfers.filter(isFee).toSorted(byValue)
  // The dearest payment takes its payer's largest fee: no other match could satisfy more of them.
  for (const provider of transfers
    .filter((transfer) => !isFee(transfer))
    .toSorted(byValue)
    .reverse()) {
    const position = fees.findLastIndex((fee) => fee.from === provider.from)
    const [fee] = position < 0 ? [] : fees.splice(position, 1)
    if (fee && isEnough(network, provider.value + fee.value, fee.value)) continue
    throw new BaseError(
      'payee_refused',
      'Without an API key each transfer to a provider needs the platform fee for it, of the same payer',
      { details: { transfer: transfers.indexOf(provider) } },
    )
  }
  // What is left is the fees of payments whose other half is settled already.
  const least = splitPrice(network.minimumPrice, 'flat').feeAmount
  const dust = fees.find((fee) => fee.value < least)
  if (dust) {
    throw new BaseError('payee_refused', `Without an API key a fee is at least ${least} base units`, {
      details: { transfer: transfers.indexOf(dust) },
    })
  }
}

/** By either fee schedule: which one the gateway goes by is its own business. */
function isEnough({ minimumPrice }: Network, price: bigint, fee: bigint): boolean {
  if (price < minimumPrice) return false
  return (['tiered', 'flat'] as const).some((schedule) => fee >= splitPrice(price, schedule).feeAmount)
}

function checkWindows(transfers: readonly SignedAuthorization[], now: Date): void {
  const seconds = BigInt(Math.floor(now.getTime() / 1000))
  for (const [index, { validAfter, validBefore }] of transfers.entries()) {
    const details = { transfer: index }
    if (validAfter >= seconds) throw new BaseError('authorization_not_yet_valid', undefined, { details })
    if (validBefore <= seconds) throw new BaseError('authorization_expired', undefined, { details })
  }
}

const codeOfFailure: Record<string, ErrorCode> = {
  authorization_used: 'authorization_used',
  authorization_expired: 'authorization_expired',
  authorization_not_yet_valid: 'authorization_not_yet_valid',
  insufficient_balance: 'insufficient_balance',
  invalid_signature: 'invalid_signature',
  token_paused: 'dependency_unavailable',
  payment_voided: 'payment_voided',
}

/** Asks the token itself about each: signature, window, nonce and balance, of plain payers and of contract wallets. */
async function checkWithToken(
  served: ServedNetwork,
  transfers: readonly SignedAuthorization[],
): Promise<void> {
  const from = served.deployment.batchSettlement
  const failures = await Promise.all(
    transfers.map((transfer) => diagnose(served.client, served.token, from, transfer)),
  )
  const transfer = failures.findIndex((failure) => failure !== null)
  const failure: Failure | null | undefined = failures[transfer]
  if (failure) {
    const code = codeOfFailure[failure.code] ?? 'settlement_failed'
    throw new BaseError(code, failure.detail || undefined, { details: { transfer } })
  }
}

async function store(
  { sql, platformWallets }: SubmitDependencies,
  served: ServedNetwork,
  key: Hex,
  transfers: readonly SignedAuthorization[],
): Promise<void> {
  const { chainId } = served.network
  const known = await findPayments(sql, { chainId, token: served.token }, transfers)
  for (const [index, transfer] of transfers.entries()) {
    const payment = known.get(nameOf(transfer))
    if (!payment) continue
    const details = { transfer: index, paymentId: payment.paymentId }
    if (payment.isVoided) throw new BaseError('payment_voided', undefined, { details })
    // The nonce is spoken for: what was accepted is what gets settled.
    if (payment.recipient !== transfer.to || payment.value !== transfer.value) {
      throw new BaseError('payment_replayed', undefined, { details })
    }
  }
  const feeOf = pairTransfers(transfers, (address) => platformWallets.some((wallet) => wallet === address))
  try {
    await sql.begin((tx) =>
      insertSubmission(tx, {
        key,
        chainId,
        token: served.token,
        transfers: transfers.map((authorization, index) => ({
          authorization,
          paymentId: known.get(nameOf(authorization))?.paymentId ?? null,
          feeOf: feeOf[index] ?? null,
        })),
      }),
    )
  } catch (error) {
    if (error instanceof TransferInProgress) {
      throw new BaseError('payment_replayed', 'A transfer is being settled already, in another company', {
        cause: error,
      })
    }
    throw error
  }
}

const pollMs = 50

async function waitForHash({ sql, now, timeoutMs }: SubmitDependencies, key: Hex): Promise<{ txHash: Hex }> {
  const until = now().getTime() + timeoutMs
  for (;;) {
    const state = await readSubmission(sql, key)
    if (state?.failureCode) {
      const code = {
        insufficient_gas_funds: 'insufficient_gas_funds',
        put_off: 'dependency_unavailable',
      } as const
      throw new BaseError(
        code[state.failureCode as keyof typeof code] ??
          codeOfFailure[state.failureCode] ??
          'settlement_failed',
      )
    }
    if (state?.txHash) return { txHash: state.txHash }
    if (now().getTime() >= until) {
      throw new BaseError('dependency_unavailable', 'Not sent yet: ask again with the same transfers')
    }
    await delay(pollMs)
  }
}

function nameOf(transfer: Pick<SignedAuthorization, 'from' | 'nonce'>): string {
  return `${transfer.from}:${transfer.nonce}`
}

/** The same authorizations are the same submission, in whatever order they come. */
function submissionKey(chainId: number, token: Address, transfers: readonly SignedAuthorization[]): Hex {
  const lines = transfers.map(encodePayload).sort()
  return keccak256(toBytes([chainId, token, ...lines].join('\n')))
}
