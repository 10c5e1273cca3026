import { createRemoteJWKSet, customFetch } from 'jose'
import type { Address } from 'viem'
import { verifyReceipt } from '../audit/verifyReceipt.ts'
import { parseUsdc } from '../protocol/amount.ts'
import { encodeAuthorizationHeader, mockAuthorizationHeader } from '../protocol/authorizationHeader.ts'
import { type Challenge, challengeMediaType, parseChallenge } from '../protocol/challenge.ts'
import { type NetworkName, networkByName } from '../protocol/networks.ts'
import { parsePayload } from '../protocol/payload.ts'
import type { ReceiptClaims } from '../protocol/receipt.ts'
import { tabNonce } from '../protocol/tab.ts'
import { encodePaymentHeader, readTabResponse } from '../protocol/x402.ts'
import { checkChallenge } from './checkChallenge.ts'
import { ChallengeRefusedError, NetworkError, readProblem } from './errors.ts'
import { hostOf, type LimitOptions, readLimits, signWithin, warnWithoutLimit } from './limits.ts'
import { type Asked, createOfferMemory, type OfferedChallenge, offerOf } from './offers.ts'
import { type Payer, type PayerWallet, signerOf } from './payer.ts'
import { priceOf, signPayment } from './payment.ts'
import type { SignedPayment, SignedTabPayment } from './signedPayment.ts'
import { createTabGateway } from './tabGateway.ts'
import type { Outcome } from './tabState.ts'
import { createTabs, type TabOptions, type Tabs } from './tabs.ts'
import { type Answer, type Deadline, pause, startDeadline, waitFor } from './transport.ts'

/** How a buyer pays, and how much at most: options of `createClient` and `wrapFetch`. */
export type PaymentOptions = LimitOptions & {
  /** Public URL of the gateway whose challenges are paid. */
  gatewayUrl: string
  /** Key of the paying wallet, 0x and 64 hex digits. Never logged, never sent. */
  walletPrivateKey?: string | undefined
  /** Instead of a key: an account of viem, a wallet client that has one, or whatever signs typed data. */
  account?: Payer | PayerWallet
  /** Network to pay on. Challenges for another one are refused. */
  network: NetworkName
  /** Verbose log of the payment flow through `console.debug`. Default false. */
  debug?: boolean
  /** USDC's address, where the network's table has none (`localhost`) or a test chain plays a network. */
  usdcAddress?: Address
  /**
   * `one`: a payment is one authorization of the whole price, to the splitter of the provider's part and the platform's.
   * `two`: each part has its own. Default: what the provider's middleware asks for, else `two`.
   */
  signatures?: 'one' | 'two'
  /**
   * Whether requests are put on a tab where the gateway offers one, with one signature each and nothing to settle before it closes:
   * docs/tabs.md. `false`: each is a payment of its own. Default true.
   */
  tabs?: boolean | TabOptions
  /** Answer challenges with `x402 mock:mock` and sign nothing. For providers in mock mode only. Default false. */
  mockPayments?: boolean
  /**
   * Called with the receipt of each payment, as it came, before the answer is returned: to keep it for an audit
   * (`openReceiptFile` of `@tollkeeper/sdk/files`). What it throws is the answer's `receiptError`, because the answer was
   * paid for, and isn't lost by it.
   */
  onReceipt?: (paid: PaidReceipt) => void | Promise<void>
}

/** What a provider sent for a payment. */
export type PaidReceipt = {
  /** JWS compact. */
  receipt: string
  /** Undefined where the gateway's keys can't be fetched, or the receipt isn't the gateway's for this payment. */
  paymentId: string | undefined
  /** What was paid for. */
  url: string
}

/** The header that carries a payment. */
export type PaymentHeader = { name: 'authorization' | 'payment-signature'; value: string }

/** Sends a request once more, with its payment. */
type SendPaid<A extends Answer> = (header: PaymentHeader, deadline: Deadline) => Promise<A>

/** The answer to a paid request, and what was signed for it last. */
type Paid<A extends Answer> = { answer: A; payment: SignedPayment | undefined }

/** Refusals of what a remembered offer says: another challenge may do. */
const offerRefusals: ReadonlySet<unknown> = new Set([
  'macaroon_invalid',
  'macaroon_expired',
  'caveat_mismatch',
  'unknown_caveat',
  'challenge_price_too_low',
  'challenge_network_mismatch',
])

/** Codes of status 503 by which nothing was accepted. */
const busyRefusals: ReadonlySet<unknown> = new Set(['overloaded', 'provider_limit_exceeded', 'token_paused'])

/** How often a paid request is sent again after the connection failed, always with the same authorization. */
const resends = 2
const resendDelayMs = 250

/**
 * What follows on a 402, the same for every kind of client: check, sign within the limits, present, keep the receipt.
 *
 * @throws {TypeError} for a key, account, URL, host or missing `usdcAddress` that can't work.
 * @throws {ProtocolError} `unknown_network`; `invalid_field` for a limit that isn't a USDC amount.
 */
export function createPaymentFlow(options: PaymentOptions, fetch: typeof globalThis.fetch) {
  const { gatewayUrl, mockPayments = false } = options
  const network = networkByName(options.network)
  const usdc = (options.usdcAddress ?? network.usdc)?.toLowerCase() as Address | undefined
  const payer = signerOf(options)
  const limits = readLimits(options)
  const log = options.debug ? (message: string) => console.debug(`[tollkeeper] ${message}`) : () => {}
  if (!URL.canParse(gatewayUrl)) throw new TypeError(`gatewayUrl must be a URL, got ${gatewayUrl}`)
  if (!usdc && !mockPayments) throw new TypeError(`usdcAddress must be given for the network ${network.name}`)
  if (!mockPayments) warnWithoutLimit(options)

  // The keys are fetched once, and again for a key id that isn't among them.
  const receiptKeys = createRemoteJWKSet(new URL(`${gatewayUrl.replace(/\/+$/, '')}/.well-known/jwks.json`), {
    [customFetch]: fetch,
  })

  const offers = createOfferMemory()
  const tabOptions =
    options.tabs === false || mockPayments ? undefined : options.tabs === true ? {} : (options.tabs ?? {})
  const tabs: Tabs | undefined =
    tabOptions && createTabs({ ...tabOptions, payer, log, gateway: createTabGateway(fetch, gatewayUrl) })

  /** Pays what a 402 asks for. */
  async function pay<A extends Answer>(
    asked: Asked,
    answer: Answer,
    send: SendPaid<A>,
    deadline: Deadline,
    pendingTimeoutMs?: number,
  ): Promise<Paid<A>> {
    log('402: payment required')
    if (mockPayments) {
      log('presenting mock credentials')
      const header = { name: 'authorization', value: mockAuthorizationHeader } as const
      return { answer: await send(header, deadline), payment: undefined }
    }
    const { challenge, offered } = accept(asked, answer)
    if (!offered) return payExact(asked, challenge, send, deadline, pendingTimeoutMs)
    return payByTab(asked, offered, send, deadline, pendingTimeoutMs)
  }

  /** Pays what was offered before and still holds, without a 402. @returns undefined where there is no such offer. */
  async function payRemembered<A extends Answer>(
    asked: Asked,
    send: SendPaid<A>,
    deadline: Deadline,
    pendingTimeoutMs?: number,
  ): Promise<Paid<A> | undefined> {
    const offered = tabs && offers.find(asked, Date.now() / 1000)
    return offered && payByTab(asked, offered, send, deadline, pendingTimeoutMs)
  }

  /** Reads and checks a 402, and remembers the offer in it. */
  function accept(
    asked: Asked,
    answer: Answer,
  ): { challenge: Challenge; offered: OfferedChallenge | undefined } {
    if (!usdc) throw new TypeError('Only a client in mock mode can do without a USDC address')
    const challenge = readChallenge(answer, gatewayUrl)
    checkChallenge(challenge, { url: asked.url, answeredBy: answer.url, gatewayUrl, network, usdc })
    const offer = tabs && offerOf(challenge, { network, usdc })
    const offered = offer && { challenge, offer }
    if (offered) offers.remember(asked, offered, Date.now() / 1000)
    return { challenge, offered }
  }

  async function payExact<A extends Answer>(
    { url }: Asked,
    challenge: Challenge,
    send: SendPaid<A>,
    deadline: Deadline,
    pendingTimeoutMs?: number,
  ): Promise<Paid<A>> {
    const { signatures = 'two' } = challenge
    if (!isSoldAlone(challenge)) throw new ChallengeRefusedError('its price is sold on tabs only')
    const payment = await signWithinLimits(url, challenge, deadline, () =>
      signPayment(challenge, {
        ...{ payer, network, usdc: usdc as Address, now: Date.now() / 1000, signal: deadline.signal },
        signatures: options.signatures ?? signatures,
      }),
    )
    return { answer: await present(payment, send, deadline, pendingTimeoutMs), payment }
  }

  /**
   * Puts a request on a tab. Where the gateway refuses the tab, opens another one and repeats the request once; where it refuses the
   * remembered offer, pays what the refusal asks for; where it takes nothing more on tabs, pays by itself.
   */
  async function payByTab<A extends Answer>(
    asked: Asked,
    first: OfferedChallenge,
    send: SendPaid<A>,
    deadline: Deadline,
    pendingTimeoutMs?: number,
  ): Promise<Paid<A>> {
    let offered = first
    for (const repeated = { offer: false, tab: false }; ; ) {
      const payment = await signOnTab(asked, offered, deadline)
      const answer = await present(payment, send, deadline, pendingTimeoutMs)
      const paid = { answer, payment }
      if (answer.status !== 402) return paid
      offers.forget(asked)
      const { code } = readProblem(402, answer.body)
      const isOfTab = code?.startsWith('tab_') || code === 'unknown_tab'
      // Without a code, who asks knows nothing of tabs.
      const isOver = code === undefined || code === 'tabs_off' || code === 'tab_limit_exceeded'
      const isRepeatable = isOver || (isOfTab ? !repeated.tab : offerRefusals.has(code) && !repeated.offer)
      if (!isRepeatable) return paid
      log(`refused: ${code ?? 'another 402'}`)
      const asksAgain = accept(asked, answer)
      if (isOver || !asksAgain.offered) {
        if (!isSoldAlone(asksAgain.challenge)) return paid
        return payExact(asked, asksAgain.challenge, send, deadline, pendingTimeoutMs)
      }
      if (isOfTab) repeated.tab = true
      else repeated.offer = true
      offered = asksAgain.offered
    }
  }

  async function signOnTab(
    { url }: Asked,
    { challenge, offer }: OfferedChallenge,
    deadline: Deadline,
  ): Promise<SignedTabPayment> {
    if (!tabs) throw new TypeError('A client without tabs has no offers')
    const { requestId, macaroon } = challenge
    return signWithinLimits(url, challenge, deadline, async () => {
      const tab = await tabs.sign(offer, deadline.signal)
      return { requestId, network: network.name, macaroon, payloads: [], tab, amount: offer.price }
    })
  }

  /** Has a challenge signed that every limit allows. */
  async function signWithinLimits<Signed extends SignedPayment>(
    url: string,
    challenge: Challenge,
    deadline: Deadline,
    sign: () => Promise<Signed>,
  ): Promise<Signed> {
    const [{ payTo, description }] = challenge.accepts
    const { requestId } = challenge
    const amount = priceOf(challenge)
    const proposed = { url, host: hostOf(url), amount, network: network.name, payTo, description, requestId }
    const signed = await waitFor(signWithin(limits, proposed, deadline, sign), deadline)
    log(`signed ${amount} base units for ${requestId} as ${payer.address}`)
    return signed
  }

  /**
   * Presents a signed payment. When the connection breaks or the settlement is pending, presents the same payment again,
   * which can be charged only once.
   *
   * @param pendingTimeoutMs after the first answer that it is pending. Default: only the deadline ends it.
   */
  async function present<A extends Answer>(
    payment: SignedPayment,
    send: SendPaid<A>,
    deadline: Deadline,
    pendingTimeoutMs?: number,
  ): Promise<A> {
    try {
      const answer = await presentAgain(payment, send, deadline, pendingTimeoutMs)
      if (payment.tab) concludeOnTab(payment, answer)
      return answer
    } catch (error) {
      if (payment.tab) tabs?.conclude(payment.tab, 'unknown')
      throw error
    }
  }

  async function presentAgain<A extends Answer>(
    payment: SignedPayment,
    send: SendPaid<A>,
    deadline: Deadline,
    pendingTimeoutMs?: number,
  ): Promise<A> {
    const header = headerOf(payment)
    let within: Deadline = { ...deadline, payment }
    for (let attempt = 0; ; ) {
      try {
        const answer = await send(header, within)
        log(`answer to the paid request: ${answer.status}`)
        if (!isPending(answer)) return answer
        within = limitWait(within, pendingTimeoutMs)
        await pause(retryAfterMs(answer), within)
      } catch (error) {
        if (!(error instanceof NetworkError) || attempt === resends) throw error
        log('connection failed, presenting the same payment again')
        await pause(resendDelayMs * 2 ** attempt++, within)
      }
    }
  }

  function concludeOnTab({ tab, amount }: SignedTabPayment, answer: Answer): void {
    tabs?.conclude(tab, outcomeOf(answer, amount))
    const response = readTabResponse(answer.headers.get('payment-response'))
    if (response?.id === tab.tab) tabs?.acknowledge(response, tab.line)
    const { code } = answer.status < 400 ? {} : readProblem(answer.status, answer.body)
    if (code === 'tab_limit_exceeded') return
    const isOfTab = code?.startsWith('tab_') || code === 'unknown_tab'
    if (isOfTab) tabs?.leave(tab.tab, code === 'tab_closed')
  }

  /** Reads an answer's receipt, and hands it to `onReceipt`. */
  async function takeReceipt(
    { url, headers }: Answer,
    signed: SignedPayment | undefined,
    deadline: Deadline,
  ): Promise<{ receipt?: string; claims?: ReceiptClaims | undefined; receiptError?: unknown }> {
    const receipt = headers.get('service-receipt')
    if (!receipt) return {}
    const claims = await readReceipt(receipt, signed, deadline)
    try {
      if (signed) await options.onReceipt?.({ receipt, paymentId: claims?.paymentId, url })
      return { receipt, claims }
    } catch (receiptError) {
      log('onReceipt failed')
      return { receipt, claims, receiptError }
    }
  }

  /** The claims of a receipt that the gateway signed for the payment that was sent; undefined for any other receipt. */
  async function readReceipt(
    receipt: string,
    signed: SignedPayment | undefined,
    deadline: Deadline,
  ): Promise<ReceiptClaims | undefined> {
    try {
      const claims = await waitFor(verifyReceipt(receipt, receiptKeys), deadline)
      if (!signed || isReceiptOf(claims, signed)) return claims
      log('the receipt is for another payment')
    } catch (error) {
      log(`the receipt could not be verified: ${error instanceof Error ? error.message : error}`)
    }
    return undefined
  }

  return {
    ...{ address: payer.address, mockPayments, log, receiptKeys, pay, payRemembered, present, takeReceipt },
    tabs: async () => (await tabs?.list()) ?? [],
    close: async () => tabs?.close(),
  }
}

function headerOf(payment: SignedPayment): PaymentHeader {
  if (!payment.tab) return { name: 'authorization', value: encodeAuthorizationHeader(payment) }
  const { macaroon, tab } = payment
  const accepted = { scheme: 'tab', network: networkByName(payment.network).caip2, extra: { macaroon } }
  return { name: 'payment-signature', value: encodePaymentHeader({ x402Version: 2, accepted, payload: tab }) }
}

/** What an answer says of what was charged, by the provider's word: who lies has a tab refused, and gets nothing by it. */
function outcomeOf({ status, headers, body }: Answer, price: bigint): Outcome {
  if (headers.get('service-payment-status') === 'voided') return { charged: 0n }
  const charged = headers.get('service-charged')
  if (charged !== null) return { charged: readCharged(charged, price) }
  if (headers.get('service-payment-id') !== null) return { charged: price }
  const isProblem = /^application\/problem\+json\b/i.test(headers.get('content-type') ?? '')
  const isRefused =
    status === 402 ||
    (isProblem && [400, 413, 422, 429].includes(status)) ||
    (status === 503 && busyRefusals.has(readProblem(status, body).code))
  return isRefused ? { charged: 0n } : 'unknown'
}

function readCharged(text: string, price: bigint): bigint {
  try {
    return parseUsdc(text)
  } catch {
    return price
  }
}

/** Whether it is sold by a payment of its own, too: a price below the least that settles is not. */
function isSoldAlone({ tab }: Challenge): boolean {
  return tab?.only !== true
}

function isReceiptOf({ iss, tab, authorizations }: ReceiptClaims, signed: SignedPayment): boolean {
  if (!signed.tab)
    return signed.payloads.every(
      (payload, half) => parsePayload(payload).nonce === authorizations[half]?.nonce,
    )
  const { tab: id, sequence } = signed.tab
  return tab?.id === id && tab.sequence === sequence && authorizations[0].nonce === tabNonce(iss, id)
}

export function withPayment(init: RequestInit, { name, value }: PaymentHeader): RequestInit {
  const headers = new Headers(init.headers)
  headers.set(name, value)
  return { ...init, headers }
}

/** Asks for SPEC.md's body beside whatever else is accepted. */
export function acceptChallenge(headers: Headers): void {
  headers.set('accept', `${headers.get('accept') ?? '*/*'}, ${challengeMediaType}`)
}

/**
 * A challenge that names no issuer gets the nonces of this client's own gateway, so that leaving the field out allows
 * nothing: one challenge is still charged once, and another gateway's nonces would be others.
 */
export function readChallenge(answer: Answer, gatewayUrl: string) {
  try {
    return parseChallenge(answer.body, gatewayUrl)
  } catch (error) {
    throw new ChallengeRefusedError(
      error instanceof Error ? error.message : 'the challenge can not be read',
      {
        cause: error,
        body: answer.body,
      },
    )
  }
}

/** Whether the gateway has the payment, but serves nothing before it is mined (`SETTLE_BEFORE_SERVE_USDC`). */
function isPending({ status, body }: Answer): boolean {
  return status === 503 && readProblem(status, body).code === 'settlement_pending'
}

/** The same deadline where it has a time limit already. */
function limitWait(deadline: Deadline, timeoutMs: number | undefined): Deadline {
  if (timeoutMs === undefined || deadline.timeoutMs !== undefined) return deadline
  return { ...deadline, ...startDeadline(timeoutMs, deadline.signal, deadline.maxResponseBytes) }
}

function retryAfterMs({ headers }: Answer): number {
  const seconds = Number(headers.get('retry-after') ?? 1)
  return seconds >= 0 && seconds <= 60 ? Math.max(seconds * 1000, resendDelayMs) : 1000
}
