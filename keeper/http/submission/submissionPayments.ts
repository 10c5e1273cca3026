import { hash } from 'node:crypto'
import type { Entry } from '@tollkeeper/chain/gasShares'
import type { Candidate } from '@tollkeeper/ledger/acceptance/acceptPayments'
import { type Checked, toCandidate } from '@tollkeeper/ledger/acceptance/door'
import { pairTransfers } from '@tollkeeper/ledger/acceptance/pairTransfers'
import type { PresentedAgain } from '@tollkeeper/ledger/acceptance/submissions'
import { encodePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { effectiveRate, minimumPrice, splitPrice } from '@tollkeeper/sdk/protocol/tier'
import type { Address } from 'viem'
import { idsOf, partnerOf, type StoredTransfers } from './storedTransfers.ts'

// Converts a submission's transfers to payments.

/** For each transfer that is a fee, the position of the transfer that the fee belongs to; null for each other transfer. */
export type FeeOf = readonly (number | null)[]

/** Finds the fees among the transfers. A new transfer and its new fee become one payment. Stored transfers stay in their payments. */
export function pairFees(
  transfers: readonly SignedAuthorization[],
  stored: StoredTransfers,
  platformWallets: readonly string[],
): FeeOf {
  const paired = pairTransfers(transfers, (address) => platformWallets.includes(address))
  return paired.map((of, index) => {
    const payment = stored[index]
    if (payment !== undefined) return payment.half === 1 ? partnerOf(stored, index) : null
    return of !== null && stored[of] === undefined ? of : null
  })
}

/** Returns the entries of a submission's transaction. A transfer and its fee are one entry. */
export function toEntries(
  transfers: readonly (SignedAuthorization & { hasCode?: boolean })[],
  feeOf: FeeOf,
): Entry[] {
  return transfers.flatMap(({ to: recipient, hasCode = false }, index) =>
    feeOf[index] === null ? [{ isPair: feeOf.includes(index), recipient, hasCode }] : [],
  )
}

/** The terms that all payments of a submission share. */
export type SharedTerms = { chainId: number; token: Address; platformWallet: Address; now: Date }

/** Returns a submission's new transfers as payments. */
export function toCandidates(
  presented: readonly Checked[],
  { stored, feeOf }: { stored: StoredTransfers; feeOf: FeeOf },
  { chainId, token, platformWallet, now }: SharedTerms,
): Candidate[] {
  const acceptedAt = now.getTime()
  return presented.flatMap((provider, index): Candidate[] => {
    if (stored[index] !== undefined || feeOf[index] !== null) return []
    const fee = presented[feeOf.indexOf(index)]
    const feeAmount = fee?.value ?? 0n
    const price = provider.value + feeAmount
    const both = fee ? ([provider, fee] as const) : ([provider] as const)
    const terms = {
      source: 'submission' as const,
      requestId: null,
      providerId: null,
      endpointId: null,
      first: { stage: 'waiting' as const },
      chainId,
      token,
      payee: provider.to,
      feeRecipient: fee?.to ?? platformWallet,
      splitter: null,
      providerAmount: provider.value,
      feeAmount,
      price,
      tier: price < minimumPrice ? 'ultra-micro' : splitPrice(price).tier,
      effectiveRate: effectiveRate(price, feeAmount),
      resource: '',
      idempotencyKey: null,
      challengedAt: acceptedAt,
      acceptedAt,
      requestHash: hash('sha256', both.map(encodePayload).join('\n')),
    }
    return [toCandidate(terms, both)]
  })
}

/** Returns the stored payments of a submission, with the signatures that have just been checked. */
export function toPresentedAgain(presented: readonly Checked[], stored: StoredTransfers): PresentedAgain[] {
  return idsOf(stored).map((paymentId) => {
    const [provider, fee] = ([0, 1] as const).map((half) =>
      stored.findIndex((one) => one?.paymentId === paymentId && one.half === half),
    ) as [number, number]
    const first = provider < 0 ? fee : provider
    return {
      paymentId,
      isFailed: stored[first]?.ended === 'failed',
      payerHasCode: presented[first]?.hasCode === true,
      signatures: [presented[provider]?.signature ?? null, presented[fee]?.signature ?? null],
    }
  })
}
