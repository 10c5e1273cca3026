import type { SoldRequest } from '@tollkeeper/ledger/tabs/tabReads'
import type { StoredTab } from '@tollkeeper/ledger/tabs/tabStore'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { platformPart, providerOfSplit } from '@tollkeeper/sdk/protocol/tab'
import { effectiveRate, splitAnyPrice } from '@tollkeeper/sdk/protocol/tier'
import type { GatewaySettings } from '../../http/settings.ts'
import type { Offers } from '../../registry/offers.ts'
import type { ReceiptKeys } from '../receipts/keys.ts'
import { receiptClaims, toLineClaims } from '../receipts/receiptClaims.ts'
import { signReceipt } from '../receipts/signReceipt.ts'
import type { RequestStanding } from './requestStanding.ts'

export type RequestReceiptOptions = {
  offers: Offers
  receiptKeys: ReceiptKeys
  settings: Pick<GatewaySettings, 'issuer' | 'feeSchedule'>
  now: () => number
}

/**
 * Signs the receipt of a request on a tab as of now. If less is charged than at acceptance, it replaces the receipt of that time.
 *
 * @returns undefined if its endpoint is gone.
 */
export async function signRequestReceipt(
  { offers, receiptKeys, settings, now }: RequestReceiptOptions,
  tab: StoredTab,
  request: SoldRequest,
  { status, settlement }: RequestStanding,
): Promise<string | undefined> {
  const { tabId, sequence, split, price, charged: amount } = request
  const offer = await offers.ofEndpoint(request.endpointId)
  if (offer === undefined) return undefined
  const feeAmount = platformPart(split, amount)
  const claims = receiptClaims(
    {
      paymentId: tab.paymentId,
      providerId: request.providerId,
      endpointId: request.endpointId,
      tier: splitAnyPrice(price, settings.feeSchedule).tier,
      effectiveRate: effectiveRate(amount, feeAmount),
      acceptedAt: request.acceptedAt.getTime(),
      network: networkByChainId(tab.chainId),
      token: tab.token,
      payer: tab.payer,
      resource: offer.url,
      payee: providerOfSplit(split),
      feeRecipient: tab.platform,
      providerAmount: amount - feeAmount,
      feeAmount,
      splitter: tab.contract,
      validBefore: BigInt(tab.expiresAt),
      provider: { recipient: tab.contract, value: amount, nonce: tab.nonce },
      fee: null,
      tab: {
        id: tabId,
        sequence,
        split,
        rewardShare: tab.rewardShare,
        ...toLineClaims(request, price - amount),
      },
    },
    { issuer: settings.issuer, signedAt: now(), status, ...(settlement && { settlement }) },
  )
  return signReceipt(claims, receiptKeys.current)
}
