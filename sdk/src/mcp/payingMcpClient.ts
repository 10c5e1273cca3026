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

/** Options of {@link payingMcpClient}. The options for payments and limits are the same as in `createClient`. */
export type PayingMcpOptions = PaymentOptions & {
  /**
   * URL of the MCP server, to which `limits.hosts` and `limits.perDayAndHost` apply. Default: all servers without a URL count as the host `tool`,
   * which `limits.hosts` can't contain. `limits.onPayment` gets this URL with the tool's name after `#`.
   */
  serverUrl?: string
  /** Maximum time in ms during which the client presents a payment again while its settlement is pending. Default 60,000. */
  pendingTimeout?: number
  /** A `fetch` for requests to the gateway, about keys and tabs. Default: the global `fetch`. */
  fetch?: typeof globalThis.fetch
}

/** An MCP client that pays. `callTool` throws a `ClientError` if the client can't or must not pay. */
export type PayingMcpClient<Wrapped> = Wrapped & {
  /** Returns the open tabs, like clients of `createClient`. */
  tabs: Client['tabs']
  /** Closes all tabs, each with exactly what was bought on it. It doesn't close the MCP client: `close()` does. */
  closeTabs: Client['close']
}

type CallTool = McpClient['callTool']
type CallParams = Parameters<CallTool>[0]
type CallOptions = NonNullable<Parameters<CallTool>[2]>

/** Sends a call with additional fields in `_meta`. */
type Ask = (meta: Record<string, unknown>, within: Deadline) => Promise<ToolReply>

/** Error codes of `@modelcontextprotocol/sdk` for calls that got no response. */
const [connectionClosed, requestTimeout, unexpectedContent] = [-32000, -32001, -1]

/**
 * Makes an MCP client of `@modelcontextprotocol/sdk` pay for tools that require payment, with the checks and limits of `createClient`. It pays
 * Tollkeeper's sellers, on tabs if they offer them. With the option `otherSellers`, it also pays other sellers that accept x402's `exact` or MPP's
 * `charge` in USDC.
 *
 * Call `callTool` as before. It returns the result of the paid call unchanged, with receipts in `_meta`. The client's other methods are unchanged,
 * and the client that you passed still works without paying. If the response to a paid call is lost, the next call of the same tool with the same
 * arguments presents the same payment, and signs nothing. If a seller of another gateway refuses a payment, or its tool fails, later calls with the
 * same arguments also present the same payment, until the payment expires.
 *
 * The timeout of a paid call is the call's own option `timeout`, if it is set. Otherwise it is the validity of the payment, but at least one minute
 * and at most ten minutes.
 *
 * @param client the client whose `callTool` makes the calls. It gets the options that the caller passes.
 * @throws {TypeError} for an invalid key, account, URL or host, or a missing `usdcAddress`.
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
 *     limits: { perPayment: '0.10', perDay: '5' },
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
  // Methods continue to use the client's own fields, so that the paying client and the original client can be used at the same time.
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
  /** Whether the server reads payments of x402 v2 only as base64. The server's last request for payment shows this. */
  let readsBase64 = false

  async function call(params: CallParams, sendCall: SendCall, callOptions: CallOptions = {}) {
    // The caller already presents a payment, so send the call unchanged.
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

  /** Calls a tool, and pays if the response requests it. */
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
    if (status !== 200 || !result) throw toError(paid, await flow.readReport(paid))
    // A call whose tool failed usually isn't charged, but a seller of another gateway may still settle the payment.
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

/** Timeout in ms of an unpaid call, the same as in the MCP client. It is also the minimum for a paid call. */
const usualTimeoutMs = 60_000
const longestTimeoutMs = 600_000

/** Returns the timeout of a call. It is longer for a paid call: if the caller stopped waiting, the tool would continue to run and be charged. */
function timeoutOf(payment: SignedPayment | undefined): number {
  if (!payment) return usualTimeoutMs
  const validMs = settlesUntil(payment) * 1_000 - Date.now()
  return Math.min(Math.max(validMs, usualTimeoutMs), longestTimeoutMs)
}

/** Returns a payment in the form of `_meta`. */
function metaOf({ name, value }: PaymentHeader, readsBase64: boolean): Record<string, unknown> {
  if (name === 'x-payment') return { [paymentKeys.x402V1]: value }
  if (name === 'payment-signature') {
    // A payment contains a copy of what the seller sent, so it may be too long for an HTTP header. `_meta` has no such limit.
    const payment = readsBase64 ? value : parseJson(new TextDecoder().decode(decodeBase64(value)))
    return { [paymentKeys.x402]: payment }
  }
  const credential = readMppHeader(value)
  return credential === undefined ? { [paymentKeys.own]: value } : { [paymentKeys.mpp]: credential }
}

/** Returns the MCP client's own error if no payment was sent, or if the server itself sent the error. Otherwise adds the payment to the error. */
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
  // An error of the MCP server itself is not a connection failure. An HTTP status or an HTML page comes from a server in front of the MCP server.
  const isSaid = typeof code === 'number' && ![connectionClosed, unexpectedContent].includes(code)
  if (isSaid && !(code >= 300 && code <= 599)) return error
  return new NetworkError(seller, { cause: error, payment })
}
