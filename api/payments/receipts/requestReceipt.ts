import type { SoldRequest } from '@tollkeeper/ledger/tabs/tabReads'
import type { TabHead } from '@tollkeeper/ledger/tabs/tabStore'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import { platformPart, providerOfSplit } from '@tollkeeper/sdk/protocol/tab'
import { effectiveRate, type FeeSchedule, splitAnyPrice } from '@tollkeeper/sdk/protocol/tier'
import type { Hash } from 'viem'
import type { ReceiptKey } from './keys.ts'
import { receiptClaims, toLineClaims } from './receiptClaims.ts'
import { signReceipt } from './signReceipt.ts'

type RequestReceiptFacts = {
  /** The URL that was paid for. */
  resource: string
  status: PaymentStatus
  /** The transaction that settled the request, once it has enough confirmations. */
  settlement?: { transactionHash: Hash; blockHash: Hash }
  /** Unix milliseconds. */
  signedAt: number
  issuer: string
  feeSchedule: FeeSchedule
  key: ReceiptKey
}

/** Signs the receipt of a request on a tab, for the part of its price that is charged. */
export function signRequestReceipt(
  tab: TabHead,
  request: Omit<SoldRequest, 'payer' | 'tabId'>,
  { resource, status, settlement, signedAt, issuer, feeSchedule, key }: RequestReceiptFacts,
): string {
  const { sequence, split, price, charged: amount } = request
  const feeAmount = platformPart(split, amount)
  const claims = receiptClaims(
    {
      paymentId: tab.paymentId,
      providerId: request.providerId,
      endpointId: request.endpointId,
      tier: splitAnyPrice(price, feeSchedule).tier,
      effectiveRate: effectiveRate(amount, feeAmount),
      acceptedAt: request.acceptedAt.getTime(),
      network: networkByChainId(tab.chainId),
      token: tab.token,
      payer: tab.payer,
      resource,
      payee: providerOfSplit(split),
      feeRecipient: tab.platform,
      providerAmount: amount - feeAmount,
      feeAmount,
      splitter: tab.contract,
      validBefore: BigInt(tab.expiresAt),
      provider: { recipient: tab.contract, value: amount, nonce: tab.nonce },
      fee: null,
      tab: {
        id: tab.tabId,
        sequence,
        split,
        rewardShare: tab.rewardShare,
        ...toLineClaims(request, price - amount),
      },
    },
    { issuer, signedAt, status, ...(settlement && { settlement }) },
  )
  return signReceipt(claims, key)
}
