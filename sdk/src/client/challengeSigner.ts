import type { Address } from 'viem'
import type { Challenge } from '../protocol/challenge.ts'
import type { Network } from '../protocol/networks.ts'
import { ChallengeRefusedError } from './errors.ts'
import { hostOf, type Limits, type ProposedPayment, signWithin } from './limits.ts'
import type { Asked, OfferedChallenge } from './offers.ts'
import type { Signer } from './payer.ts'
import { type PriceSplit, priceOf, signPayment } from './payment.ts'
import type { Attempt } from './presentation.ts'
import type { SignedExactPayment, SignedPayment, SignedTabPayment } from './signedPayment.ts'
import type { Tabs } from './tabs.ts'
import { type Answer, waitFor } from './transport.ts'

type ChallengeSignerSettings = {
  payer: Signer
  network: Network
  usdc: Address | undefined
  limits: Limits
  tabs: Tabs | undefined
  /** Overrides the split that a challenge requests. */
  split: PriceSplit | undefined
  maxValiditySeconds: number | undefined
  /** Saves a payment before it is sent anywhere. Undefined: payments are kept only in memory. */
  keep: ((asked: Asked, payment: SignedPayment) => Promise<void>) | undefined
  /** Deletes a payment that was never sent. @returns whether the deletion worked. */
  settle: (payment: SignedPayment) => Promise<boolean>
  log: (message: string) => void
}

/** The parts of a payment attempt that signing needs. */
export type Paying = Pick<Attempt<Answer>, 'asked' | 'deadline' | 'own'>

/** Creates the functions that sign payments for checked challenges. They refuse a payment that exceeds a limit. */
export function createChallengeSigner(settings: ChallengeSignerSettings) {
  const { payer, network, usdc, limits, tabs, keep, settle, log } = settings

  /** Signs a payment that isn't on a tab. @param split default: the client's option, otherwise the challenge's split. */
  async function signAlone(
    paying: Paying,
    challenge: Challenge,
    split = settings.split ?? (challenge.signatures === 'one' ? 'onchain' : 'separate'),
  ): Promise<SignedExactPayment> {
    requireSoldAlone(challenge, tabs !== undefined)
    return signProposed(paying, proposedBy(challenge), () =>
      signPayment(challenge, {
        payer,
        network,
        usdc: usdc as Address,
        now: Date.now() / 1000,
        signal: paying.deadline.signal,
        split,
        maxValiditySeconds: settings.maxValiditySeconds,
      }),
    )
  }

  /** Puts a challenge's price on a tab, using the tab offer in the challenge. */
  async function signOnTab(
    paying: Paying,
    { challenge, offer }: OfferedChallenge,
  ): Promise<SignedTabPayment> {
    if (!tabs) throw new TypeError('A client without tabs can’t use a tab offer')
    const { requestId, macaroon } = challenge
    return signProposed(paying, proposedBy(challenge), async () => {
      const tab = await tabs.sign(offer, paying.deadline.signal)
      return { requestId, network: network.name, macaroon, payloads: [], tab, amount: offer.price }
    })
  }

  /** Signs a payment if all limits allow it, and saves it. @param within default: the client's limits. */
  async function signProposed<Signed extends SignedPayment>(
    { asked, deadline, own }: Paying,
    { amount, ...terms }: Proposed,
    sign: () => Promise<Signed>,
    within = limits,
  ): Promise<Signed> {
    const url = asked.seller ?? asked.url
    const proposed = { url, host: hostOf(url), amount, network: network.name, ...terms }
    const { signed, release } = await waitFor(signWithin(within, proposed, deadline, sign, own), deadline)
    log(`signed ${amount} base units for ${terms.requestId} as ${payer.address}`)
    if (keep) await keepOrUndo(keep(asked, signed), { signed, deadline, release })
    return signed
  }

  /**
   * Waits until a signed payment is saved. If saving fails or takes too long, the payment is never sent and doesn't count as spent.
   */
  async function keepOrUndo(
    saving: Promise<void>,
    { signed, deadline, release }: Pick<Paying, 'deadline'> & Signed,
  ): Promise<void> {
    try {
      await waitFor(saving, deadline)
    } catch (error) {
      if (signed.tab) tabs?.finalize(signed.tab, { charged: 0n })
      // Wait for the save to end before deleting the payment, because a save that is still running could store the payment after its deletion. A
      // payment that can't be deleted may be presented later, so its amount still counts as spent.
      const undone = saving
        .catch(() => {})
        .then(() => settle(signed))
        .then((isSettled) => (isSettled ? release() : undefined))
      if (!deadline.signal.aborted) await undone
      throw error
    }
  }

  return { signAlone, signOnTab, signProposed }
}

type Signed = { signed: SignedPayment; release: () => Promise<void> }

export type ChallengeSigner = ReturnType<typeof createChallengeSigner>
export type SignProposed = ChallengeSigner['signProposed']

/** The terms of a challenge that the limits check. */
export type Proposed = Pick<ProposedPayment, 'amount' | 'payTo' | 'description' | 'requestId' | 'pass'>

/** Returns the terms of a challenge that the limits check. */
export function proposedBy(challenge: Challenge): Proposed {
  const [{ payTo, description }] = challenge.accepts
  const { requestId, pass } = challenge
  return { amount: priceOf(challenge), payTo, description, requestId, ...(pass && { pass }) }
}

/**
 * Rejects a challenge whose endpoint accepts only tabs.
 *
 * @param keepsTabs whether the client uses tabs.
 * @throws {ChallengeRefusedError}
 */
export function requireSoldAlone({ tab }: Challenge, keepsTabs: boolean): void {
  if (!tab?.only) return
  const remedy = keepsTabs
    ? ', and its tab offer pays a different recipient than the challenge'
    : ': pass the option `tabs: true`'
  throw new ChallengeRefusedError(`the endpoint accepts only tabs${remedy}`)
}
