import type { Challenge } from '../protocol/challenge.ts'
import type { ChallengeSigner } from './challengeSigner.ts'
import { readProblem } from './errors.ts'
import type { Asked, OfferedChallenge, OfferMemory } from './offers.ts'
import { isFree, type Paid } from './outcome.ts'
import type { Attempt } from './presentation.ts'
import type { Repeats } from './repeats.ts'
import type { Tabs } from './tabs.ts'
import type { Answer } from './transport.ts'

/** The part of a payment that a 402 rejects: this tab, the remembered tab offer, or tabs in general. */
type RefusedPart = 'tab' | 'offer' | 'tabs'

/** Error codes that reject the terms of a remembered offer. The terms of a new challenge may work. */
const offerRefusals: ReadonlySet<unknown> = new Set([
  'macaroon_invalid',
  'macaroon_expired',
  'caveat_mismatch',
  'unknown_caveat',
  'challenge_price_too_low',
  'challenge_network_mismatch',
])

type TabPayerContext = {
  tabs: Tabs | undefined
  offers: OfferMemory
  repeats: Pick<Repeats, 'presentFor' | 'askAgain'>
  signer: Pick<ChallengeSigner, 'signOnTab'>
  /** Reads and checks a 402, and remembers the tab offer in it. */
  accept: (asked: Asked, answer: Answer) => Promise<{ challenge: Challenge; offered?: OfferedChallenge }>
  /** Pays with a single payment. */
  payExact: <A extends Answer>(attempt: Attempt<A>, challenge: Challenge) => Promise<Paid<A>>
  log: (message: string) => void
}

/** Creates a function that pays for requests on tabs. */
export function createTabPayer({ tabs, offers, repeats, signer, accept, payExact, log }: TabPayerContext) {
  /**
   * Puts a request on a tab. If the response is a 402 that rejects
   *
   * - the tab: repeats the request once on another tab. If the only reason was that the tab didn't cover what the gateway had charged, repeats the
   *   request on the same tab, which now covers it.
   * - the remembered offer: pays what the challenge in the 402 requests.
   * - tabs in general: makes a single payment.
   *
   * The gateway must confirm that it doesn't charge the rejected request before this function signs anything else.
   */
  async function payByTab<A extends Answer>(attempt: Attempt<A>, first: OfferedChallenge): Promise<Paid<A>> {
    const { asked, deadline } = attempt
    let offered = first
    for (const repeated = new Set<RefusedPart>(); ; ) {
      const payment = await signer.signOnTab(attempt, offered)
      let paid = await repeats.presentFor(attempt, payment)
      const { answer } = paid
      if (answer.status !== 402) return paid
      offers.forget(asked)
      const { code } = readProblem(402, answer.body)
      const refused = refusedPart(code)
      if (!refused || repeated.has(refused) || !isFree(paid)) return paid
      const revised = refused === 'tab' && (await tabs?.revise(payment.tab, payment.amount))
      if (refused === 'tab') {
        if (!revised) return paid
        // After `revise`, the gateway can no longer accept the rejected state. Ask whether it had accepted that state before.
        paid = await repeats.askAgain(asked, { answer, payment }, deadline)
        if (!isFree(paid)) return paid
      }
      log(`refused: ${code ?? 'another 402'}`)
      const asksAgain = await accept(asked, answer)
      if (refused === 'tabs' || !asksAgain.offered) {
        // Without a code, the seller itself rejected tabs, so remember that. A gateway's rejection has a code and may be temporary.
        if (code === undefined) offers.refuse(asked, Date.now() / 1000)
        if (asksAgain.challenge.tab?.only) return paid
        return payExact(attempt, asksAgain.challenge)
      }
      if (revised !== 'covers') repeated.add(refused)
      offered = asksAgain.offered
    }
  }

  return payByTab
}

function refusedPart(code: string | undefined): RefusedPart | undefined {
  // A seller that returns no code doesn't support tabs.
  if (code === undefined || code === 'tabs_off' || code === 'tab_limit_exceeded') return 'tabs'
  if (code === 'unknown_tab' || code.startsWith('tab_')) return 'tab'
  return offerRefusals.has(code) ? 'offer' : undefined
}
