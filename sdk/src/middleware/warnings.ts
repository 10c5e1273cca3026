import { type ErrorCode, isErrorCode } from '../protocol/errors.ts'
import type { Failure, GatewayAnswer } from './gatewayClient.ts'

/** What no gateway says of itself. */
type OwnCode =
  | 'gateway_unreachable'
  | 'gateway_silent'
  | 'gateway_redirects'
  | 'not_a_gateway'
  | 'payee_mismatch'
  | 'no_api_key'
  | 'mock_payments'
  | 'answer_store_failed'

type WarningCode = ErrorCode | OwnCode

/** Refusals that a provider can put right: what is wrong, and what to do. Others pass, or are the buyer's. */
const advice: Partial<Record<WarningCode, string>> = {
  gateway_unreachable: 'Nothing listens at gatewayUrl: is it right, and does the gateway run?',
  gateway_silent: "No answer of the gateway's came: check gatewayUrl, the network between, and timeout.",
  gateway_redirects:
    'The gateway redirects, which is not followed: set gatewayUrl to where it leads (https?).',
  not_a_gateway: 'What answers there is no gateway, or not by this path: check gatewayUrl.',
  not_found: 'The gateway has no such path: gatewayUrl is its PUBLIC_URL, with nothing after that.',
  mock_payments: 'mockPayments is on in production: nobody pays. Leave it out.',
  invalid_json: 'The gateway could not read the request: check that both are of one version.',
  invalid_request: 'The gateway does not take an option as it is written: check providerId and endpointId.',
  invalid_field:
    'The gateway does not take an option as it is written: check providerId, endpointId and pricing.',
  unauthorized: 'The gateway does not know the API key: check apiKey; a revoked one has to be replaced.',
  forbidden:
    "The API key is another provider's, or may only read: check that apiKey and providerId belong together.",
  unknown_provider:
    'The gateway has no such provider: check providerId, and that gatewayUrl is where it was registered.',
  unknown_endpoint:
    'No endpoint of this provider fits: register it, or check endpointId, the method, and basePath where a proxy strips one.',
  unknown_wallet: 'The endpoint has no such wallet: register one for it.',
  unknown_payment:
    "The gateway has no such payment of this provider's: check that apiKey and providerId belong together.",
  endpoint_disabled: 'The endpoint is disabled: enable it in the dashboard.',
  provider_disabled: 'The provider is disabled: ask who runs the gateway.',
  wallet_retired: "The endpoint's wallet is retired: give the endpoint another one.",
  unknown_network: 'There is no network of that name: check network.',
  network_not_served:
    'The gateway does not serve this network: check network, or move the endpoint to a wallet on another.',
  network_not_accepted:
    'The endpoint has no wallet on this network: check network, or add a wallet of that network to it.',
  price_below_minimum: 'The price is below the least that the gateway takes: raise pricing.',
  price_below_registered:
    "The price is below the registered one, which needs this provider's own apiKey: give it, raise pricing, or change the endpoint.",
  payee_mismatch:
    "The gateway asks buyers to pay an address that payTo doesn't name: add the endpoint's wallet, or correct that.",
  payee_refused: "The endpoint's wallet can't be paid: give the endpoint another one.",
  provider_limit_exceeded:
    'Too much of this provider waits to be settled: it goes on as that settles; or ask who runs the gateway.',
  rate_limited: 'The gateway gets more requests than it takes: slow down, or ask who runs it for more.',
  answer_store_failed:
    'answers.store failed: an answer that gets lost meanwhile is not given again. Payments go on.',
  no_api_key:
    'A request failed and its payment was not voided, because there is no apiKey: the buyer is charged.',
}

/** Said when a gateway refuses a provider and its answer has no code. */
const unknownRefusal = 'The gateway refuses this provider: check the options against what is registered.'

/** How long until a warning may be repeated. */
const quietMs = 3_600_000

export type WarningOptions = {
  gatewayUrl: string
  providerId: string
  apiKey?: string | undefined
  warn?: ((message: string) => void) | undefined
}

export type Warnings = ReturnType<typeof createWarnings>

/**
 * Warns a provider in its log of what buyers can't tell it: each reason once, and again after an hour. No line holds the key, and
 * nothing from outside can start a line of its own.
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
      // A listener must not stop a sale.
    }
  }

  /** @param facts what was asked, or what the gateway said. */
  function tell(code: WarningCode, facts?: string): void {
    const text = advice[code]
    if (text) say(code, text, facts)
  }

  return {
    tell,
    /** Tells that there was no answer. */
    onFailure(failure: Failure): void {
      if (failure.kind === 'refused') tell('gateway_unreachable')
      else if (failure.isRedirect) tell('gateway_redirects')
      else tell('gateway_silent', failure.reason)
    },
    checkMock(): void {
      const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } }
      if (process?.env?.NODE_ENV === 'production') tell('mock_payments')
    },
    /** Tells of an answer that refuses, if its reason is one that the provider can put right. */
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
