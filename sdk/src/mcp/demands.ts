import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { isPaymentRequired } from '../client/exactOffers.ts'
import type { Answer } from '../client/transport.ts'
import { isRecord, parseJson } from '../protocol/fields.ts'
import { encodePaymentHeader } from '../protocol/x402.ts'
import { demandKeys, type Meta, mppErrorCode, receiptKeys } from './metaKeys.ts'

/** A server's request for payment instead of a result. Its contents are unchecked. */
export type Demand = {
  /** x402's PaymentRequired, v2 or v1. */
  required: Meta | undefined
  /** Whether this server reads a payment of x402 v2 only as base64, as Cloudflare's package `agents` does. */
  isBase64: boolean
  mpp: unknown[]
}

/** A call's response in HTTP terms, for the payment flow. */
export type ToolReply = Answer & { result: CallToolResult | undefined; demand: Demand | undefined }

/** Reads a result. `url` identifies the tool. */
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
  const response = meta[receiptKeys.x402] ?? meta[receiptKeys.x402V1]
  if (isRecord(response)) setHeader(reply.headers, 'payment-response', encodePaymentHeader(response))
  return { ...reply, status: 200 }
}

/** Reads an error of MPP. @returns undefined for any other error. */
export function readErrorReply(error: unknown, url: string): ToolReply | undefined {
  const { code, data } = isRecord(error) ? error : {}
  // Error -32043 refuses a payment. Its data contains the challenge that the server expects to be paid.
  if ((code !== mppErrorCode && code !== mppErrorCode - 1) || !isRecord(data)) return undefined
  if (!Array.isArray(data.challenges)) return undefined
  const required = isPaymentRequired(data.x402) ? data.x402 : undefined
  const demand = { required, isBase64: false, mpp: data.challenges }
  const body = data[demandKeys.own] ?? required ?? null
  return { url, status: 402, headers: new Headers(), body, result: undefined, demand }
}

function readDemand(result: CallToolResult, meta: Meta): Demand | undefined {
  const { paymentRequired, resultType } = result as { paymentRequired?: unknown; resultType?: unknown }
  if (!result.isError && resultType !== 'payment_required') return undefined
  const structured = [paymentRequired, result.structuredContent].find(isPaymentRequired)
  const required = structured ?? [meta[demandKeys.agents], parseText(result)].find(isPaymentRequired)
  const { challenges } = (meta[demandKeys.mpp] ?? {}) as { challenges?: unknown }
  const mpp = Array.isArray(challenges) ? challenges : []
  if (!required && mpp.length === 0 && meta[demandKeys.own] === undefined) return undefined
  return { required, isBase64: !structured && required === meta[demandKeys.agents], mpp }
}

function parseText({ content: [first] }: CallToolResult): unknown {
  return first?.type === 'text' ? parseJson(first.text) : undefined
}

/** Sets a header. Ignores a value that a header can't contain, because a server may send anything. */
function setHeader(headers: Headers, name: string, value: unknown): void {
  if (typeof value === 'string' && /^[\x20-\x7e]{1,16384}$/.test(value)) headers.set(name, value)
}
