import type { Address } from 'viem'
import { recoverTypedDataAddress } from 'viem'
import receipts from '../../test/vectors/receipts.json' with { type: 'json' }
import { atLeastZero, formatUsdc } from '../src/protocol/amount.ts'
import { type Challenge, createChallenge } from '../src/protocol/challenge.ts'
import { splitterFactory, tabSettlement } from '../src/protocol/deployments.ts'
import { eip712Domain, receiveWithAuthorizationTypes } from '../src/protocol/eip3009.ts'
import { errorCodes } from '../src/protocol/errors.ts'
import { networks } from '../src/protocol/networks.ts'
import { encodeSplit } from '../src/protocol/splitter.ts'
import {
  parseTabPayload,
  type TabLine,
  type TabPayload,
  type TabPayment,
  tabAuthorization,
  tabNonce,
  tabSplit,
  toWord,
} from '../src/protocol/tab.ts'
import {
  acceptOnTab,
  chargeOnTab,
  closeTab,
  type GatewayTab,
  type GatewayTabRequest,
  tabRefusals,
} from '../src/protocol/tabRule.ts'
import { splitAnyPrice } from '../src/protocol/tier.ts'
import { encodePaymentHeader, parsePaymentHeader, reasonOf, toPaymentRequired } from '../src/protocol/x402.ts'
import { answerJson, fetchWithKeys, gatewayUrl, receipt, signReceipt } from './playProvider.ts'
import { serve } from './serve.ts'

// A provider and its gateway over HTTP. sdk/src/protocol/tabRule.ts decides which requests the gateway accepts. This file adds the transport and the
// faults.

const platform: Address = `0x${'c'.repeat(40)}`
const usdc = networks.base.usdc as Address
const terms = {
  issuer: gatewayUrl,
  chainId: networks.base.chainId,
  contract: tabSettlement,
  platform,
  rewardShare: 1_000,
}
/** The reserved credit in USDC base units, which is more than any test buys on a tab. */
const reserved = 1_000_000_000n

/** The fault that is simulated for one request. */
type Fault = {
  /**
   * Code with which the provider refuses the request without calling the gateway. `none`: a 402 without a code, as from a server that doesn't support
   * tabs.
   */
  refuse?: string
  /** Code with which the provider refuses the request although the gateway has accepted it. */
  lie?: string
  /** Whether to break the connection before or after the gateway accepts the request. */
  lose?: 'before' | 'after'
  /** The charge in base units, if it differs from the price. 0 if `isVoided` is set. */
  charge?: bigint
  isVoided?: boolean
  /** Whether the response reports that the tab closes soon. */
  closing?: true
  /** The credit in base units that the line starts with, if this request opens the line. Each response contains it. */
  credit?: bigint
  status?: number
}

export type PlayedTabs = Awaited<ReturnType<typeof playTabs>>

/**
 * Starts the provider and its gateway. In a path such as `/1000/b/weather`, the first part is the price in base units. The second part is the hex
 * digit that is repeated in the provider's wallet address.
 */
export async function playTabs(
  options: {
    fault?: (asked: { path: string; attempt: number; sequence: number }) => Fault | undefined
    change?: (challenge: Challenge) => Challenge
    offerSeconds?: number
    /** Minimum amount in base units for settling a tab. */
    leastTotal?: bigint
  } = {},
) {
  /** The gateway's tabs by ID. */
  const tabs = new Map<string, GatewayTab>()
  /** The accepted requests in the order of arrival. */
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
        rewardShare: terms.rewardShare,
        offeredUntil: Math.floor(Date.now() / 1000) + (options.offerSeconds ?? 600),
        ...(price < 5_000n && { only: true as const }),
      },
    })
    return options.change?.(challenge) ?? challenge
  }

  /** Puts a request on its tab. @returns the accepted request, or the code of the rejection. */
  async function accept(
    payment: TabPayment,
    asked: { path: string; price: bigint; split: bigint; credit: bigint },
  ): Promise<GatewayTabRequest | string> {
    const lines = readLines(payment)
    if (!lines || lines[payment.line]?.split !== asked.split) return tabRefusals.mismatch
    if (!(await isSigned(payment, lines))) return 'invalid_signature'
    const decision = acceptOnTab(tabs.get(payment.tabId), {
      ...payment,
      terms: { ...terms, token: usdc, expiry: payment.expiry },
      requestHash: `${asked.path} ${payment.signature}`,
      price: asked.price,
      credit: asked.credit,
      reserved,
    })
    if (decision.tab) tabs.set(payment.tabId, decision.tab)
    return 'request' in decision ? decision.request : tabRefusals[decision.verdict]
  }

  /** Returns the lines of a state. Returns undefined if the gateway knows fewer lines than the client assumes. */
  function readLines({ tabId, known, splits, amounts }: TabPayment): TabLine[] | undefined {
    const stored = (tabs.get(tabId)?.lines ?? []).map(({ split }) => split)
    if (known > stored.length) return undefined
    return [...stored.slice(0, known), ...splits].map((split, index) => ({
      split,
      amount: amounts[index] ?? 0n,
    }))
  }

  /** Applies a change to all tabs. */
  function change(edit: (tab: GatewayTab) => GatewayTab): void {
    for (const [id, tab] of tabs) tabs.set(id, edit(tab))
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
    const bought = await accept(parseTabPayload(tab), { path, price, split, credit: fault.credit ?? 0n })
    if (bought === 'payment_replayed') return answerJson(response, 409, { code: bought })
    if (typeof bought === 'string') return demand(bought)
    const opened = tabs.get(tab.tab) as GatewayTab
    tabs.set(tab.tab, chargeOnTab(opened, tab.sequence, charge).tab)
    if (fault.lie) return demand(fault.lie === 'none' ? undefined : fault.lie)
    if (fault.lose === 'after') return void request.socket.destroy()
    const tabResponse = {
      id: tab.tab,
      sequence: tab.sequence,
      known: opened.lines.length,
      credit: fault.credit?.toString(),
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
          'Service-Receipt': await receiptOf(tab, price, split, bought.lineTotal),
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

  /** Returns a fetch that simulates the gateway's keys, `/tabs/{id}` and `/tabs/{id}/close`, and uses the real network for other URLs. */
  const fetchPlayed: typeof fetch = async (input, init) => {
    const [, id, close, sequence] =
      new RegExp(`^${gatewayUrl}/tabs/(tab_\\w+)(?:(/close)|/requests/(\\d+))?$`).exec(String(input)) ?? []
    if (!id) return fetchWithKeys(input, init)
    const tab = tabs.get(id)
    if (!tab) return Response.json({ code: 'unknown_tab' }, { status: 404 })
    if (sequence) {
      const bought = tab.requests.get(Number(sequence))
      if (!bought) return Response.json({ code: 'unknown_tab' }, { status: 404 })
      return Response.json({ sequence: Number(sequence), chargedUsdc: formatUsdc(bought.charged) })
    }
    if (!close) {
      const lines = tab.lines.map(({ split, charged }) => ({
        split: toWord(split),
        chargedUsdc: formatUsdc(atLeastZero(charged)),
      }))
      return Response.json({ closedAt: tab.isClosed ? new Date().toISOString() : null, lines })
    }
    const last = parseTabPayload((JSON.parse(String(init?.body)) as { tab: TabPayload }).tab)
    const lines = readLines(last)
    if (!lines || !(await isSigned(last, lines)))
      return Response.json({ code: 'tab_mismatch' }, { status: 402 })
    // Other requests may have changed the tab during the verification.
    const open = tabs.get(id) ?? tab
    const { verdict, tab: after } = closeTab(open, last, options.leastTotal)
    if (verdict !== 'closed')
      return Response.json({ code: `tab_${verdict}` }, { status: verdict === 'too_small' ? 409 : 402 })
    tabs.set(id, after)
    if (!open.isClosed)
      closed.push({
        id,
        sequence: last.sequence,
        total: last.amounts.reduce((sum, amount) => sum + amount, 0n),
      })
    return Response.json({})
  }

  return { url, seen, closed, tabs, change, fetch: fetchPlayed }
}

async function isSigned(
  { tabId, payer, sequence, expiry, signature }: TabPayment,
  lines: readonly TabLine[],
): Promise<boolean> {
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
      rewardShare: terms.rewardShare,
      lineTotal: lineTotal.toString(),
    },
  })
}
