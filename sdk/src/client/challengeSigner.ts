import type { Address } from 'viem'
import type { Challenge } from '../protocol/challenge.ts'
import type { Network } from '../protocol/networks.ts'
import { ChallengeRefusedError } from './errors.ts'
import { hostOf, type Limits, type ProposedPayment, signWithin } from './limits.ts'
import type { OfferedChallenge } from './offers.ts'
import type { Signer } from './payer.ts'
import { priceOf, signPayment } from './payment.ts'
import type { SignedExactPayment, SignedTabPayment } from './signedPayment.ts'
import type { Tabs } from './tabs.ts'
import { type Deadline, waitFor } from './transport.ts'

type ChallengeSignerSettings = {
  payer: Signer
  network: Network
  usdc: Address | undefined
  limits: Limits
  tabs: Tabs | undefined
  /** Overrides what a challenge asks for. */
  signatures: 'one' | 'two' | undefined
  maxValiditySeconds: number | undefined
  log: (message: string) => void
}

/** Has checked challenges signed, within the limits. */
export function createChallengeSigner(settings: ChallengeSignerSettings) {
  const { payer, network, usdc, limits, tabs, log } = settings

  /** Signs a single payment. @param signatures default: as the options or the challenge say. */
  async function signAlone(
    url: string,
    challenge: Challenge,
    deadline: Deadline,
    signatures = settings.signatures ?? challenge.signatures ?? 'two',
  ): Promise<SignedExactPayment> {
    if (challenge.tab?.only) {
      const remedy = tabs ? ', and its offer pays someone else' : ': pass the option `tabs: true`'
      throw new ChallengeRefusedError(`its price is sold on tabs only${remedy}`)
    }
    return signProposed(url, proposedBy(challenge), deadline, () =>
      signPayment(challenge, {
        payer,
        network,
        usdc: usdc as Address,
        now: Date.now() / 1000,
        signal: deadline.signal,
        signatures,
        maxValiditySeconds: settings.maxValiditySeconds,
      }),
    )
  }

  /** Puts a challenge's price on a tab, by its offer. */
  async function signOnTab(
    url: string,
    { challenge, offer }: OfferedChallenge,
    deadline: Deadline,
  ): Promise<SignedTabPayment> {
    if (!tabs) throw new TypeError('A client without tabs has no offers')
    const { requestId, macaroon } = challenge
    return signProposed(url, proposedBy(challenge), deadline, async () => {
      const tab = await tabs.sign(offer, deadline.signal)
      return { requestId, network: network.name, macaroon, payloads: [], tab, amount: offer.price }
    })
  }

  /** Has signed what every limit allows. @param within default: the client's limits. */
  async function signProposed<Signed>(
    url: string,
    { amount, ...terms }: Proposed,
    deadline: Deadline,
    sign: () => Promise<Signed>,
    within = limits,
  ): Promise<Signed> {
    const proposed = { url, host: hostOf(url), amount, network: network.name, ...terms }
    const signed = await waitFor(signWithin(within, proposed, deadline, sign), deadline)
    log(`signed ${amount} base units for ${terms.requestId} as ${payer.address}`)
    return signed
  }

  return { signAlone, signOnTab, signProposed }
}

export type SignProposed = ReturnType<typeof createChallengeSigner>['signProposed']

type Proposed = Pick<ProposedPayment, 'amount' | 'payTo' | 'description' | 'requestId'>

function proposedBy(challenge: Challenge): Proposed {
  const [{ payTo, description }] = challenge.accepts
  return { amount: priceOf(challenge), payTo, description, requestId: challenge.requestId }
}
