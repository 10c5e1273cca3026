import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { endPayments, type PaymentResult } from '@tollkeeper/ledger/queue/stages'
import { paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import { beforeEach, expect, test } from 'vitest'
import { call } from '../../test/support/gateway.ts'
import { failPayments } from '../../test/support/paymentPosition.ts'
import { type SeededPayment, seedPayment, seedSettlement } from '../../test/support/seedPayments.ts'
import { type SeededTab, seedTab, settleTab } from '../../test/support/seedTabs.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { createProviderCap } from '../payments/verification/providerCap.ts'

// Each test has one sale at some stage or with some result, before and after its authorization has expired. The list, its filter, revenue,
// the statement and the cap must count the sale in the same way, whether it is a payment or was sold on a tab.

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)

const acceptedAt = () => new Date(Date.now() - 600_000)
const seller = () => ({ ...shop, endpointIds: [shop.endpointId] })

/** Both kinds sell for 0.05 USDC. */
const kinds: Record<
  string,
  {
    requests: number
    netUsdc: string
    seed: () => Promise<SeededPayment>
    settle: (sale: SeededPayment) => Promise<unknown>
  }
> = {
  'a payment': {
    requests: 1,
    netUsdc: '0.047500',
    seed: () => seedPayment(gateway.database, { provider: seller(), acceptedAt: acceptedAt() }),
    settle: (sale) => seedSettlement(gateway.database, sale),
  },
  'requests on a tab': {
    requests: 20,
    netUsdc: '0.045000',
    seed: () =>
      seedTab(gateway.database, {
        closedAt: acceptedAt(),
        sales: [{ provider: seller(), requests: 20, amount: 50_000n }],
      }),
    settle: (sale) => settleTab(gateway.database, sale as SeededTab),
  },
}
type Kind = (typeof kinds)[string]

const end = ({ paymentId }: SeededPayment, kind: PaymentResult, isFinal = false) =>
  endPayments(
    gateway.database,
    [{ paymentId, kind, code: kind === 'failed' ? 'authorization_cancelled' : null, isFinal }],
    new Date(),
  )

async function send({ paymentId }: SeededPayment) {
  const batchId = randomHex(32)
  await gateway.database`
    insert into batch (batch_id, chain_id, token, fee_recipient, trigger, lane, wallet, fence)
    select ${batchId}, chain_id, token, fee_recipient, 'time', 'shared', ${randomHex(20)}, 1 from payment where id = ${paymentId}`
  await gateway.database`
    update queue set stage = 'sent', batch_id = (select id from batch where batch_id = ${batchId})
    where payment_id = ${paymentId}`
}

async function cancel(sale: SeededPayment, { settle }: Kind) {
  await settle(sale)
  await gateway.database`update authorization_event set state = 'cancelled' where payment_id = ${sale.paymentId}`
}

/** Events of a sale, with its status afterwards: while its authorization is valid, and after it has expired. */
const cases: [
  name: string,
  move: (sale: SeededPayment, kind: Kind) => Promise<unknown>,
  valid: string,
  expired: string,
  isFinal?: boolean,
][] = [
  ['waits', async () => {}, 'verified', 'failed'],
  [
    'failed once',
    ({ paymentId }) =>
      recordFailure(
        gateway.database,
        { paymentId, batchId: null, code: 'insufficient_balance', detail: '', isFinal: false },
        { now: new Date() },
      ),
    'retrying',
    'failed',
  ],
  ['was sent', (sale) => send(sale), 'settling', 'settling'],
  [
    'was cancelled, which is not final',
    async (sale, kind) => {
      await cancel(sale, kind)
      await end(sale, 'spent')
    },
    'verified',
    'failed',
  ],
  ['failed', ({ paymentId }) => failPayments(gateway.database, [paymentId]), 'failed', 'failed'],
  ['was voided', (sale) => end(sale, 'voided'), 'voided', 'voided'],
  ['settled', (sale, { settle }) => settle(sale), 'settled', 'settled'],
  [
    'settled, and is not in the queue',
    async (sale, { settle }) => {
      await settle(sale)
      await end(sale, 'spent')
    },
    'settled',
    'settled',
  ],
  ['failed finally', (sale) => end(sale, 'failed', true), 'failed', 'failed', true],
  ['was voided finally', (sale) => end(sale, 'voided', true), 'voided', 'voided', true],
  [
    'settled finally',
    async (sale, { settle }) => {
      await settle(sale)
      await end(sale, 'settled', true)
    },
    'settled',
    'settled',
    true,
  ],
]

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const get = async (path: string) =>
  (await call<Body>(gateway.app, 'GET', `/providers/${shop.providerId}${path}`, { key: shop.key })).body

const rows = Object.entries(kinds).flatMap(([kind, sold]) =>
  cases.flatMap(([name, move, valid, expired, isFinal = false]) =>
    [false, true].map((hasRunOut) => {
      const title = `${kind} that ${name}${hasRunOut ? ', and has expired' : ''}`
      return { title, sold, move, status: hasRunOut ? expired : valid, hasRunOut, isFinal }
    }),
  ),
)

test.each(rows)(
  'behavior: all views count a sale in the same way: $title',
  async ({ sold, move, status, hasRunOut, isFinal }) => {
    const sale = await sold.seed()
    const month = acceptedAt().toISOString().slice(0, 7)
    await move(sale, sold)
    if (hasRunOut) gateway.setNow(Date.now() + 2 * 86_400_000)

    const { payments } = await get('/payments')
    expect(payments).toMatchObject([{ paymentId: sale.paymentId, payment_status: status }])
    for (const asked of paymentStatuses)
      expect([asked, (await get(`/payments?status=${asked}`)).payments.length]).toEqual([
        asked,
        asked === status ? 1 : 0,
      ])

    const countIf = (wanted: boolean) => (wanted ? sold.requests : 0)
    const counts = {
      payments: countIf(status !== 'voided'),
      voidedPayments: countIf(status === 'voided'),
      failedPayments: countIf(status === 'failed'),
      settledPayments: countIf(status === 'settled'),
      outstandingPayments: countIf(['verified', 'retrying', 'settling'].includes(status)),
      failed_usdc: status === 'failed' ? sold.netUsdc : '0.000000',
    }
    expect((await get('/revenue?interval=total')).revenue).toMatchObject([counts])
    expect((await get(`/statement?month=${month}`)).networks).toMatchObject([
      { ...counts, tabPayments: sold.requests > 1 ? counts.payments : 0 },
    ])
    const ofEndpoint = { endpointId: shop.endpointId, ...counts }
    expect((await get('/endpoint-activity')).activity).toMatchObject([ofEndpoint])
    const ofPayer = { ...counts, retryingPayments: countIf(status === 'retrying') }
    // A payer whose payments are all voided has paid nothing.
    const isPayer = status !== 'voided'
    for (const query of ['', `?from=${month}-01`])
      expect((await get(`/payers${query}`)).payers).toMatchObject(isPayer ? [ofPayer] : [])
    expect(await get(`/payers/${sale.payer}`)).toMatchObject(
      isPayer ? { ...ofPayer, endpoints: [ofEndpoint] } : { code: 'unknown_payer' },
    )
    if (isPayer)
      expect((await get(`/revenue?payer=${sale.payer}&groupBy=endpoint`)).revenue).toMatchObject([ofEndpoint])
    expect((await get('/payer-activity?interval=total')).activity).toMatchObject(
      isPayer ? [{ payers: 1, newPayers: 1 }] : [],
    )

    const { database: sql } = gateway
    const cap = createProviderCap({
      sql,
      cap: 50_000n,
      now: () => Date.now() + (hasRunOut ? 2 * 86_400_000 : 0),
    })
    const isCounted = !isFinal && !['failed', 'voided'].includes(status)
    const oneMore = cap.require(shop.providerId, true, 1n)
    await (isCounted ? expect(oneMore).rejects.toThrow('USDC unsettled') : oneMore)
  },
)
