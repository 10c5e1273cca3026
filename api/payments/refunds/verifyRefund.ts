import { hash } from 'node:crypto'
import { createChainReads } from '@tollkeeper/chain/chainReads'
import { sumGas } from '@tollkeeper/chain/gasShares'
import { keccak256 } from '@tollkeeper/chain/keccak256'
import type { PayerSignatures } from '@tollkeeper/chain/payerSignatures'
import { checkPresented, toCandidate } from '@tollkeeper/ledger/acceptance/door'
import { createPayers } from '@tollkeeper/ledger/acceptance/payers'
import { acceptRefund } from '@tollkeeper/ledger/acceptance/refunds'
import { requeuePayment } from '@tollkeeper/ledger/outcomes/requeue'
import type { Database } from '@tollkeeper/ledger/store/database'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { parsePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { maxRefunds, refundNonce } from '@tollkeeper/sdk/protocol/refund'
import { Refusal } from '../../http/refusal.ts'
import type { GatewaySettings } from '../../http/settings.ts'
import type { GatewayNetwork, GatewayNetworks } from '../../registry/networks.ts'
import { minimumPriceOn } from '../../registry/price.ts'
import { findWalletByAddress } from '../../registry/wallets.ts'
import type { PaymentRecord } from '../records/payments.ts'
import { type RefundRecord, readRefunds } from '../records/refunds.ts'
import { checkWindow } from '../verification/checkPayment.ts'

export type RefundRequest = {
  providerId: string
  payment: PaymentRecord
  /** The last block that the index holds. */
  indexedBlock: bigint
  /** As a payment's: docs/protocol.md, conformance 2.4-1. */
  payload: string
}

export type VerifyRefundOptions = {
  sql: Database
  networks: GatewayNetworks
  settings: Pick<
    GatewaySettings,
    'issuer' | 'platformWallet' | 'contractTimeoutMs' | 'gasAllowance' | 'minimumPrices'
  >
  payerSignatures: PayerSignatures
  now: () => number
}

/** How long a wallet's balance is cached: refunds are rare, so there is little to save. */
const balanceTtlMs = 1_000

/**
 * Builds the function that verifies and queues a refund like a payment: same signatures, same balance.
 *
 * It pays no fee, and keys are free, so its gas comes from its provider's grant or the common allowance. To keep a stranger who
 * refunds itself from using that up for little, only a settled payment with a fee can be refunded, at most {@link maxRefunds}
 * times, and never by less than the smallest price.
 *
 * The same authorization again is the same refund, because its nonce is that of one refund of one payment. It changes nothing,
 * but a failed one is tried again while it is valid.
 *
 * @returns the refund's number.
 * @throws {Refusal|BaseError} for the first fault.
 */
export function createVerifyRefund({ sql, networks, settings, now, payerSignatures }: VerifyRefundOptions) {
  const { issuer, platformWallet, contractTimeoutMs, gasAllowance } = settings
  // Balances always count here, whatever is set for buyers, and their caps don't, since a refund buys nothing.
  const payersOf = new Map(
    [...networks.byChainId].map(([chainId, { served }]) => {
      const options = {
        database: sql,
        checkBalance: true,
        caps: { payer: null, newPayer: null },
        balanceTtlMs,
      }
      return [chainId, createPayers(served, createChainReads(served), { ...options, now })]
    }),
  )

  return async ({ providerId, payment, indexedBlock, payload }: RefundRequest): Promise<number> => {
    const { paymentId, chainId } = payment
    const authorization = parsePayload(payload)
    const network = networks.ofChain(chainId)
    const payers = payersOf.get(chainId) ?? network.payers
    const number = numberOf(issuer, paymentId, authorization)
    const known = await findKnown(sql, payment, number, authorization, now())
    if (known !== undefined) {
      if (known.status === 'failed')
        await requeuePayment(sql, { paymentId: known.id, providerId: null, now: new Date(now()) })
      return number
    }

    requireRefundable(payment, network, indexedBlock)
    const acceptedAt = now()
    checkTerms(
      payment,
      minimumPriceOn(settings, network.served.network),
      authorization,
      Math.floor(acceptedAt / 1000),
    )
    if (!(await findWalletByAddress(sql, { providerId, chainId, address: authorization.from })))
      throw new Refusal('unknown_wallet', `${authorization.from} is not a wallet of this provider`)
    const checked = await checkPresented(
      [authorization],
      { ...network, payers },
      // The nonce is that of one refund of one payment.
      { payerSignatures, contractTimeoutMs, asksNonces: true, asksPayees: true, isBound: [true] },
    )
    const { to, value } = authorization
    const entry = { isPair: false, recipient: to, hasCode: checked[0].hasCode }
    const { most } = sumGas([entry], await network.meter.read())
    const candidate = toCandidate(
      {
        source: 'refund',
        first: { stage: 'waiting' },
        requestId: null,
        providerId: null,
        endpointId: null,
        chainId,
        token: payment.token,
        payee: to,
        feeRecipient: platformWallet,
        providerAmount: value,
        feeAmount: 0n,
        splitter: null,
        price: value,
        tier: payment.tier,
        effectiveRate: '0',
        resource: payment.resource,
        idempotencyKey: null,
        requestHash: hash('sha256', payload),
        challengedAt: acceptedAt,
        acceptedAt,
        gas: { providerId, amount: most, common: gasAllowance },
      },
      checked,
    )
    const accept = acceptRefund(sql, { paymentId, number, providerId })
    const verdict = await accept(candidate, payers, checked[0].state)
    // Another request came at the same time, with the same authorization or another one of this number.
    if (verdict !== 'accepted' && !(await findKnown(sql, payment, number, authorization, now())))
      throw new Refusal('payment_replayed', 'The authorization was presented for something else')
    return number
  }
}

function numberOf(issuer: string, paymentId: string, { nonce }: SignedAuthorization): number {
  for (let number = 1; number <= maxRefunds; number++)
    if (refundNonce(issuer, paymentId, number, keccak256) === nonce) return number
  throw new Refusal(
    'refund_nonce_mismatch',
    `Expected the nonce of one of the refunds 1 to ${maxRefunds} of ${paymentId}, got ${nonce}`,
  )
}

/** This very refund, if it is stored. @throws {Refusal} `payment_replayed` if another one of its number is */
async function findKnown(
  sql: Database,
  { paymentId }: PaymentRecord,
  number: number,
  { from, to, value }: SignedAuthorization,
  now: number,
): Promise<RefundRecord | undefined> {
  const refunds = await readRefunds(sql, [paymentId], new Date(now))
  const known = refunds.find((one) => one.number === number)
  if (known === undefined || (known.from === from && known.to === to && known.value === value)) return known
  const details = { number, next: refunds.length < maxRefunds ? refunds.length + 1 : null }
  throw new Refusal('payment_replayed', `Refund ${number} of this payment was asked for otherwise`, {
    details,
  })
}

/** Checks that a payment paid a fee and has settled with its network's confirmations. */
function requireRefundable(payment: PaymentRecord, { served }: GatewayNetwork, indexedBlock: bigint): void {
  const { status, source, provider, fee, feeAmount } = payment
  if (source !== 'gateway' || feeAmount === 0n)
    throw new Refusal('refund_refused', 'It paid no fee for which its refund would be settled')
  if (status === 'voided') throw new Refusal('payment_voided', 'Nothing was paid that could be refunded')
  const { confirmations } = served.network
  const isDeep = [provider, fee].every(
    (half) =>
      half === null ||
      (half.blockNumber !== null && half.blockNumber + BigInt(confirmations) <= indexedBlock),
  )
  if (status !== 'settled' || !isDeep) {
    const detail = 'Only what has settled, and is confirmed, is refunded; what no batch has claimed is voided'
    throw new Refusal('payment_not_settled', detail, { details: { payment_status: status } })
  }
}

function checkTerms(
  { payer, providerAmount, feeAmount }: PaymentRecord,
  minimum: bigint,
  authorization: SignedAuthorization,
  now: number,
): void {
  const { to, value } = authorization
  if (to !== payer)
    throw new Refusal('payees_mismatch', `A refund goes to the payer ${payer}, got ${to}`, {
      details: { expected: payer, got: to },
    })
  if (value < minimum && value !== providerAmount + feeAmount)
    throw new Refusal(
      'amount_too_low',
      `A refund is at least ${formatUsdc(minimum)} USDC, or all that was paid; got ${formatUsdc(value)}`,
      { details: { required: minimum.toString(), got: value.toString() } },
    )
  checkWindow('payload', authorization, now)
}
