import { type ErrorCode, isErrorCode } from '../protocol/errors.ts'
import type { Failure, GatewayAnswer } from './gatewayClient.ts'

/** Codes of problems that the middleware itself detects. */
type OwnCode =
  | 'gateway_unreachable'
  | 'gateway_silent'
  | 'gateway_redirects'
  | 'not_a_gateway'
  | 'payee_mismatch'
  | 'no_api_key'
  | 'mock_payments'
  | 'answer_store_failed'
  | 'pricing_failed'
  | 'hook_failed'
  | 'page_failed'

type WarningCode = ErrorCode | OwnCode

/** Advice by error code, for rejections whose cause a provider can correct. Other rejections are temporary, or concern the buyer. */
const advice: Partial<Record<WarningCode, string>> = {
  gateway_unreachable: 'No server listens at gatewayUrl: check the URL, and that the gateway is running.',
  gateway_silent: 'The gateway did not respond: check gatewayUrl, the network connection, and timeout.',
  gateway_redirects:
    'The gateway redirects, but the middleware follows no redirects: set gatewayUrl to the target (https?).',
  not_a_gateway: 'The server at this URL is not a gateway, or the path is wrong: check gatewayUrl.',
  not_found:
    'The gateway has no such path: gatewayUrl must be the gateway’s PUBLIC_URL, without anything after it.',
  mock_payments: 'mockPayments is on in production, so no one pays. Remove it.',
  invalid_json:
    'The gateway could not read the request: check that the middleware and the gateway have the same version.',
  invalid_request: 'The gateway rejects the value of an option: check providerId and endpointId.',
  invalid_field: 'The gateway rejects the value of an option: check providerId, endpointId and pricing.',
  unauthorized: 'The gateway does not know the API key: check apiKey, and replace it if it was revoked.',
  forbidden:
    'The API key belongs to another provider, or is read-only: check that apiKey and providerId belong together.',
  unknown_provider:
    'The gateway has no such provider: check providerId, and that it was registered at gatewayUrl.',
  unknown_endpoint:
    'No endpoint of this provider matches: register it, or check endpointId, the method, and basePath if a proxy strips a prefix.',
  unknown_wallet: 'The endpoint has no such wallet: register one for it.',
  unknown_payment:
    'This provider has no such payment at the gateway: check that apiKey and providerId belong together.',
  endpoint_ambiguous:
    'This provider sells this path on several hosts: set publicUrl to the origin that buyers call, or set endpointId.',
  endpoint_disabled: 'The endpoint is disabled: enable it in the dashboard.',
  provider_disabled: 'The provider is disabled: ask the operator of the gateway.',
  sales_stopped: 'The operator of the gateway has stopped sales: buyers are refused until sales start again.',
  wallet_retired: "The endpoint's wallet is retired: give the endpoint another wallet.",
  unknown_network: 'There is no network with this name: check network.',
  network_not_served:
    'The gateway does not serve this network: check network, or move the endpoint to a wallet on another network.',
  network_not_accepted:
    'The endpoint has no wallet on this network: check network, or add a wallet on that network to the endpoint.',
  price_below_minimum: 'The price is below the gateway’s minimum: raise pricing.',
  price_below_registered:
    "A price below the registered one requires this provider's apiKey: set apiKey, raise pricing, or change the endpoint's price.",
  payee_mismatch:
    "The gateway's challenge pays an address that is not in ownWallets: add the endpoint's wallet to ownWallets, or correct the endpoint.",
  payee_refused: "The endpoint's wallet can't be paid: give the endpoint another wallet.",
  provider_limit_exceeded:
    'Too many payments of this provider wait to be settled: sales continue when some have settled. If that takes too long, ask the operator of the gateway.',
  rate_limited: 'The gateway’s rate limit is reached: slow down, or ask its operator for a higher limit.',
  answer_store_failed:
    'answers.store failed: until it works, a lost response can’t be replayed. Payments continue.',
  pricing_failed:
    'pricing returned no price for a request, so the request was refused: return a price for every request, in time.',
  hook_failed:
    'beforeAccept returned no decision for a request: return one of accept, refuse, free and price within hookTimeout. Until then, onHookFailure decides whether requests are refused or sold.',
  page_failed:
    'The function in page returned no document, so visitors see the default page: correct the function.',
  no_api_key:
    'A request failed and its payment was not voided, because there is no apiKey: the buyer is charged.',
}

/** The advice for a rejection without a code. */
const unknownRefusal = 'The gateway rejects this provider: compare the options with its registration.'

/** Minimum interval in ms between repetitions of a warning. */
const quietMs = 3_600_000

export type WarningOptions = {
  gatewayUrl: string
  providerId: string
  apiKey?: string | undefined
  warn?: ((message: string) => void) | undefined
}

export type Warnings = ReturnType<typeof createWarnings>

/**
 * Creates a function that logs problems which buyers can't report to the provider. Each reason is logged once, and again after an hour. No line
 * contains the API key, and text from third parties can't start a new line.
 */
export function createWarnings({ gatewayUrl, providerId, apiKey, warn = console.warn }: WarningOptions) {
  const { origin, pathname } = new URL(gatewayUrl)
  const gateway = origin + pathname.replace(/\/$/, '')
  const told = new Map<string, number>()

  function say(code: string, text: string, facts: string | undefined): void {
    const now = Date.now()
    if ((told.get(code) ?? Number.NEGATIVE_INFINITY) > now - quietMs) return
    told.set(code, now)
    const more = facts ? ` (${tidy(facts, apiKey)})` : ''
    try {
      warn(`[tollkeeper] ${code}: ${text}${more} [gateway ${gateway}, provider ${tidy(providerId, apiKey)}]`)
    } catch {
      // A listener that throws must not stop a sale.
    }
  }

  /** @param facts details that the warning shows: the affected request, or the gateway's message. */
  function tell(code: WarningCode, facts?: string): void {
    const text = advice[code]
    if (text) say(code, text, facts)
  }

  return {
    tell,
    /** Reports that the gateway did not respond. */
    onFailure(failure: Failure): void {
      if (failure.kind === 'refused') tell('gateway_unreachable')
      else if (failure.isRedirect) tell('gateway_redirects')
      else tell('gateway_silent', failure.reason)
    },
    checkMock(): void {
      const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } }
      if (process?.env?.NODE_ENV === 'production') tell('mock_payments')
    },
    /** Reports a rejection, if the provider can correct its cause. */
    explain({ status, body }: GatewayAnswer, asked?: string): void {
      const { code, detail } = (body ?? {}) as { code?: unknown; detail?: unknown }
      if (!isErrorCode(code)) {
        if (status >= 500) tell('gateway_silent', `status ${status}`)
        else if (status === 404 || status === 405 || status < 400) tell('not_a_gateway', `status ${status}`)
        else if (status !== 429) say(`status_${status}`, unknownRefusal, asked)
        return
      }
      const facts = [asked, detail].filter((fact): fact is string => typeof fact === 'string' && fact !== '')
      if (advice[code]) tell(code, facts.join('; '))
      else if (status === 401 || status === 403 || status === 404) say(code, unknownRefusal, facts.join('; '))
    },
  }
}

function tidy(text: string, secret: string | undefined): string {
  const hidden = secret ? text.replaceAll(secret, '…') : text
  const plain = hidden.replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, ' ').trim()
  return plain.length > 200 ? `${plain.slice(0, 200)}…` : plain
}
