/*
 * The keys in `_meta` under which MCP programs put payments. Sources: agents 0.32.0, x402-mcp 0.0.5, mppx 0.11.0 and specs/transports-v2/mcp.md of
 * x402.
 */

/** Keys of the payment in a call. */
export const paymentKeys = {
  /** x402 v2. An object according to the specification, base64 in Cloudflare's `agents`. */
  x402: 'x402/payment',
  /** x402 v1 in base64, used by Vercel's `x402-mcp`. */
  x402V1: 'x402.payment',
  /** MPP's payment, an object. */
  mpp: 'org.paymentauth/credential',
  /** Our own: the contents of HTTP's `Authorization` header. */
  own: 'tollkeeper/authorization',
} as const

/** The keys under which the result of an unpaid call contains the request for payment. */
export const demandKeys = {
  /** The only key that Cloudflare's `agents` reads. */
  agents: 'x402/error',
  mpp: 'org.paymentauth/payment-required',
  /** Our own: the body of a 402. */
  own: 'tollkeeper/challenge',
  /** Our own: why there is neither a result nor a price, in the form of problem+json. */
  problem: 'tollkeeper/problem',
} as const

/** Keys of the receipt in a paid result. */
export const receiptKeys = {
  x402: 'x402/payment-response',
  x402V1: 'x402.payment-response',
  mpp: 'org.paymentauth/receipt',
  /** Our own: the contents of HTTP's `Service-…` headers. */
  own: 'tollkeeper/receipt',
} as const

/** Our own: whether this result is a replay for the same payment. */
export const replayedKey = 'tollkeeper/replayed'

/** In a call: the W3C trace of the call, under the key that OpenTelemetry defines for MCP. */
export const traceparentKey = 'traceparent'

/** The x402 extension that a client declares if it reads `resultType: "payment_required"`. Experimental. */
export const x402Extension = 'org.x402/payment'
/** The key under which a client of MCP's draft version sends its capabilities with each call. */
export const capabilitiesKey = 'io.modelcontextprotocol/clientCapabilities'

/** MPP's JSON-RPC error code. URL elicitation uses the same code. */
export const mppErrorCode = -32042

/** The contents of `_meta`. They are untrusted. */
export type Meta = Readonly<Record<string, unknown>>
