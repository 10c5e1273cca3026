import { type Challenge, parseChallenge } from '../protocol/challenge.ts'
import { isRecord } from '../protocol/fields.ts'
import { parseMacaroon } from '../protocol/macaroon.ts'
import { networks } from '../protocol/networks.ts'
import { decodePaymentHeader } from '../protocol/x402.ts'

/**
 * Restores a challenge from the header of x402 v2, whose macaroon contains the same terms.
 *
 * @param gatewayUrl the gateway to assume if the challenge names none.
 * @returns undefined if the header isn't from a Tollkeeper gateway.
 */
export function restoreChallenge(header: string, gatewayUrl: string): Challenge | undefined {
  try {
    const { accepts, resource } = decodePaymentHeader(header) as Record<string, unknown>
    const entries = (Array.isArray(accepts) ? accepts : []).filter(isRecord)
    const [first] = entries
    const onTab = entries.find(({ scheme }) => scheme === 'tab')
    const { macaroon, name, version } = (first?.extra ?? {}) as Record<string, unknown>
    const { terms, caveats } = parseMacaroon(String(macaroon))
    const network = Object.values(networks).find(({ chainId }) => chainId === terms.chainId)
    const { url, description, mimeType } = resource as Record<string, unknown>
    const half = (payTo: string, amount: bigint) => ({
      scheme: 'exact',
      network: network?.name,
      maxAmountRequired: amount.toString(),
      resource: url,
      description,
      mimeType,
      payTo,
      maxTimeoutSeconds: first?.maxTimeoutSeconds,
      asset: terms.asset,
      extra: { name, version },
    })
    const {
      split,
      rewardShare,
      offeredUntil,
      issuer = gatewayUrl,
    } = (onTab?.extra ?? {}) as Record<string, unknown>
    const idOf = (prefix: string) => caveats.join('\n').match(new RegExp(`${prefix}_\\w+`))?.[0] ?? prefix
    return parseChallenge({
      x402Version: 1,
      accepts: [half(terms.payTo, terms.amount), half(terms.feePayTo, terms.feeAmount)],
      macaroon,
      providerId: idOf('prov'),
      endpointId: idOf('ep'),
      requestId: terms.requestId,
      issuer,
      ...(terms.pass && { pass: terms.pass }),
      ...(onTab && { tab: { split, rewardShare, offeredUntil, ...(first === onTab && { only: true }) } }),
    })
  } catch {
    return undefined
  }
}
