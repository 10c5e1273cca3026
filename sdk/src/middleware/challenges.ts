import type { Address } from 'viem'
import { type Challenge, parseChallenge } from '../protocol/challenge.ts'
import type { NetworkName } from '../protocol/networks.ts'
import { parseTraceparent } from '../protocol/traceparent.ts'
import { type GatewayAnswer, type GatewayClientOptions, postToGateway } from './gatewayClient.ts'
import type { Warnings } from './warnings.ts'

export type ChallengesOptions = {
  providerId: string
  pricing?: { usdcPerUnit: string } | undefined
  endpointId?: string
  network?: NetworkName
  payTo?: readonly Address[]
  /** Reports why there is no challenge. */
  warnings: Pick<Warnings, 'tell' | 'explain'>
}

type Asker = { method: string; url: string; traceparent?: string | null | undefined }

/** The gateway's answer to `/challenge`, and the challenge, if it is one. */
export type Asked = { answer: GatewayAnswer | undefined; challenge?: Challenge }

const endpointTtlMs = 60_000
const maxCachedEndpoints = 1000

/** Asks the gateway for challenges of one provider. */
export function createChallenges(gateway: GatewayClientOptions, options: ChallengesOptions) {
  const { providerId, pricing, endpointId, network, warnings } = options
  const payees = options.payTo && new Set(options.payTo.map((wallet) => wallet.toLowerCase()))
  const endpoints = new Map<string, { endpointId: string; expiresAt: number }>()

  function remember(request: Asker, endpointId: string): void {
    // Only routes that the gateway knows get here. The bound is for endpoints whose paths hold patterns.
    if (endpoints.size >= maxCachedEndpoints) endpoints.delete(endpoints.keys().next().value ?? '')
    endpoints.set(routeOf(request), { endpointId, expiresAt: Date.now() + endpointTtlMs })
  }

  return {
    /** Asks for a challenge, and remembers the route's endpoint for the verification that follows. */
    async ask(request: Asker, resource: string): Promise<Asked> {
      const answer = await postToGateway(gateway, {
        path: '/challenge',
        body: {
          providerId,
          method: request.method,
          resource,
          pricing,
          ...(endpointId && { endpointId }),
          ...(network && { network }),
        },
        traceparent: parseTraceparent(request.traceparent)?.text,
      })
      if (answer?.status !== 200) {
        if (answer) warnings.explain(answer, routeOf(request))
        return { answer }
      }
      try {
        const challenge = parseChallenge(answer.body)
        if (payees && !payees.has(challenge.accepts[0].payTo)) {
          warnings.tell('payee_mismatch')
          return { answer }
        }
        remember(request, challenge.endpointId)
        return { answer, challenge }
      } catch {
        warnings.tell('not_a_gateway')
        return { answer }
      }
    },
    /** Which endpoint the request's route is, where that was asked a minute ago or later. */
    endpointOf(request: Asker): string | undefined {
      const cached = endpoints.get(routeOf(request))
      return cached && cached.expiresAt > Date.now() ? cached.endpointId : undefined
    },
    forget(request: Asker): void {
      endpoints.delete(routeOf(request))
    },
  }
}

function routeOf({ method, url }: Asker): string {
  return `${method} ${new URL(url).pathname}`
}
