import type { Screen } from '@tollkeeper/ledger/acceptance/door'
import type { HookRequest } from '@tollkeeper/ledger/hooks/askHook'
import { paymentName } from '@tollkeeper/sdk/protocol/acceptDecision'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { HttpContext, HttpNetwork } from './context.ts'

/** Maximum concurrent hook requests of one submission. It is below the limit of each provider's hook, so one submission can't reach that limit. */
const concurrency = 8

/**
 * Returns a function that asks providers' hooks about new payments: the hook of the API key's provider, and the hook of the paid wallet's
 * owner.
 *
 * @param isNew whether an authorization isn't stored yet. Payments that were accepted earlier settle anyway.
 */
export function screenPayments(
  { hooks, hookedPayees }: Pick<HttpContext, 'hooks' | 'hookedPayees'>,
  { served }: HttpNetwork,
  {
    providerId,
    source,
    resource,
    isNew = () => true,
  }: Pick<HookRequest, 'source' | 'resource'> & {
    providerId: string | null
    isNew?: (index: number) => boolean
  },
): Screen {
  const { network, token } = served
  const requireAllowed = async ({ from, to, value, nonce }: SignedAuthorization) => {
    const owner = await hookedPayees.ownerOf(network.chainId, token, to)
    for (const asked of new Set([providerId, owner])) {
      if (asked === null) continue
      await hooks.require({
        providerId: asked,
        moment: 'payment',
        source,
        payer: from,
        payment: paymentName(from, nonce),
        endpointId: null,
        amount: value,
        network: network.name,
        resource,
        request: null,
      })
    }
  }
  return async (presented) => {
    const fresh = presented.filter((_, index) => isNew(index))
    for (let at = 0; at < fresh.length; at += concurrency)
      await Promise.all(fresh.slice(at, at + concurrency).map(requireAllowed))
  }
}
