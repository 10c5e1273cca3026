import type { SoldRequest } from '@tollkeeper/ledger/tabs/tabReads'
import type { StoredTab } from '@tollkeeper/ledger/tabs/tabStore'
import type { GatewaySettings } from '../../http/settings.ts'
import type { Offers } from '../../registry/offers.ts'
import type { ReceiptKeys } from '../receipts/keys.ts'
import { signRequestReceipt } from '../receipts/requestReceipt.ts'
import type { RequestPosition } from './requestPosition.ts'

export type RequestReceiptOptions = {
  offers: Offers
  receiptKeys: ReceiptKeys
  settings: Pick<GatewaySettings, 'issuer' | 'feeSchedule'>
  now: () => number
}

/**
 * Signs the receipt of a request on a tab in its current state. If less is charged than at acceptance, it replaces the receipt issued then.
 *
 * @returns undefined if its endpoint no longer exists.
 */
export async function currentRequestReceipt(
  { offers, receiptKeys, settings, now }: RequestReceiptOptions,
  tab: StoredTab,
  request: SoldRequest,
  position: RequestPosition,
): Promise<string | undefined> {
  const offer = await offers.ofEndpoint(request.endpointId)
  if (offer === undefined) return undefined
  return signRequestReceipt(tab, request, {
    ...position,
    resource: offer.url,
    signedAt: now(),
    issuer: settings.issuer,
    feeSchedule: settings.feeSchedule,
    key: receiptKeys.current,
  })
}
