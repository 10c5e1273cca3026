import { createRemoteJWKSet, customFetch } from 'jose'
import type { Address } from 'viem'
import { mockAuthorizationHeader } from '../protocol/authorizationHeader.ts'
import { type Challenge, challengeMediaType } from '../protocol/challenge.ts'
import { parseUrl } from '../protocol/fields.ts'
import { type NetworkName, networkByName } from '../protocol/networks.ts'
import { createChallengeSigner } from './challengeSigner.ts'
import { checkChallenge, issuerOf } from './checkChallenge.ts'
import { ChallengeRefusedError, readProblem } from './errors.ts'
import { readChallengeOf } from './headerChallenge.ts'
import { type LimitOptions, readLimits, warnWithoutLimit } from './limits.ts'
import { type Asked, createOfferMemory, type OfferedChallenge, offerOf } from './offers.ts'
import type { OtherSellers } from './otherSellers.ts'
import { askGateway, isFree, type Paid } from './outcome.ts'
import { type Payer, type PayerWallet, signerOf } from './payer.ts'
import { type Attempt, createPresenter } from './presentation.ts'
import { createReceiptTaker, type PaidReceipt } from './receipts.ts'
import { createRepeats } from './repeats.ts'
import type { SellerReport, SignedPayment } from './signedPayment.ts'
import { createTabGateway } from './tabGateway.ts'
import { createTabs, type TabOptions } from './tabs.ts'
import type { Answer } from './transport.ts'

/** @throws {TypeError} for anything but an http(s) URL; `localhost:4020` would be a URL with the scheme `localhost:`. */
export function requireHttpUrl(name: string, value: string): void {
  if (/^https?:$/.test(parseUrl(value)?.protocol ?? '')) return
  throw new TypeError(`${name} must be an http(s) URL like https://gateway.example, got ${value}`)
}

/** How a buyer pays, and how much at most: options of `createClient` and `wrapFetch`. */
export type PaymentOptions = LimitOptions & {
  /** Public URL of the gateway whose challenges are paid. */
  gatewayUrl: string
  /** Key of the paying wallet, 0x and 64 hex digits. Never logged, never sent. */
  walletPrivateKey?: string | undefined
  /** Instead of a key: a viem account, a wallet client with an account, or another signer of typed data. */
  account?: Payer | PayerWallet
  /** Network to pay on. Challenges for another one are refused. */
  network: NetworkName
  /** Verbose log of the payment flow through `console.debug`. Default false. */
  debug?: boolean
  /** USDC's address, if the network's table has none (`localhost`) or a test chain plays a network. */
  usdcAddress?: Address
  /**
   * `one`: a payment is one authorization of the whole price, to the splitter of the provider's part and the platform's.
   * `two`: each part has its own. Default: as the provider's middleware asks, else `two`.
   */
  signatures?: 'one' | 'two'
  /**
   * For how long the signatures of a single payment are valid at most, from 270 seconds on. A payment that is still queued then fails,
   * so less than an hour suits only gateways that settle sooner. Default: what the gateway asks for, at most 93,600 (26 hours).
   */
  maxValiditySeconds?: number
  /**
   * Whether requests are put on a tab if the gateway offers one, with one signature each and nothing to settle before it closes:
   * docs/tabs.md. `false`: each is a payment of its own, signed as two transfers. Default: false for `createClient`, as the
   * specification of that function says (conformance 4.6-15); true for `wrapFetch`.
   */
  tabs?: boolean | TabOptions
  /**
   * Also pays sellers that aren't Tollkeeper's: `payOtherSellers()` of `@tollkeeper/sdk/other-sellers`. Default: only sellers of
   * `gatewayUrl` are paid.
   */
  otherSellers?: OtherSellers
  /** Answer challenges with `x402 mock:mock` and sign nothing. For providers in mock mode only. Default false. */
  mockPayments?: boolean
  /**
   * Called with the receipt of each payment, as it came, before the answer is returned, to keep it for an audit
   * (`openReceiptFile` of `@tollkeeper/sdk/files`). Its error becomes the answer's `receiptError`, because the answer was
   * paid for and must not get lost.
   */
  onReceipt?: (paid: PaidReceipt) => void | Promise<void>
}

/** The part of a request on a tab that a 402 refuses, so that another may do: this tab, the offer, or tabs at all. */
type RefusedPart = 'tab' | 'offer' | 'tabs'

/** A gateway refuses signatures that are valid for less. */
const leastValiditySeconds = 270

/** Refusals of a remembered offer's terms: another challenge may do. */
const offerRefusals: ReadonlySet<unknown> = new Set([
  'macaroon_invalid',
  'macaroon_expired',
  'caveat_mismatch',
  'unknown_caveat',
  'challenge_price_too_low',
  'challenge_network_mismatch',
])

/**
 * The steps after a 402, the same for every kind of client: check, sign within the limits, present, keep the receipt.
 *
 * @throws {TypeError} for a key, account, URL, host or missing `usdcAddress` that can't work.
 * @throws {ProtocolError} `unknown_network`; `invalid_field` for a limit that isn't a USDC amount.
 */
export function createPaymentFlow(options: PaymentOptions, fetch: typeof globalThis.fetch) {
  const { gatewayUrl, mockPayments = false } = options
  requireHttpUrl('gatewayUrl', gatewayUrl)
  const network = networkByName(options.network)
  const usdc = (options.usdcAddress ?? network.usdc)?.toLowerCase() as Address | undefined
  const payer = signerOf(options)
  const limits = readLimits(options)
  const log = options.debug ? (message: string) => console.debug(`[tollkeeper] ${message}`) : () => {}
  if (!usdc && !mockPayments) throw new TypeError(`usdcAddress must be given for the network ${network.name}`)
  if (!mockPayments) warnWithoutLimit(options)

  const receiptKeys = keysOf(gatewayUrl, fetch)
  const offers = createOfferMemory()
  const { tabs: tabOptions = true } = options
  const tabs =
    tabOptions === false || mockPayments
      ? undefined
      : createTabs({
          ...(tabOptions === true ? {} : tabOptions),
          payer,
          log,
          gateway: createTabGateway(fetch, gatewayUrl),
        })
  const { signatures, maxValiditySeconds } = options
  if (maxValiditySeconds !== undefined && !(maxValiditySeconds >= leastValiditySeconds))
    throw new TypeError(
      `maxValiditySeconds must be ${leastValiditySeconds} or more, got ${maxValiditySeconds}`,
    )
  const signing = { payer, network, usdc, limits, tabs, signatures, maxValiditySeconds, log }
  const signer = createChallengeSigner(signing)
  const sellers = usdc && options.otherSellers?.open({ ...signing, ...signer, gatewayUrl, usdc })
  const ask = (payment: SignedPayment, signal: AbortSignal) => askGateway(fetch, gatewayUrl, payment, signal)
  const repeats = createRepeats({ present: createPresenter({ tabs, log }), ask, log })
  const { presentFor } = repeats
  const takeReceipt = createReceiptTaker({ receiptKeys, onReceipt: (paid) => options.onReceipt?.(paid), log })

  /** Reads and checks a 402, and remembers the offer in it. */
  function accept(asked: Asked, answer: Answer): { challenge: Challenge; offered?: OfferedChallenge } {
    if (!usdc) throw new TypeError('Only a client in mock mode can do without a USDC address')
    const challenge = readChallenge(answer, gatewayUrl)
    checkChallenge(challenge, { url: asked.url, answeredBy: answer.url, gatewayUrl, network, usdc })
    const now = Date.now() / 1000
    const offer = tabs && !offers.isRefusing(asked, challenge, now) && offerOf(challenge, { network, usdc })
    if (!offer) return { challenge }
    const offered = { challenge, offer }
    offers.remember(asked, offered, now)
    return { challenge, offered }
  }

  /** Pays what a 402 asks for. */
  async function pay<A extends Answer>(attempt: Attempt<A>, answer: Answer): Promise<Paid<A>> {
    log('402: payment required')
    if (mockPayments) {
      log('presenting mock credentials')
      const header = { name: 'authorization', value: mockAuthorizationHeader } as const
      return { answer: await attempt.send(header, attempt.deadline), payment: undefined }
    }
    const signed = await sellers?.sign(attempt, answer)
    if (signed) return presentFor(attempt, signed)
    const { challenge, offered } = accept(attempt.asked, answer)
    return offered ? payByTab(attempt, offered) : payExact(attempt, challenge)
  }

  /**
   * Pays without a 402: by an earlier attempt's payment whose outcome isn't known, or by an earlier offer that still holds.
   *
   * @returns undefined if there is neither.
   */
  async function payRemembered<A extends Answer>(attempt: Attempt<A>): Promise<Paid<A> | undefined> {
    const before = await repeats.presentOpen(attempt)
    if (before && !isFree(before)) return before
    const offered = tabs && offers.find(attempt.asked, Date.now() / 1000)
    return offered && payByTab(attempt, offered)
  }

  async function payExact<A extends Answer>(attempt: Attempt<A>, challenge: Challenge): Promise<Paid<A>> {
    const { asked, deadline, hasAuthorization } = attempt
    // `Authorization` carries two payments, and is taken. x402's own header carries one.
    const signatures = hasAuthorization ? 'one' : undefined
    const payment = await signer.signAlone(asked.seller ?? asked.url, challenge, deadline, signatures)
    return presentFor(attempt, payment)
  }

  /**
   * Puts a request on a tab. If the gateway refuses the tab, it opens another one and repeats the request once, or has the same tab
   * cover what was charged first. If the gateway refuses the remembered offer, it pays what the refusal asks for; if it takes nothing
   * more on tabs, the payment is a single one. Nothing is signed anew before the gateway says that the request isn't on the tab.
   */
  async function payByTab<A extends Answer>(attempt: Attempt<A>, first: OfferedChallenge): Promise<Paid<A>> {
    const { asked, deadline } = attempt
    let offered = first
    for (const repeated = new Set<RefusedPart>(); ; ) {
      const payment = await signer.signOnTab(asked.seller ?? asked.url, offered, deadline)
      let paid = await presentFor(attempt, payment)
      const { answer } = paid
      if (answer.status !== 402) return paid
      offers.forget(asked)
      const { code } = readProblem(402, answer.body)
      const refused = refusedPart(code)
      if (!refused || repeated.has(refused) || !isFree(paid)) return paid
      const revised = refused === 'tab' && (await tabs?.revise(payment.tab, payment.amount))
      if (refused === 'tab') {
        if (!revised) return paid
        // From here on, its earlier state can't be put on the tab any more.
        paid = await repeats.askAgain(asked, { answer, payment }, deadline)
        if (!isFree(paid)) return paid
      }
      log(`refused: ${code ?? 'another 402'}`)
      const asksAgain = accept(asked, answer)
      if (refused === 'tabs' || !asksAgain.offered) {
        // The gateway's own refusals have a code, and end sooner.
        if (code === undefined) offers.refuse(asked, Date.now() / 1000)
        if (asksAgain.challenge.tab?.only) return paid
        return payExact(attempt, asksAgain.challenge)
      }
      if (revised !== 'covers') repeated.add(refused)
      offered = asksAgain.offered
    }
  }

  return {
    address: payer.address,
    mockPayments,
    log,
    receiptKeys,
    /** Whether a 402 asks for a payment. Any other 402 is the caller's. */
    isDemand: (answer: Answer) => mockPayments || !!issuerOf(answer, gatewayUrl) || sellers?.isDemand(answer),
    pay,
    payRemembered,
    presentGiven: repeats.presentGiven,
    takeReceipt,
    /** Remembers a payment whose answer broke off while it was read. */
    remember: repeats.remember,
    /** What a seller that isn't Tollkeeper's reports on its payment. */
    readReport: (paid: Paid<Answer>): SellerReport | undefined => sellers?.readReport(paid),
    tabs: async () => (await tabs?.list()) ?? [],
    close: async () => tabs?.close(),
  }
}

/** A gateway's keys, which are fetched once, and again for an unknown key id. */
function keysOf(gatewayUrl: string, fetch: typeof globalThis.fetch) {
  const url = new URL(`${gatewayUrl.replace(/\/+$/, '')}/.well-known/jwks.json`)
  return createRemoteJWKSet(url, { [customFetch]: fetch })
}

function refusedPart(code: string | undefined): RefusedPart | undefined {
  // A seller without a code knows nothing of tabs.
  if (code === undefined || code === 'tabs_off' || code === 'tab_limit_exceeded') return 'tabs'
  if (code === 'unknown_tab' || code.startsWith('tab_')) return 'tab'
  return offerRefusals.has(code) ? 'offer' : undefined
}

/** Asks for our own body of a 402 besides the media types that the caller accepts. */
export function acceptChallenge(headers: Headers): void {
  headers.set('accept', `${headers.get('accept') ?? '*/*'}, ${challengeMediaType}`)
}

/**
 * A challenge without an issuer gets nonces of this client's own gateway, so leaving the field out gains nothing:
 * the challenge is still charged once, and another gateway's nonces would be different ones.
 */
function readChallenge(answer: Answer, gatewayUrl: string) {
  try {
    return readChallengeOf(answer, gatewayUrl)
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'the challenge can not be read'
    throw new ChallengeRefusedError(reason, { cause: error, body: answer.body })
  }
}
