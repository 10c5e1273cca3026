/*
 * The keys of `_meta` in which MCP programs keep payments. Facts read from agents 0.32.0, x402-mcp 0.0.5, mppx 0.11.0 and
 * specs/transports-v2/mcp.md of x402.
 */

/** In a call: the payment. */
export const paymentKeys = {
  /** x402 v2: an object by the specification, base64 by Cloudflare's `agents`. */
  x402: 'x402/payment',
  /** x402 v1, base64, by Vercel's `x402-mcp`. */
  x402V1: 'x402.payment',
  /** MPP's, an object. */
  mpp: 'org.paymentauth/credential',
  /** Ours: what HTTP carries in `Authorization`. */
  own: 'tollkeeper/authorization',
} as const

/** In a result that asks for payment. */
export const demandKeys = {
  /** Cloudflare's `agents` reads nothing else. */
  agents: 'x402/error',
  mpp: 'org.paymentauth/payment-required',
  /** Our own body of a 402. */
  own: 'tollkeeper/challenge',
  /** Ours: why there is neither a result nor a price, in the form of problem+json. */
  problem: 'tollkeeper/problem',
} as const

/** In a paid result. */
export const receiptKeys = {
  x402: 'x402/payment-response',
  x402V1: 'x402.payment-response',
  mpp: 'org.paymentauth/receipt',
  /** Ours: the contents of HTTP's `Service-…` headers. */
  own: 'tollkeeper/receipt',
} as const

/** Ours: this result was given before, to the same payment. */
export const replayedKey = 'tollkeeper/replayed'

/** In a call: its trace (W3C), under the key of OpenTelemetry's conventions for MCP. */
export const traceparentKey = 'traceparent'

/** The extension of x402 by which a client shows that it reads `resultType: "payment_required"`. Experimental. */
export const x402Extension = 'org.x402/payment'
/** By this key a client of MCP's draft sends its capabilities with each call. */
export const capabilitiesKey = 'io.modelcontextprotocol/clientCapabilities'

/** MPP's JSON-RPC error, which is also that of URL elicitation. */
export const mppErrorCode = -32042

/** The contents of `_meta`. Whoever sent it may have written anything. */
export type Meta = Readonly<Record<string, unknown>>
