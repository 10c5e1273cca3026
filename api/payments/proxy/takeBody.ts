import { clientAddress } from '@tollkeeper/runtime/clientAddress'
import type { Logger } from '@tollkeeper/runtime/log'
import { readHeaders } from '@tollkeeper/sdk/middleware/gate'
import { type PresentedPayment, readPayment } from '@tollkeeper/sdk/middleware/presentedPayment'
import type { Context } from 'hono'
import type { GatewaySettings } from '../../http/settings.ts'
import type { GatewayNetworks } from '../../registry/networks.ts'
import { findPlausible } from '../verification/plausible.ts'
import { createBodyHolder, type HeldBody } from './heldBody.ts'

/** Null: the request has no body. `refused`: it wasn't read, because its payment will be refused. */
export type TakenBody = HeldBody | 'refused' | null

/**
 * A body longer than the first limit is held on disk. The other limits apply to all bodies together, and to those of one client or
 * provider.
 */
const heldBodies = { inMemoryBytes: 65_536, totalBytes: 268_435_456, ownerBytes: 67_108_864 }

export type TakeBodyOptions = {
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'trustedProxies' | 'upstream' | 'macaroonSecrets' | 'macaroonNotBefore'>
  log: Logger
  now: () => number
}

/** Creates the function that takes the body of a paid request for an endpoint. */
export function createTakeBody({ networks, settings, log, now }: TakeBodyOptions) {
  const { trustedProxies, upstream, macaroonSecrets, macaroonNotBefore } = settings
  const bodies = createBodyHolder({
    maxBytes: upstream.maxBodyBytes,
    ...heldBodies,
    onCloseFailed: (err) => log.error({ err }, 'the file of a request body could not be closed'),
  })
  const terms = { networks: networks.byChainId, macaroonSecrets, macaroonNotBefore }

  /**
   * Takes a body. It reads no body without a payment, or with a payment that will be refused.
   *
   * The space of a body counts for the client's address, for the challenge that is paid, and for the provider, whose server may not read
   * it. It doesn't count for the payer: anyone can name any payer, and a new key is free.
   */
  return async (c: Context, endpoint: { providerId: string; endpointId: string }): Promise<TakenBody> => {
    const { headers, body } = c.req.raw
    const hasBody = headers.has('transfer-encoding') || Number(headers.get('content-length') ?? 0) > 0
    if (!hasBody || !body) return null
    const payment = presentedBy(headers)
    if (payment?.kind === 'absent') return null
    const challenge = payment && findPlausible(terms, endpoint, payment, Math.floor(now() / 1000))
    if (challenge === undefined) return 'refused'
    const clients = [`address ${clientAddress(c, trustedProxies)}`]
    if (challenge !== null) clients.push(`challenge ${challenge}`)
    return bodies.take(body, { clients, provider: `provider ${endpoint.providerId}` })
  }
}

/** Reads the payment of a request; undefined: it doesn't have the form of a payment. */
function presentedBy(headers: Headers): PresentedPayment | undefined {
  try {
    return readPayment(readHeaders((name) => headers.get(name)))
  } catch {
    return undefined
  }
}
