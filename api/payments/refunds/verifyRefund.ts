import { hash } from 'node:crypto'
import { createChainReads } from '@tollkeeper/chain/chainReads'
import { sumGas, withMargin } from '@tollkeeper/chain/gasShares'
import { keccak256 } from '@tollkeeper/chain/keccak256'
import type { PayerSignatures } from '@tollkeeper/chain/payerSignatures'
import { checkPresented, toCandidate } from '@tollkeeper/ledger/acceptance/door'
import { createPayers } from '@tollkeeper/ledger/acceptance/payers'
import { acceptRefund } from '@tollkeeper/ledger/acceptance/refunds'
import { readRefundGas } from '@tollkeeper/ledger/queue/gasDraws'
import { requeuePayment } from '@tollkeeper/ledger/results/requeue'
import type { Database } from '@tollkeeper/ledger/store/database'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { parsePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { maxRefunds, refundNonce } from '@tollkeeper/sdk/protocol/refund'
import { nextUtcDay } from '@tollkeeper/sdk/protocol/time'
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
  /** The newest block that the record covers. */
  indexedBlock: bigint
  /** Same form as a payment's: docs/protocol.md, conformance 2.4-1. */
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

/** Cache time in ms of a wallet's balance. It is short, because refunds are rare and a longer time would save few reads. */
const balanceTtlMs = 1_000

/**
 * Creates the function that verifies and queues a refund like a payment, with the same checks of signature and balance.
 *
 * A refund pays no fee, and anyone can create API keys. Its gas is therefore paid from the provider's grant, or from the provider's share of the
 * refund pool. The refund reserves the cost of a separate transaction at the current price, with a margin. If gas becomes more expensive before the
 * refund settles, the refund waits until the price falls or more gas money is available. Only a settled payment with a fee can be refunded, at most
 * {@link maxRefunds} times, and never by less than the minimum price. Otherwise, sellers could use up the pool at little cost by refunding
 * themselves.
 *
 * A repeated request with the same authorization is the same refund, because the nonce belongs to one refund of one payment. It changes nothing,
 * except that a failed refund is retried while it is valid.
 *
 * @returns the refund's number.
 * @throws {Refusal|BaseError} for the first fault.
 */
export function createVerifyRefund({ sql, networks, settings, now, payerSignatures }: VerifyRefundOptions) {
  const { issuer, platformWallet, contractTimeoutMs, gasAllowance } = settings
  // Balances are always checked here, regardless of the setting for buyers. The buyers' caps don't apply, because a refund buys nothing.
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
      // The nonce belongs to one refund of one payment. The refund's payer is the provider.
      {
        payerSignatures,
        contractTimeoutMs,
        asksNonces: true,
        asksPayees: true,
        isBound: [true],
        screen: null,
      },
    )
    const { to, value } = authorization
    const entry = { isPair: false, recipient: to, hasCode: checked[0].hasCode }
    const amount = withMargin(sumGas([entry], await network.meter.read()))
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
        gas: { providerId, amount, common: gasAllowance },
      },
      checked,
    )
    const accept = acceptRefund(sql, { paymentId, number, providerId })
    const verdict = await accept(candidate, payers, checked[0].state).catch(async (error: unknown) => {
      if (!(error instanceof BaseError && error.code === 'gas_not_covered')) throw error
      throw await refuseGas(sql, {
        providerId,
        chainId,
        common: gasAllowance,
        needed: amount,
        at: new Date(acceptedAt),
      })
    })
    // Another request was stored at the same time, with the same authorization or with another authorization for this refund number.
    if (verdict !== 'accepted' && !(await findKnown(sql, payment, number, authorization, now())))
      throw new Refusal(
        'payment_replayed',
        'The authorization was already presented for another payment or refund',
      )
    return number
  }
}

/** Returns the refusal of a refund that today's gas allowance doesn't cover. It states the rest of the allowance and when it is reset. */
async function refuseGas(
  sql: Database,
  { needed, at, ...asked }: { providerId: string; chainId: number; common: bigint; needed: bigint; at: Date },
): Promise<Refusal> {
  const { hasGrant, most, left } = await readRefundGas(sql, { ...asked, now: at })
  const resetsAt = nextUtcDay(at).toISOString()
  const source = hasGrant
    ? "this provider's grant"
    : "this provider's share of what the operator pays for refunds"
  return new Refusal(
    'gas_not_covered',
    `The refund's gas costs ${formatUsdc(needed)} USD, but only ${formatUsdc(left)} of ${formatUsdc(most)} USD are left today of ${source}. ` +
      `Try again when open refunds have settled, or after ${resetsAt}; or ask the operator for more ` +
      `(tollkeeper provider grant --provider ${asked.providerId} --usdc …)`,
    {
      details: {
        needed_usd: formatUsdc(needed),
        left_usd: formatUsdc(left),
        limit_usd: formatUsdc(most),
        resets_at: resetsAt,
      },
    },
  )
}

function numberOf(issuer: string, paymentId: string, { nonce }: SignedAuthorization): number {
  for (let number = 1; number <= maxRefunds; number++)
    if (refundNonce(issuer, paymentId, number, keccak256) === nonce) return number
  throw new Refusal(
    'refund_nonce_mismatch',
    `Expected the nonce of one of the refunds 1 to ${maxRefunds} of ${paymentId}, got ${nonce}`,
  )
}

/** Finds this refund if it is stored. @throws {Refusal} `payment_replayed` if another refund has its number */
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
  throw new Refusal(
    'payment_replayed',
    `Refund ${number} of this payment was already requested with other terms`,
    {
      details,
    },
  )
}

/** Checks that a payment paid a fee and has settled with its network's confirmations. */
function requireRefundable(payment: PaymentRecord, { served }: GatewayNetwork, indexedBlock: bigint): void {
  const { status, source, provider, fee, feeAmount } = payment
  if (source !== 'gateway' || feeAmount === 0n)
    throw new Refusal('refund_refused', 'The payment has no fee that would pay for settling its refund')
  if (status === 'voided')
    throw new Refusal('payment_voided', 'The payment was voided, so there is nothing to refund')
  const { confirmations } = served.network
  const isDeep = [provider, fee].every(
    (half) =>
      half === null ||
      (half.blockNumber !== null && half.blockNumber + BigInt(confirmations) <= indexedBlock),
  )
  if (status !== 'settled' || !isDeep) {
    const detail =
      'Only a settled and confirmed payment can be refunded. A payment that is in no batch yet can be voided'
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
    throw new Refusal('payees_mismatch', `A refund must pay the payer ${payer}, got ${to}`, {
      details: { expected: payer, got: to },
    })
  if (value < minimum && value !== providerAmount + feeAmount)
    throw new Refusal(
      'amount_too_low',
      `A refund must be at least ${formatUsdc(minimum)} USDC, or everything that was paid; got ${formatUsdc(value)}`,
      { details: { required: minimum.toString(), got: value.toString() } },
    )
  checkWindow('payload', authorization, now)
}
