import type { Address } from 'viem'
import { type Challenge, parseChallenge } from '../protocol/challenge.ts'
import type { NetworkName } from '../protocol/networks.ts'
import type { PassTerms } from '../protocol/passTerms.ts'
import { parseTraceparent } from '../protocol/traceparent.ts'
import { type GatewayAnswer, type GatewayClientOptions, postToGateway } from './gatewayClient.ts'
import { toWirePrice } from './pricing.ts'
import type { Warnings } from './warnings.ts'

export type ChallengesOptions = {
  providerId: string
  endpointId?: string
  /**
   * The URL that buyers call, from the seller's configuration. If the seller has endpoints on several hosts, this URL's host selects the endpoint.
   */
  publicUrl?: string
  network?: NetworkName
  ownWallets?: readonly Address[]
  /** The pass that the price buys. Undefined: the price buys one request. */
  pass?: PassTerms | undefined
  /** Reports why the gateway returned no challenge. */
  warnings: Pick<Warnings, 'tell' | 'explain'>
}

type Asker = { method: string; url: string; traceparent?: string | null | undefined }

/** The gateway's response to `/challenge`, and the challenge if the response contains one. */
export type Asked = { answer: GatewayAnswer | undefined; challenge?: Challenge }

/** The facts about a route that its challenge contains. */
export type RouteTerms = { endpointId: string; network: string }

const endpointTtlMs = 60_000
/** Maximum time in ms for which passes are accepted at a route while the gateway isn't responding. */
const outageMs = 3_600_000
const maxCachedEndpoints = 1000

/** Creates a function that requests challenges for one provider from the gateway. */
export function createChallenges(gateway: GatewayClientOptions, options: ChallengesOptions) {
  const { providerId, endpointId, publicUrl, network, pass, warnings } = options
  const payees = options.ownWallets && new Set(options.ownWallets.map((wallet) => wallet.toLowerCase()))
  const endpoints = new Map<string, RouteTerms & { expiresAt: number }>()

  function remember(request: Asker, terms: RouteTerms): void {
    // Only routes that the gateway knows are stored here. The limit is still needed, because the path of an endpoint may contain patterns that match
    // any number of routes.
    if (endpoints.size >= maxCachedEndpoints) endpoints.delete(endpoints.keys().next().value ?? '')
    endpoints.set(routeOf(request), { ...terms, expiresAt: Date.now() + endpointTtlMs })
  }

  function known(request: Asker): RouteTerms | undefined {
    const cached = endpoints.get(routeOf(request))
    return cached && cached.expiresAt > Date.now() ? cached : undefined
  }

  return {
    /**
     * Requests a challenge, and remembers the route's endpoint for later verifications.
     *
     * @param price USDC base units. Undefined: the registered price.
     */
    async ask(request: Asker, resource: string, price: bigint | undefined): Promise<Asked> {
      const answer = await postToGateway(gateway, {
        path: '/challenge',
        body: {
          providerId,
          method: request.method,
          resource,
          pricing: toWirePrice(price, pass),
          ...(endpointId && { endpointId }),
          ...(publicUrl && { publicUrl: new URL(publicUrl).origin }),
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
        const { network } = challenge.accepts[0]
        remember(request, { endpointId: challenge.endpointId, network })
        return { answer, challenge }
      } catch {
        warnings.tell('not_a_gateway')
        return { answer }
      }
    },
    /** Returns the endpoint of the request's route, if a challenge was requested within the last minute. */
    endpointOf: (request: Asker): string | undefined => known(request)?.endpointId,
    /** Returns the route's endpoint and default network, if a challenge was requested within the last minute. */
    termsOf: known,
    /** Returns the last known endpoint of the route. Used while the gateway isn't responding. */
    lastEndpointOf(request: Asker): string | undefined {
      const cached = endpoints.get(routeOf(request))
      return cached && cached.expiresAt + outageMs > Date.now() ? cached.endpointId : undefined
    },
    forget(request: Asker): void {
      endpoints.delete(routeOf(request))
    },
  }
}

function routeOf({ method, url }: Asker): string {
  return `${method} ${new URL(url).pathname}`
}
