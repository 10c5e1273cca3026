import type { Address, Hex } from 'viem'
import { recoverTypedDataAddress } from 'viem'
import receipts from '../../test/vectors/receipts.json' with { type: 'json' }
import { formatUsdc } from '../src/protocol/amount.ts'
import { type Challenge, createChallenge } from '../src/protocol/challenge.ts'
import { splitterFactory, tabSettlement } from '../src/protocol/deployments.ts'
import { eip712Domain, receiveWithAuthorizationTypes } from '../src/protocol/eip3009.ts'
import { errorCodes } from '../src/protocol/errors.ts'
import { networks } from '../src/protocol/networks.ts'
import { encodeSplit } from '../src/protocol/splitter.ts'
import {
  parseTabPayload,
  type TabPayload,
  type TabPayment,
  tabAuthorization,
  tabNonce,
  tabSplit,
  toWord,
} from '../src/protocol/tab.ts'
import { splitAnyPrice } from '../src/protocol/tier.ts'
import { encodePaymentHeader, parsePaymentHeader, reasonOf, toPaymentRequired } from '../src/protocol/x402.ts'
import { answerJson, fetchWithKeys, gatewayUrl, receipt, signReceipt } from './playProvider.ts'
import { serve } from './serve.ts'

// A provider with a gateway that takes tabs by the rules of docs/tabs.md, faults included. That the real one does is shown by
// test/e2e.

const platform: Address = `0x${'c'.repeat(40)}`
const usdc = networks.base.usdc as Address

/** A fault of a request, or something special about it. */
type Fault = {
  /** The code of its refusal; the gateway doesn't see it. `none`: a 402 without a code, as by somebody who knows nothing of tabs. */
  refuse?: string
  /** The code of its refusal, although the gateway accepts it. */
  lie?: string
  /** The connection breaks, before or after the gateway took it. */
  lose?: 'before' | 'after'
  /** Base units that are charged instead of the price; 0 with `isVoided`. */
  charge?: bigint
  isVoided?: boolean
  /** The answer says that the tab closes soon. */
  closing?: true
  /** The credit that the line began with, according to the answer, base units. */
  credit?: string
  status?: number
}

type Book = {
  charged: Map<bigint, bigint>
  newest: TabPayment | undefined
  splits: bigint[]
  requests: Map<number, { key: string; signature: Hex; charged: bigint }>
  isClosed: boolean
}

export type PlayedTabs = Awaited<ReturnType<typeof playTabs>>

/**
 * Starts it. A path's first part is its price in base units, the second the digit that its provider's wallet is made of:
 * `/1000/b/weather`.
 */
export async function playTabs(
  options: {
    fault?: (asked: { path: string; attempt: number; sequence: number }) => Fault | undefined
    change?: (challenge: Challenge) => Challenge
    offerSeconds?: number
    /** Base units below which no tab settles. */
    leastTotal?: bigint
  } = {},
) {
  const books = new Map<string, Book>()
  /** In the order of their arrival. */
  const seen: { path: string; tab?: TabPayload; isExact?: true; headers: Record<string, unknown> }[] = []
  const closed: { id: string; sequence: number; total: bigint }[] = []

  const challengeFor = (path: string, host: string | undefined): Challenge => {
    const [, priceText = '0', digit = 'b'] = path.split('/')
    const price = BigInt(priceText)
    const provider: Address = `0x${digit.repeat(40)}`
    const { providerAmount, feeAmount, tier } = splitAnyPrice(price)
    const split = tabSplit({ provider, platform }, price)
    const challenge = createChallenge({
      issuer: gatewayUrl,
      requestId: `req_${String(seen.length).padStart(32, '0')}`,
      providerId: 'prov_1',
      endpointId: 'ep_1',
      macaroon: `m${price}`,
      network: networks.base,
      asset: usdc,
      resource: `http://${host}${path}`,
      description: '',
      payTo: provider,
      feePayTo: platform,
      amount: providerAmount,
      feeAmount,
      tier,
      tab: split && {
        split: toWord(encodeSplit(split)),
        rewardShare: 1_000,
        offeredUntil: Math.floor(Date.now() / 1000) + (options.offerSeconds ?? 600),
        ...(price < 5_000n && { only: true as const }),
      },
    })
    return options.change?.(challenge) ?? challenge
  }

  /** The gateway's rule. @returns a code where it refuses. */
  async function take(tab: TabPayment, key: string, price: bigint, split: bigint, charge: bigint) {
    const book: Book = books.get(tab.tabId) ?? {
      charged: new Map(),
      newest: undefined,
      splits: [],
      requests: new Map(),
      isClosed: false,
    }
    // Without all lines that the state has there is nothing to verify.
    if (tab.known > book.splits.length) return 'tab_mismatch'
    books.set(tab.tabId, book)
    const splits = [...book.splits.slice(0, tab.known), ...tab.splits]
    const lines = splits.map((one, index) => ({ split: one, amount: tab.amounts[index] ?? 0n }))
    const isKnown = splits[tab.line] === split
    const isOurs = await isSigned(tab, lines)
    // From here on nothing else comes in between.
    const before = book.requests.get(tab.sequence)
    if (before)
      return before.key === key && before.signature === tab.signature ? undefined : 'payment_replayed'
    if (book.isClosed) return 'tab_closed'
    if (!isKnown) return 'tab_mismatch'
    if (!isOurs) return 'invalid_signature'
    // If the tab grew meanwhile, this state may have fewer lines.
    const all = splits.length > book.splits.length ? splits : book.splits
    const newest = book.newest && book.newest.sequence > tab.sequence ? book.newest : tab
    const charged = new Map(book.charged).set(split, (book.charged.get(split) ?? 0n) + price)
    if ([...charged].some(([one, amount]) => (newest.amounts[all.indexOf(one)] ?? 0n) < amount))
      return 'tab_behind'
    book.splits = all
    book.newest = newest
    book.charged.set(split, (book.charged.get(split) ?? 0n) + charge)
    book.requests.set(tab.sequence, { key, signature: tab.signature, charged: charge })
    return undefined
  }

  const url = await serve(async (request, response) => {
    const path = request.url ?? ''
    const header = request.headers['payment-signature']
    const payment = typeof header === 'string' ? parsePaymentHeader(header) : undefined
    const tab = payment?.scheme === 'tab' ? payment.tab : undefined
    const isExact = request.headers.authorization?.startsWith('x402 ') || payment?.scheme === 'exact'
    seen.push({ path, headers: request.headers, ...(tab && { tab }), ...(isExact && { isExact }) })
    const challenge = challengeFor(path, request.headers.host)
    const demand = (code?: string) => {
      const required = toPaymentRequired(challenge, splitterFactory, undefined, tabSettlement)
      const error =
        code && code in errorCodes ? reasonOf(code as keyof typeof errorCodes, 2) : 'Payment required'
      answerJson(
        response,
        402,
        { ...challenge, ...(code && { code }) },
        {
          'PAYMENT-REQUIRED': encodePaymentHeader({ ...required, error }),
        },
      )
    }
    if (isExact)
      return answerJson(
        response,
        200,
        { exact: true },
        { 'Service-Receipt': receipt, 'Service-Payment-Id': 'pay_1' },
      )
    if (!tab || payment?.macaroon === undefined) return demand()
    const attempt = seen.filter((one) => one.tab).length
    const fault = options.fault?.({ path, attempt, sequence: tab.sequence }) ?? {}
    if (fault.refuse === 'none') return demand()
    if (fault.refuse === 'payment_replayed') return answerJson(response, 409, { code: fault.refuse })
    if (fault.refuse) return demand(fault.refuse)
    if (fault.lose === 'before') return void request.socket.destroy()
    const price = BigInt(payment.macaroon.slice(1))
    const split = BigInt(challenge.tab?.split ?? 0)
    const charge = fault.isVoided ? 0n : (fault.charge ?? price)
    const refusal = await take(parseTabPayload(tab), path, price, split, charge)
    if (refusal === 'payment_replayed') return answerJson(response, 409, { code: refusal })
    if (refusal) return demand(refusal)
    if (fault.lie) return demand(fault.lie === 'none' ? undefined : fault.lie)
    if (fault.lose === 'after') return void request.socket.destroy()
    const book = books.get(tab.tab)
    const tabResponse = {
      id: tab.tab,
      sequence: tab.sequence,
      known: book?.splits.length,
      credit: fault.credit,
      closing: fault.closing,
    }
    answerJson(
      response,
      fault.status ?? 200,
      { sequence: tab.sequence },
      {
        'Service-Payment-Id': 'pay_tab',
        'Service-Payment-Status': fault.isVoided ? 'voided' : 'verified',
        ...(fault.charge !== undefined && { 'Service-Charged': formatUsdc(fault.charge) }),
        ...(!fault.isVoided && {
          'Service-Receipt': await receiptOf(tab, price, split, book?.charged.get(split) ?? 0n),
          'PAYMENT-RESPONSE': encodePaymentHeader({
            success: true,
            transaction: '',
            network: 'eip155:8453',
            payer: tab.payer,
            ...(fault.charge !== undefined && { amount: fault.charge.toString() }),
            extra: { paymentId: 'pay_tab', tab: tabResponse },
          }),
        }),
      },
    )
  })

  /** The network as it is, with the gateway's keys, its `/tabs/{id}` and `/tabs/{id}/close`. */
  const fetchPlayed: typeof fetch = async (input, init) => {
    const [, id, close, sequence] =
      new RegExp(`^${gatewayUrl}/tabs/(tab_\\w+)(?:(/close)|/requests/(\\d+))?$`).exec(String(input)) ?? []
    if (!id) return fetchWithKeys(input, init)
    const book = books.get(id)
    if (sequence) {
      const bought = book?.requests.get(Number(sequence))
      if (!bought) return Response.json({ code: 'unknown_tab' }, { status: 404 })
      return Response.json({ sequence: Number(sequence), chargedUsdc: formatUsdc(bought.charged) })
    }
    if (!book?.newest) return Response.json({ code: 'unknown_tab' }, { status: 404 })
    if (!close) {
      const lines = book.splits.map((split) => ({
        split: toWord(split),
        chargedUsdc: formatUsdc(book.charged.get(split) ?? 0n),
      }))
      return Response.json({ closedAt: book.isClosed ? new Date().toISOString() : null, lines })
    }
    const { tab } = JSON.parse(String(init?.body)) as { tab: TabPayload }
    const last = parseTabPayload(tab)
    const splits = [...book.splits.slice(0, last.known), ...last.splits]
    const lines = splits.map((split, index) => ({ split, amount: last.amounts[index] ?? 0n }))
    if (lines.length !== book.splits.length || !(await isSigned(last, lines)))
      return Response.json({ code: 'tab_mismatch' }, { status: 402 })
    const isEnough = lines.every(({ split, amount }) => amount >= (book.charged.get(split) ?? 0n))
    if (!isEnough || last.sequence <= book.newest.sequence)
      return Response.json({ code: 'tab_behind' }, { status: 402 })
    const total = last.amounts.reduce((sum, amount) => sum + amount, 0n)
    if (total > 0n && total < (options.leastTotal ?? 0n))
      return Response.json({ code: 'tab_too_small' }, { status: 409 })
    book.isClosed = true
    closed.push({
      id,
      sequence: last.sequence,
      total,
    })
    return Response.json({})
  }

  return { url, seen, closed, books, fetch: fetchPlayed }
}

async function isSigned(
  { tabId, payer, sequence, expiry, signature }: TabPayment,
  lines: { split: bigint; amount: bigint }[],
): Promise<boolean> {
  const terms = {
    issuer: gatewayUrl,
    chainId: networks.base.chainId,
    contract: tabSettlement,
    platform,
    rewardShare: 1_000,
  }
  const { primaryType, ...message } = tabAuthorization(terms, { tabId, payer, sequence, expiry, lines })
  const typed = {
    domain: eip712Domain(networks.base),
    types: receiveWithAuthorizationTypes,
    primaryType,
    message,
  }
  return (await recoverTypedDataAddress({ ...typed, signature })).toLowerCase() === payer
}

const [accepted] = receipts.receipts.map(({ claims }) => claims)

function receiptOf(tab: TabPayload, price: bigint, split: bigint, lineTotal: bigint): Promise<string> {
  const { providerAmount, feeAmount } = splitAnyPrice(price)
  const provider = toWord(split).slice(0, 42)
  const nonce = tabNonce(gatewayUrl, tab.tab)
  return signReceipt({
    ...accepted,
    paymentId: 'pay_tab',
    payer: tab.payer,
    totalUsdc: price.toString(),
    providerUsdc: providerAmount.toString(),
    platformUsdc: feeAmount.toString(),
    authorizations: [{ to: tabSettlement, value: price.toString(), nonce }],
    split: { provider, platform },
    tab: {
      id: tab.tab,
      sequence: tab.sequence,
      split: toWord(split),
      rewardShare: 1_000,
      lineTotal: (lineTotal > price ? lineTotal : price).toString(),
    },
  })
}
