import { createRemoteJWKSet, customFetch } from 'jose'
import type { Address } from 'viem'
import { mockAuthorizationHeader } from '../protocol/authorizationHeader.ts'
import { type Challenge, challengeMediaType } from '../protocol/challenge.ts'
import { parseUrl } from '../protocol/fields.ts'
import { type Network, type NetworkName, networkByName } from '../protocol/networks.ts'
import { createChallengeSigner } from './challengeSigner.ts'
import { canonicalUrl, checkChallenge, issuerOf } from './checkChallenge.ts'
import { ChallengeRefusedError } from './errors.ts'
import { readChallengeOf } from './headerChallenge.ts'
import { type LimitOptions, type OwnLimit, readLimits, warnWithoutLimit } from './limits.ts'
import { type Asked, createOfferMemory, type OfferedChallenge, offerOf } from './offers.ts'
import type { OtherSellersOptions, SellerContext, SellerSigner } from './otherSellers.ts'
import { askGateway, isFree, type Paid } from './outcome.ts'
import { createPassLoader } from './passLoader.ts'
import type { PassStore } from './passStore.ts'
import { type Payer, type PayerWallet, signerOf } from './payer.ts'
import type { PriceSplit } from './payment.ts'
import type { PaymentStore } from './paymentStore.ts'
import { type Attempt, createPresenter } from './presentation.ts'
import type { Quote } from './quote.ts'
import { createReceiptTaker, type PaidReceipt } from './receipts.ts'
import { createRepeats, requireOwnLimit } from './repeats.ts'
import type { SellerReport, SignedPayment } from './signedPayment.ts'
import type { SpendingStore } from './spending.ts'
import { createTabGateway } from './tabGateway.ts'
import { createTabPayer } from './tabPayer.ts'
import type { TabStore } from './tabStore.ts'
import { createTabs } from './tabs.ts'
import type { Answer } from './transport.ts'

/** @throws {TypeError} for anything except an http(s) URL. `localhost:4020` would be parsed as a URL with the scheme `localhost:`. */
export function requireHttpUrl(name: string, value: string): void {
  if (/^https?:$/.test(parseUrl(value)?.protocol ?? '')) return
  throw new TypeError(`${name} must be an http(s) URL like https://gateway.example, got ${value}`)
}

/** Stores of a client's state. Without a store, the client keeps that state in memory. */
export type ClientStores = {
  /** Counts the daily sums. Several clients may share this store. Pass `createSpendingMemory()` or your own store. */
  spending?: SpendingStore
  /** Keeps open tabs. Only one client at a time may use it. */
  tabs?: TabStore
  /** Keeps signed payments until their response is complete. Only one client at a time may use it. */
  payments?: PaymentStore
  /** Keeps passes while they are valid. Only one client at a time may use it. */
  passes?: PassStore
}

/** Options of `createClient` and `wrapFetch` that determine how a buyer pays, and up to which amount. */
export type PaymentOptions = LimitOptions & {
  /** Public URL of the gateway whose challenges this client pays. */
  gatewayUrl: string
  /** Key of the paying wallet, 0x and 64 hex digits. The client never logs or sends it. */
  walletPrivateKey?: string | undefined
  /** Replaces the key: a viem account, a wallet client with an account, or another signer of typed data. */
  account?: Payer | PayerWallet
  /** Network to pay on: a name, or the result of `defineNetwork`. Challenges for another network are refused. */
  network: NetworkName | Network
  /** Logs the payment flow in detail through `console.debug`. Default false. */
  debug?: boolean
  /** USDC's address. Needed if the network's table has none (`localhost`), or if a test chain simulates a network. */
  usdcAddress?: Address
  /**
   * `onchain`: a payment is one authorization for the whole price, paid to the splitter of the provider's part and the platform's part. `separate`:
   * each part has a separate authorization. Default: the split that the provider's middleware requests, otherwise `separate`. A request with its own
   * `Authorization` header is always paid with one authorization.
   */
  split?: PriceSplit
  /**
   * Maximum validity in seconds of a single payment's signatures, at least 270. A payment that is still queued when its signatures expire fails, so
   * use less than an hour only if the gateway settles sooner. Default: the validity that the gateway requests, at most 93,600 (26 hours).
   */
  maxValiditySeconds?: number
  /**
   * Whether to put requests on a tab if the gateway offers one (docs/tabs.md). Each request on a tab needs one signature, and nothing settles before
   * the tab closes. `false`: each request is a separate payment. Default: false for `createClient`, as the specification requires (conformance
   * 4.6-15); true for `wrapFetch`.
   */
  tabs?: boolean
  /**
   * Whether to also pay sellers that don't use Tollkeeper, by x402's scheme `exact` and, over MCP, MPP's `charge`. Default false, because no gateway
   * knows the outcome of such a payment. Also, with this option, a wrong `gatewayUrl` causes no error: the client then pays Tollkeeper's sellers like
   * other sellers.
   */
  otherSellers?: boolean | OtherSellersOptions
  /** Stores that keep a client's state beyond the end of its process, for example `createFileStores` of `@tollkeeper/sdk/files`. */
  stores?: ClientStores
  /** Responds to challenges with `x402 mock:mock` and signs nothing. Use it only with providers in mock mode. Default false. */
  mockPayments?: boolean
  /**
   * Called with the unchanged receipt of each payment before the response is returned, so that you can keep the receipt for an audit
   * (`openReceiptFile` of `@tollkeeper/sdk/files`). If it throws, the error becomes the response's `receiptError`: the response was paid for and must
   * not be lost.
   */
  onReceipt?: (paid: PaidReceipt) => void | Promise<void>
}

/** Minimum validity in seconds. A gateway rejects signatures with a shorter validity. */
const leastValiditySeconds = 270

/**
 * Creates the functions that every kind of client calls after a 402. They check the challenge, sign a payment within the limits, present the payment,
 * and keep the receipt.
 *
 * @throws {TypeError} for an invalid key, account, URL or host, or a missing `usdcAddress`.
 * @throws {ProtocolError} `unknown_network`; `invalid_field` for a limit that isn't a USDC amount.
 */
export function createPaymentFlow(options: PaymentOptions, fetch: typeof globalThis.fetch) {
  const { gatewayUrl, mockPayments = false } = options
  requireHttpUrl('gatewayUrl', gatewayUrl)
  const network = networkByName(options.network)
  const usdc = (options.usdcAddress ?? network.usdc)?.toLowerCase() as Address | undefined
  const payer = signerOf(options)
  const { stores = {} } = options
  const limits = readLimits(options, stores.spending)
  const log = options.debug ? (message: string) => console.debug(`[tollkeeper] ${message}`) : () => {}
  if (!usdc && !mockPayments) throw new TypeError(`The network ${network.name} needs the option usdcAddress`)
  if (!mockPayments) warnWithoutLimit(options)

  const receiptKeys = keysOf(gatewayUrl, fetch)
  const offers = createOfferMemory()
  const tabs =
    options.tabs === false || mockPayments
      ? undefined
      : createTabs({
          ...(stores.tabs && { store: stores.tabs }),
          payer,
          log,
          gateway: createTabGateway(fetch, gatewayUrl),
        })
  const scope = { payer: payer.address, network: network.name, gatewayUrl: canonicalUrl(gatewayUrl) }
  const passes = createPassLoader({ payer, log, scope, store: stores.passes })
  const { split, maxValiditySeconds } = options
  requireValidity(maxValiditySeconds, leastValiditySeconds)
  const repeats = createRepeats({
    present: createPresenter({ tabs, passes, log }),
    ask: (payment, signal) => askGateway(fetch, gatewayUrl, payment, signal),
    scope,
    store: mockPayments ? undefined : stores.payments,
    log,
  })
  const { keep, presentFor, settle } = repeats
  const signing = { payer, network, usdc, limits, tabs, split, maxValiditySeconds, keep, settle, log }
  const signer = createChallengeSigner(signing)
  const sellers = usdc && openOtherSellers(options.otherSellers, { ...signing, ...signer, gatewayUrl, usdc })
  const payByTab = createTabPayer({ tabs, offers, repeats, signer, accept, payExact, log })
  const takeReceipt = createReceiptTaker({ receiptKeys, onReceipt: (paid) => options.onReceipt?.(paid), log })

  /** Returns whether a 402 asks for a payment. The client returns any other 402 to its caller. */
  async function isDemand(answer: Answer): Promise<boolean> {
    if (mockPayments || (await issuerOf(answer, gatewayUrl))) return true
    return (await sellers?.())?.isDemand(answer) ?? false
  }

  /** Reads and checks a 402, and remembers the tab offer in it. */
  async function accept(
    asked: Asked,
    answer: Answer,
  ): Promise<{ challenge: Challenge; offered?: OfferedChallenge }> {
    if (!usdc) throw new TypeError('A client without usdcAddress works only in mock mode')
    const challenge = await readChallenge(answer, gatewayUrl)
    checkChallenge(challenge, { url: asked.url, answeredBy: answer.url, gatewayUrl, network, usdc })
    const now = Date.now() / 1000
    const offer = tabs && !offers.isRefusing(asked, challenge, now) && offerOf(challenge, { network, usdc })
    if (!offer) return { challenge }
    const offered = { challenge, offer }
    offers.remember(asked, offered, now)
    return { challenge, offered }
  }

  /** Pays what a 402 requests. */
  async function pay<A extends Answer>(attempt: Attempt<A>, answer: Answer): Promise<Paid<A>> {
    log('402: payment required')
    if (mockPayments) {
      log('presenting mock credentials')
      const name = attempt.hasAuthorization ? 'payment-signature' : 'authorization'
      const header = { name, value: mockAuthorizationHeader } as const
      return { answer: await attempt.send(header, attempt.deadline), payment: undefined }
    }
    const signed = await (await sellers?.())?.sign(attempt, answer)
    if (signed) return presentFor(attempt, signed)
    const { challenge, offered } = await accept(attempt.asked, answer)
    // The buyer may have bought a pass for this endpoint at another path.
    const passed = challenge.pass && (await passes.present(attempt, challenge))
    if (passed && !passed.isOver) return unpaid(passed)
    return offered ? payByTab(attempt, offered) : payExact(attempt, challenge)
  }

  /**
   * Pays without a 402: with an earlier attempt's payment whose outcome isn't known, or according to an earlier offer that is still valid.
   *
   * @returns undefined if there is no such payment and no such offer.
   */
  async function payRemembered<A extends Answer>(attempt: Attempt<A>): Promise<Paid<A> | undefined> {
    const before = await repeats.presentOpen(attempt)
    if (before && !isFree(before)) return before
    const passed = await passes.present(attempt)
    if (passed) {
      const mustPay = passed.isOver && (await isDemand(passed.answer))
      return mustPay ? pay(attempt, passed.answer) : unpaid(passed)
    }
    const offered = tabs && offers.find(attempt.asked, Date.now() / 1000)
    return offered && payByTab(attempt, offered)
  }

  async function payExact<A extends Answer>(attempt: Attempt<A>, challenge: Challenge): Promise<Paid<A>> {
    // Two authorizations need the `Authorization` header. If the caller already uses it, sign one authorization, which fits into x402's own header.
    const needed = attempt.hasAuthorization ? 'onchain' : undefined
    return presentFor(attempt, await signer.signAlone(attempt, challenge, needed))
  }

  return {
    address: payer.address,
    mockPayments,
    log,
    receiptKeys,
    /** Returns the price of a 402. Signs and counts nothing. */
    async quote(asked: Asked, answer: Answer, own?: OwnLimit): Promise<Quote> {
      const { readQuote } = await import('./quote.ts')
      return readQuote(asked, answer, {
        own,
        gatewayUrl,
        network,
        usdc,
        limits,
        mockPayments,
        paysOthers: sellers !== undefined,
        keepsTabs: tabs !== undefined,
        accept: async (one, other) => (await accept(one, other)).offered !== undefined,
      })
    },
    /** Returns the quote for a response that requests no payment. */
    quoteFree: async (url: string): Promise<Quote> =>
      (await import('./quote.ts')).freeQuote(url, network.name),
    isDemand,
    pay,
    payRemembered,
    async presentGiven<A extends Answer>(attempt: Attempt<A>, payment: SignedPayment): Promise<Paid<A>> {
      requireOwnLimit(attempt, payment)
      return repeats.presentGiven(attempt, payment)
    },
    takeReceipt,
    /** Remembers a payment whose response broke off while the caller read it. */
    remember: repeats.remember,
    /** Forgets a payment whose response the caller has read completely. */
    settle,
    /** Returns the seller's report on its payment, for sellers that don't use Tollkeeper. */
    readReport: async (paid: Paid<Answer>): Promise<SellerReport | undefined> =>
      paid.payment?.header && (await sellers?.())?.readReport(paid),
    tabs: async () => (await tabs?.list()) ?? [],
    close: async () => tabs?.close(),
  }
}

/**
 * Returns a function that loads, once, the code for paying sellers that don't use Tollkeeper. Most clients never need this code, so a page loads it
 * only when it is needed.
 *
 * @returns undefined if the client doesn't pay other sellers.
 * @throws {TypeError} for an invalid `maxValiditySeconds`.
 */
function openOtherSellers(
  option: PaymentOptions['otherSellers'],
  context: SellerContext,
): (() => Promise<SellerSigner>) | undefined {
  if (!option) return undefined
  const { maxValiditySeconds } = option === true ? {} : option
  requireValidity(maxValiditySeconds, 1)
  let opening: Promise<SellerSigner> | undefined
  return () => {
    opening ??= import('./otherSellers.ts').then(
      ({ createSellerSigner }) => createSellerSigner(context, maxValiditySeconds),
      (cause) => {
        opening = undefined
        throw new ChallengeRefusedError('the code that pays other sellers could not be loaded', { cause })
      },
    )
    return opening
  }
}

/** @throws {TypeError} */
function requireValidity(seconds: number | undefined, least: number): void {
  if (seconds === undefined || seconds >= least) return
  throw new TypeError(`maxValiditySeconds must be ${least} or more, got ${seconds}`)
}

function unpaid<A extends Answer>({ answer }: { answer: A }): Paid<A> {
  return { answer, payment: undefined }
}

export type PaymentFlow = ReturnType<typeof createPaymentFlow>

/** Returns a gateway's keys. They are fetched once, and again for an unknown key id. */
function keysOf(gatewayUrl: string, fetch: typeof globalThis.fetch) {
  const url = new URL(`${gatewayUrl.replace(/\/+$/, '')}/.well-known/jwks.json`)
  return createRemoteJWKSet(url, { [customFetch]: fetch })
}

/** Adds the media type of our 402 body to the media types that the caller accepts. */
export function acceptChallenge(headers: Headers): void {
  headers.set('accept', `${headers.get('accept') ?? '*/*'}, ${challengeMediaType}`)
}

/**
 * Reads a challenge. If it names no issuer, the client derives the nonces for its own gateway. A seller gains nothing by omitting the issuer: the
 * challenge can be charged only once, and another gateway would refuse the payment, because it expects other nonces.
 */
async function readChallenge(answer: Answer, gatewayUrl: string): Promise<Challenge> {
  try {
    return await readChallengeOf(answer, gatewayUrl)
  } catch (error) {
    const said = error instanceof Error ? error.message : 'the challenge can’t be read'
    const isX402 = answer.headers.has('payment-required')
    const reason = isX402 ? `${said}. The option \`otherSellers: true\` pays sellers of x402` : said
    throw new ChallengeRefusedError(reason, { cause: error, body: answer.body })
  }
}
