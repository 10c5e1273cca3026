import { type ErrorCode, errorCodes } from '../protocol/errors.ts'
import { requireProvider } from './gate.ts'
import type { GatewayClientOptions } from './gatewayClient.ts'
import { createPasses, endedMs } from './passes.ts'
import { toUsedPass, type UsedPass } from './usedPass.ts'
import { createWarnings, type WarningOptions } from './warnings.ts'

export type { UsedPass }

/** Options of {@link createPassGate}. */
export type PassGateOptions = WarningOptions &
  Pick<GatewayClientOptions, 'fetch'> & {
    /** The provider's API key. A read-only key is enough, except for passes that buy a number of requests. */
    apiKey: string
    /** The endpoints whose passes this gate accepts. */
    endpointIds: readonly string[]
    /** Origin that buyers call. A payer's proof must name it. Default: the origin of the endpoint's registered URL. */
    publicUrl?: string
    /** Timeout in ms of each call to the gateway, including its retries. Default 10,000. */
    timeout?: number
  }

/** The result of {@link PassGate.check}. */
export type PassCheck =
  | {
      isOpen: true
      pass: UsedPass
      /** Cancels the counting of this request. Call it if the request was not served. Has no effect on a pass that is limited only by time. */
      giveBack: () => Promise<void>
    }
  | {
      isOpen: false
      code: ErrorCode
      /** HTTP status for the code: 402, or 503 if the check needs the gateway and the gateway isn't responding. */
      status: number
      /** The reason, in words for the buyer. */
      detail: string
    }

/** Checks passes outside of ordinary requests, for example when a WebSocket opens. */
export type PassGate = {
  /**
   * Checks a pass. Never throws, even if the input is invalid or the gateway isn't responding.
   *
   * @param header the request's header `Service-Pass`, or the same text from another place. Browsers can't set headers for a WebSocket, but they can
   * send the text as a subprotocol or in a first message.
   */
  check(header: string | null | undefined): Promise<PassCheck>
  /**
   * Watches the pass of an open connection. Calls `onEnd` when the pass expires, and within a minute after the pass was refunded or its payment was
   * voided or failed.
   *
   * @returns a function that stops watching. Call it when the connection closes.
   */
  watch(pass: Pick<UsedPass, 'paymentId' | 'expiresAt'>, onEnd: () => void): () => void
}

/**
 * Creates a gate that accepts requests with a pass of one of these endpoints. Use it for WebSockets and other connections that `requirePayment`
 * doesn't handle. Buyers buy the pass at an ordinary endpoint whose `pricing.pass` sells it.
 *
 * Check the pass once, when the connection opens. `watch` reports when to close the connection. For a pass that buys a number of requests, each check
 * counts as one request.
 *
 * @throws {TypeError} for an invalid `gatewayUrl`, an empty `providerId` or `apiKey`, or without endpoints.
 * @example
 * import { createServer } from 'node:http'
 * import { createPassGate } from '@tollkeeper/sdk/pass'
 *
 * const gate = createPassGate({
 *   gatewayUrl: 'https://gateway.example',
 *   providerId: 'prov_1',
 *   apiKey: process.env.TOLLKEEPER_API_KEY ?? 'tk_…',
 *   endpointIds: ['ep_1'],
 * })
 * createServer().on('upgrade', async (request, socket) => {
 *   const checked = await gate.check(request.headers['service-pass']?.toString())
 *   if (!checked.isOpen) return socket.end(`HTTP/1.1 ${checked.status} ${checked.code}\r\n\r\n`)
 *   socket.on('close', gate.watch(checked.pass, () => socket.destroy()))
 *   // Hand the socket to a WebSocket server.
 * })
 */
export function createPassGate(options: PassGateOptions): PassGate {
  const { gatewayUrl, providerId, apiKey, endpointIds, publicUrl, timeout = 10_000, fetch } = options
  requireProvider(options)
  if (!apiKey)
    throw new TypeError('apiKey is missing: the gateway requires it to list the passes that have ended')
  if (endpointIds.length === 0)
    throw new TypeError('endpointIds is empty: list the endpoints whose passes this gate accepts')
  const origin = publicUrl === undefined ? undefined : new URL(publicUrl).origin
  const warnings = createWarnings(options)
  const passes = createPasses({
    gateway: {
      gatewayUrl,
      apiKey,
      timeoutMs: timeout,
      onFailure: warnings.onFailure,
      ...(fetch && { fetch }),
    },
    providerId,
    warnings,
  })
  return {
    watch({ paymentId, expiresAt }, onEnd) {
      let timer: ReturnType<typeof setTimeout>
      let isOver = false
      const look = async () => {
        const hasEnded = expiresAt.getTime() <= Date.now() || (await passes.hasEnded(paymentId))
        if (isOver) return
        if (!hasEnded) return wait()
        isOver = true
        onEnd()
      }
      const wait = () => {
        timer = setTimeout(look, Math.min(endedMs, Math.max(0, expiresAt.getTime() - Date.now())))
        // A timer must not keep a provider's process alive.
        if (typeof timer === 'object') timer.unref()
      }
      wait()
      return () => {
        isOver = true
        clearTimeout(timer)
      }
    },
    async check(header) {
      if (!header)
        return refuse('pass_invalid', 'The pass is missing: buy one, and send it in the Service-Pass header')
      const verdict = await passes.check({ header, endpointIds, origin })
      if (verdict.kind === 'unavailable') return refuse('dependency_unavailable', verdict.detail)
      if (verdict.kind === 'refused') return refuse(verdict.code, verdict.detail)
      return {
        isOpen: true,
        pass: toUsedPass(verdict.claims, verdict.left),
        giveBack: verdict.giveBack ?? (async () => {}),
      }
    },
  }
}

function refuse(code: ErrorCode, detail: string): PassCheck {
  const { status, title } = errorCodes[code]
  return { isOpen: false, code, status, detail: detail || title }
}
