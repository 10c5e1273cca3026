import type { Client as McpClient } from '@modelcontextprotocol/sdk/client/index.js'
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { type Client, toError } from '../client/createClient.ts'
import { NetworkError, RequestTimeoutError, settlesUntil } from '../client/errors.ts'
import type { Asset } from '../client/exactOffers.ts'
import type { Asked } from '../client/offers.ts'
import type { Paid } from '../client/outcome.ts'
import { createPaymentFlow, type PaymentOptions } from '../client/paymentFlow.ts'
import type { PaymentHeader, SignedPayment } from '../client/signedPayment.ts'
import { type Deadline, startDeadline, toNetworkError } from '../client/transport.ts'
import { decodeBase64 } from '../protocol/bytes.ts'
import { isRecord, parseJson } from '../protocol/fields.ts'
import { toolResource } from '../protocol/toolResource.ts'
import { readErrorReply, readReply, type ToolReply } from './demands.ts'
import { paymentKeys } from './metaKeys.ts'
import { readMppHeader, readMppOffer } from './mpp.ts'

/** Options of {@link payingMcpClient}: how it pays, and how much at most, as for `createClient`. */
export type PayingMcpOptions = PaymentOptions & {
  /**
   * URL of the MCP server, by which `allowedHosts` and limits a host go. Default: all servers without one are the host `tool`, which
   * no `allowedHosts` names. The URL for `onPayment` has the tool's name behind its `#`.
   */
  serverUrl?: string
  /** Milliseconds for which a payment with a pending settlement is presented again. Default 60,000. */
  pendingTimeout?: number
  /** Asks the gateway for its keys and tabs, instead of the global `fetch`. */
  fetch?: typeof globalThis.fetch
}

/** An MCP client that pays. `callTool` throws a `ClientError` if it can't or may not pay. */
export type PayingMcpClient<Wrapped> = Wrapped & {
  /** The open tabs, as in `createClient`'s clients. */
  tabs: Client['tabs']
  /** Closes all tabs, each with exactly what was bought on it. `close()` is the MCP client's own. */
  closeTabs: Client['close']
}

type CallTool = McpClient['callTool']
type CallParams = Parameters<CallTool>[0]
type CallOptions = NonNullable<Parameters<CallTool>[2]>

/** Sends a call with more in its `_meta`. */
type Ask = (meta: Record<string, unknown>, within: Deadline) => Promise<ToolReply>

/** Codes of `@modelcontextprotocol/sdk` for calls without an answer. */
const [connectionClosed, requestTimeout, unexpectedContent] = [-32000, -32001, -1]

/**
 * Has an MCP client of `@modelcontextprotocol/sdk` pay for tools that ask for it, with the checks and limits of `createClient`. It pays
 * Tollkeeper's sellers, on tabs if they are offered; with the option `otherSellers` also others that take x402's `exact` or MPP's
 * `charge` in USDC.
 *
 * `callTool` is called as before, and returns the paid call's result as it came, receipts in its `_meta`. The client's other methods
 * stay as they are, and the client that was passed goes on without paying. If the answer to a paid call was lost, the next call of the
 * same tool with the same arguments presents the same payment, and signs nothing. It does the same if a seller of another gateway
 * refused a payment or its tool failed, until that payment can't settle any more.
 *
 * A paid call waits as long as its payment is valid, from one minute to ten, unless its options have a `timeout`.
 *
 * @param client its `callTool` is used, with the options of each call.
 * @throws {TypeError} for a key, account, URL, host or missing `usdcAddress` that it can't work with.
 * @throws {ProtocolError} `unknown_network`; `invalid_field` for a limit that isn't a USDC amount.
 * @example
 * import { Client } from '@modelcontextprotocol/sdk/client/index.js'
 * import { payingMcpClient } from '@tollkeeper/sdk/mcp'
 *
 * export async function askForecast(client: Client) {
 *   const paying = payingMcpClient(client, {
 *     gatewayUrl: 'https://gateway.example',
 *     walletPrivateKey: process.env.WALLET_PRIVATE_KEY,
 *     network: 'base',
 *     maxPaymentUsdc: '0.10',
 *     maxDailyUsdc: '5',
 *     serverUrl: 'https://mcp.example/mcp',
 *   })
 *   return paying.callTool({ name: 'forecast', arguments: { city: 'Lisbon' } })
 * }
 */
export function payingMcpClient<Wrapped extends Pick<McpClient, 'callTool'>>(
  client: Wrapped,
  options: PayingMcpOptions,
): PayingMcpClient<Wrapped> {
  const pay = createToolPayer(options)
  const own = {
    callTool: (async (params, resultSchema, callOptions) =>
      pay.call(params, (one, more) => client.callTool(one, resultSchema, more), callOptions)) as CallTool,
    tabs: pay.tabs,
    closeTabs: pay.close,
  }
  // Methods go on using the client's own fields, so that both can be called at once.
  return new Proxy(client, {
    get(target, name) {
      if (Object.hasOwn(own, name)) return own[name as keyof typeof own]
      const value = Reflect.get(target, name)
      return typeof value === 'function' ? value.bind(target) : value
    },
  }) as PayingMcpClient<Wrapped>
}

type ToolAsked = Asked & { seller: string; body: string }

/** Calls a tool without paying. */
type SendCall = (params: CallParams, options: CallOptions) => ReturnType<CallTool>

function createToolPayer(options: PayingMcpOptions) {
  const { serverUrl, pendingTimeout = 60_000, warn = console.warn } = options
  const flow = createPaymentFlow(options, options.fetch ?? globalThis.fetch.bind(globalThis))
  if (serverUrl !== undefined && !URL.canParse(serverUrl)) {
    throw new TypeError(`serverUrl must be a URL, got ${serverUrl}`)
  }
  /** Whether the server reads payments of x402 v2 as base64 only. Its last demand says so. */
  let readsBase64 = false

  async function call(params: CallParams, sendCall: SendCall, callOptions: CallOptions = {}) {
    // The caller presents a payment itself.
    if (Object.values(paymentKeys).some((key) => params._meta?.[key] !== undefined))
      return sendCall(params, callOptions)
    const asked = askedOf(params)
    const deadline = startDeadline(undefined, callOptions.signal)
    const ask: Ask = async (meta, within) => {
      const _meta = { ...params._meta, ...meta }
      const paid = Object.keys(_meta).length > 0 ? { ...params, _meta } : params
      try {
        const timeout = callOptions.timeout ?? timeoutOf(within.payment)
        const result = await sendCall(paid, { ...callOptions, timeout, signal: within.signal })
        return readReply(result as CallToolResult, asked.url)
      } catch (error) {
        const reply = readErrorReply(error, asked.url)
        if (reply) return reply
        throw toCallError(error, asked, within, callOptions.timeout ?? timeoutOf(within.payment))
      }
    }
    return take(asked, await payFor(asked, ask, deadline), deadline)
  }

  /** Calls, and pays if the answer asks for it. */
  async function payFor(asked: ToolAsked, ask: Ask, deadline: Deadline): Promise<Paid<ToolReply>> {
    const send = (header: PaymentHeader, within: Deadline) => ask(metaOf(header, readsBase64), within)
    const attempt = { asked, send, deadline, pendingTimeoutMs: pendingTimeout }
    const remembered = await flow.payRemembered(attempt)
    if (remembered) return remembered
    const answer = await ask({}, deadline)
    const { demand } = answer
    if (!demand) return { answer, payment: undefined }
    if (demand.required) readsBase64 = demand.isBase64
    const readOffers = (asset: Asset) => demand.mpp.flatMap((one) => readMppOffer(one, asset) ?? [])
    return flow.pay({ ...attempt, readOffers }, answer)
  }

  async function take(asked: ToolAsked, paid: Paid<ToolReply>, deadline: Deadline) {
    const { answer, payment } = paid
    const { receiptError } = await flow.takeReceipt(answer, payment, deadline)
    if (receiptError !== undefined) warn(`[tollkeeper] A receipt was not kept: ${receiptError}`)
    const { status, result, headers } = answer
    if (status !== 200 || !result) throw toError(paid, flow.readReport(paid))
    // A tool that fails isn't charged as a rule, but another gateway's seller may still settle the payment.
    if (payment?.header && result.isError && !headers.has('payment-response'))
      await flow.remember(asked, payment)
    return result
  }

  function askedOf({ name, arguments: given = {} }: CallParams): ToolAsked {
    const url = toolResource(name)
    const asked = { method: 'POST', url, seller: url, body: JSON.stringify(given) }
    if (serverUrl === undefined) return asked
    const seller = new URL(serverUrl)
    seller.hash = name
    return { ...asked, seller: seller.href }
  }

  return { call, tabs: flow.tabs, close: flow.close }
}

/** How long a call may take: by default as the client of MCP has it, and a paid one as long as its payment is valid, within limits. */
const usualTimeoutMs = 60_000
const longestTimeoutMs = 600_000

/** A paid tool that takes longer than usual would run on, and be charged. */
function timeoutOf(payment: SignedPayment | undefined): number {
  if (!payment) return usualTimeoutMs
  const validMs = settlesUntil(payment) * 1_000 - Date.now()
  return Math.min(Math.max(validMs, usualTimeoutMs), longestTimeoutMs)
}

/** Writes a payment in the form of a call's `_meta`. */
function metaOf({ name, value }: PaymentHeader, readsBase64: boolean): Record<string, unknown> {
  if (name === 'x-payment') return { [paymentKeys.x402V1]: value }
  if (name === 'payment-signature') {
    // Here it may be longer than a header, because it repeats what its seller wrote.
    const payment = readsBase64 ? value : parseJson(new TextDecoder().decode(decodeBase64(value)))
    return { [paymentKeys.x402]: payment }
  }
  const credential = readMppHeader(value)
  return credential === undefined ? { [paymentKeys.own]: value } : { [paymentKeys.mpp]: credential }
}

/** Before anything was shown, errors are the client's own. */
function toCallError(
  error: unknown,
  { seller }: { seller: string },
  within: Deadline,
  timeout: number,
): unknown {
  const { payment, signal } = within
  if (!payment) return error
  if (signal.aborted) return toNetworkError(error, seller, within)
  const { code } = isRecord(error) ? error : {}
  if (code === requestTimeout) return new RequestTimeoutError(timeout, { cause: error, payment })
  // An error of the server itself is no failure of the connection; an HTTP status or a page comes from what stands before it.
  const isSaid = typeof code === 'number' && ![connectionClosed, unexpectedContent].includes(code)
  if (isSaid && !(code >= 300 && code <= 599)) return error
  return new NetworkError(seller, { cause: error, payment })
}
