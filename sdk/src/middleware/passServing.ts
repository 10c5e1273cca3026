import type { ErrorCode } from '../protocol/errors.ts'
import { decodePass, passHeader } from '../protocol/pass.ts'
import type { createChallenges } from './challenges.ts'
import { type GateDecision, refuse, type Served } from './decision.ts'
import type { GatewayAnswer, GatewayClientOptions } from './gatewayClient.ts'
import type { Passes } from './passes.ts'
import type { WaitUntil } from './recovery.ts'
import { toUsedPass, type UsedPass } from './usedPass.ts'
import type { Warnings } from './warnings.ts'

/** Header with the number of requests left on a pass that counts them. */
export const passLeftHeader = 'Service-Pass-Left'

/** A request with a pass instead of a payment. */
type PassRequest = { method: string; url: string; pass?: string | null | undefined }

type PassServingOptions<Asked extends PassRequest> = {
  providerId: string
  /** Id of the endpoint. Default: the endpoint of the request's route. */
  endpointId?: string
  publicUrl?: string
  challenges: ReturnType<typeof createChallenges>
  warnings: Warnings
  /** Requests a payment, and reports why the pass isn't valid here. */
  demand: (request: Asked, resource: string, code: ErrorCode, detail?: string) => Promise<GateDecision>
  /** Returns the response to send if the gateway returned no challenge. */
  refuseWithout: (answer: GatewayAnswer | undefined) => GateDecision
}

/**
 * Serves requests that have a pass of their endpoint. The first such request loads the code that checks passes.
 *
 * @returns undefined if there is no API key, which the gateway requires to list the passes that have ended.
 */
export function createPassServing<Asked extends PassRequest>(
  { apiKey, ...rest }: GatewayClientOptions,
  {
    providerId,
    endpointId,
    publicUrl,
    challenges,
    warnings,
    demand,
    refuseWithout,
  }: PassServingOptions<Asked>,
) {
  if (!apiKey) return undefined
  const gateway = { ...rest, apiKey }
  const origin = publicUrl === undefined ? undefined : new URL(publicUrl).origin
  let loading: Promise<Passes> | undefined
  const load = () => {
    loading ??= import('./passes.ts').then(({ createPasses }) =>
      createPasses({ gateway, providerId, warnings }),
    )
    return loading
  }

  /** Returns the endpoint of a request's route. While the gateway isn't responding, returns the last known endpoint. */
  async function findEndpoint(request: Asked, resource: string): Promise<string | GateDecision> {
    const known = endpointId ?? challenges.endpointOf(request)
    if (known) return known
    const { answer, challenge } = await challenges.ask(request, resource, undefined)
    const isAway = !answer || answer.status >= 500
    const last = isAway ? challenges.lastEndpointOf(request) : undefined
    return challenge?.endpointId ?? last ?? refuseWithout(answer)
  }

  return async (
    request: Asked,
    resource: string,
    waitUntil: WaitUntil | undefined,
  ): Promise<GateDecision> => {
    const endpoint = await findEndpoint(request, resource)
    if (typeof endpoint !== 'string') return endpoint
    const passes = await load()
    const header = request.pass ?? ''
    const verdict = await passes.check({ header, endpointIds: [endpoint], origin, waitUntil })
    if (verdict.kind === 'unavailable') return refuse('dependency_unavailable', verdict.detail, 1)
    if (verdict.kind === 'refused')
      return demand(request, resource, verdict.code, verdict.detail || undefined)
    const { claims, left, giveBack } = verdict
    const headers: Record<string, string> = left === undefined ? {} : { [passLeftHeader]: String(left) }
    return {
      kind: 'serve',
      payment: {
        verified: true,
        // The request that paid for the pass has the receipt of its payment.
        receipt: '',
        paymentId: claims.jti,
        pass: toUsedPass(claims, left),
        charge: async () => false,
      },
      headers,
      giveBack: async () => {
        await giveBack?.()
        if (left !== undefined) headers[passLeftHeader] = String(left + 1)
      },
      waitUntil,
    }
  }
}

/**
 * Returns the pass that a payment bought, from the gateway's response: as an object for the handler, and as a header for the buyer.
 */
export function boughtPass(pass: unknown): { pass: UsedPass; headers: Served['headers'] } | undefined {
  const claims = typeof pass === 'string' ? decodePass(pass) : undefined
  if (!claims) return undefined
  const left = claims.requests === undefined ? undefined : claims.requests - 1
  return { pass: toUsedPass(claims, left), headers: { [passHeader]: String(pass) } }
}
