import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import type { Address } from 'viem'
import type { ExactOffer } from '../client/payment.ts'
import type { Answer } from '../client/transport.ts'
import { bytesToHex } from '../protocol/bytes.ts'
import { isRecord, parseJson, textOf } from '../protocol/fields.ts'
import type { Network } from '../protocol/networks.ts'
import type { SignedAuthorization } from '../protocol/payload.ts'
import { encodePaymentHeader } from '../protocol/x402.ts'
import { demandKeys, type Meta, mppErrorCode, paymentKeys, receiptKeys } from './metaKeys.ts'
import { mppCredential, readMppOffer, textsOf } from './mpp.ts'

/** What a server asks for instead of a result. Nothing in it is checked. */
export type Demand = {
  /** x402's PaymentRequired, v2 or v1. */
  required: Meta | undefined
  /** The form in which its server reads a payment of x402 v2: `agents` takes base64 only. */
  isBase64: boolean
  mpp: unknown[]
}

/** A call's answer in terms of HTTP, which the payment flow reads. */
export type ToolReply = Answer & { result: CallToolResult | undefined; demand: Demand | undefined }

/** Reads a result. `url` names the tool. */
export function readReply(result: CallToolResult, url: string): ToolReply {
  const meta: Meta = result._meta ?? {}
  const reply = { url, headers: new Headers(), body: null, result, demand: undefined }
  const demand = readDemand(result, meta)
  if (demand) return { ...reply, status: 402, body: meta[demandKeys.own] ?? demand.required ?? null, demand }
  const problem = meta[demandKeys.problem]
  if (result.isError && isRecord(problem)) {
    setHeader(reply.headers, 'content-type', 'application/problem+json')
    setHeader(reply.headers, 'retry-after', problem.retryAfter)
    const { status } = problem
    const isStatus = typeof status === 'number' && status >= 400 && status <= 599
    return { ...reply, status: isStatus ? status : 500, body: problem }
  }
  const own = meta[receiptKeys.own]
  if (isRecord(own)) {
    setHeader(reply.headers, 'service-receipt', own.receipt)
    setHeader(reply.headers, 'service-payment-id', own.paymentId)
    setHeader(reply.headers, 'service-payment-status', own.status)
    setHeader(reply.headers, 'service-charged', own.charged)
  }
  const response = meta[receiptKeys.x402]
  if (isRecord(response)) setHeader(reply.headers, 'payment-response', encodePaymentHeader(response))
  return { ...reply, status: 200 }
}

/** Reads MPP's error. @returns undefined for any other error. */
export function readErrorReply(error: unknown, url: string): ToolReply | undefined {
  const { code, data } = isRecord(error) ? error : {}
  // -32043 refuses a payment and names what it wants instead.
  if ((code !== mppErrorCode && code !== mppErrorCode - 1) || !isRecord(data)) return undefined
  if (!Array.isArray(data.challenges)) return undefined
  const required = isRequired(data.x402) ? data.x402 : undefined
  const demand = { required, isBase64: false, mpp: data.challenges }
  const body = data[demandKeys.own] ?? required ?? null
  return { url, status: 402, headers: new Headers(), body, result: undefined, demand }
}

function readDemand(result: CallToolResult, meta: Meta): Demand | undefined {
  const { paymentRequired, resultType } = result as { paymentRequired?: unknown; resultType?: unknown }
  if (!result.isError && resultType !== 'payment_required') return undefined
  const structured = [paymentRequired, result.structuredContent].find(isRequired)
  const required = structured ?? [meta[demandKeys.agents], parseText(result)].find(isRequired)
  const { challenges } = (meta[demandKeys.mpp] ?? {}) as { challenges?: unknown }
  const mpp = Array.isArray(challenges) ? challenges : []
  if (!required && mpp.length === 0 && meta[demandKeys.own] === undefined) return undefined
  return { required, isBase64: !structured && required === meta[demandKeys.agents], mpp }
}

/** Whether it looks like x402's PaymentRequired; its offers aren't read here. */
export function isRequired(value: unknown): value is Meta {
  if (!isRecord(value) || (value.x402Version !== 1 && value.x402Version !== 2)) return false
  return Array.isArray(value.accepts) && value.accepts.length > 0
}

function parseText({ content: [first] }: CallToolResult): unknown {
  return first?.type === 'text' ? parseJson(first.text) : undefined
}

/** A server may write anything, even what no header can hold. */
function setHeader(headers: Headers, name: string, value: unknown): void {
  if (typeof value === 'string' && /^[\x20-\x7e]{1,16384}$/.test(value)) headers.set(name, value)
}

/** An offer that can be paid, and the `_meta` that pays it once it is signed. */
export type PayableOffer = ExactOffer & { present: (signed: SignedAuthorization) => Record<string, unknown> }

/**
 * Chooses from a standard seller's offers: USDC on this network, by EIP-3009.
 *
 * @returns undefined if there is no such offer.
 */
export function chooseOffer(
  { required, isBase64, mpp }: Demand,
  asset: { network: Network; usdc: Address },
): PayableOffer | undefined {
  for (const accepted of (required?.accepts ?? []) as unknown[]) {
    const terms = readExact(accepted, required?.x402Version === 1, asset)
    if (!terms || !isRecord(accepted) || !required) continue
    const present = (signed: SignedAuthorization) => payX402(required, accepted, signed, isBase64)
    return { ...terms, description: describe(required, accepted), present }
  }
  for (const challenge of mpp) {
    const terms = readMppOffer(challenge, asset)
    if (!terms) continue
    const present = (signed: SignedAuthorization) => ({
      [paymentKeys.mpp]: mppCredential(challenge, signed, asset.network),
    })
    return { ...terms, present }
  }
  return undefined
}

function readExact(
  accepted: unknown,
  isV1: boolean,
  { network, usdc }: { network: Network; usdc: Address },
): Omit<ExactOffer, 'description'> | undefined {
  if (!isRecord(accepted) || accepted.scheme !== 'exact') return undefined
  if (accepted.network !== (isV1 ? network.name : network.caip2)) return undefined
  const { asset, payTo, extra, maxTimeoutSeconds } = accepted
  const amount = isV1 ? accepted.maxAmountRequired : accepted.amount
  const { assetTransferMethod = 'eip3009' } = isRecord(extra) ? extra : {}
  if (assetTransferMethod !== 'eip3009' || textOf(asset).toLowerCase() !== usdc) return undefined
  const isPayable =
    typeof amount === 'string' && /^[1-9]\d{0,19}$/.test(amount) && /^0x[\da-f]{40}$/i.test(textOf(payTo))
  if (!isPayable || typeof maxTimeoutSeconds !== 'number' || !(maxTimeoutSeconds > 0)) return undefined
  const nonce = bytesToHex(crypto.getRandomValues(new Uint8Array(32)))
  return { amount: BigInt(amount), payTo: textOf(payTo).toLowerCase() as Address, maxTimeoutSeconds, nonce }
}

function payX402(
  { x402Version, resource, extensions }: Meta,
  accepted: Meta,
  { signature, ...authorization }: SignedAuthorization,
  isBase64: boolean,
): Record<string, unknown> {
  const payload = { signature, authorization: textsOf(authorization) }
  if (x402Version === 1) {
    const { scheme, network } = accepted
    return { [paymentKeys.x402V1]: encodePaymentHeader({ x402Version, scheme, network, payload }) }
  }
  const payment = {
    x402Version,
    accepted,
    payload,
    ...(resource !== undefined && { resource }),
    ...(extensions !== undefined && { extensions }),
  }
  return { [paymentKeys.x402]: isBase64 ? encodePaymentHeader(payment) : payment }
}

function describe({ resource }: Meta, accepted: Meta): string {
  const { description } = isRecord(resource) ? resource : accepted
  return typeof description === 'string' ? description : ''
}
