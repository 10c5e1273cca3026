import { createHash } from 'node:crypto'
import type { Address, Hex } from 'viem'
import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import {
  seedChainId,
  seedHalf,
  seedPlatform,
  seedProvider,
  seedToken,
  seedTransfer,
  toCandidate,
} from '../../../test/support/seedPayments.ts'
import { makeClosedTab, seedTabSettlement } from '../../../test/support/seedTabs.ts'
import { until } from '../../../test/support/until.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { acceptPayments } from './acceptPayments.ts'
import { type ClosedTab, takeTabs } from './takeTabs.ts'

const sql = await useDatabase()
const provider = await seedProvider(sql)
const closedAt = new Date('2026-11-21T11:30:00.250Z')
const openedAt = new Date('2026-11-21T11:00:00.250Z')

/** Creates a closed tab on which 1,000 was bought and signed, and for which `reserved` is reserved. */
async function closeTab({ payer = randomHex(20), reserved = 1_500n } = {}): Promise<ClosedTab> {
  const tab = makeClosedTab({ payer, closedAt, sales: [{ provider }] })
  await reserve(tab, reserved)
  return tab
}

async function reserve({ tabId, payer, nonce }: ClosedTab, amount: bigint): Promise<void> {
  const [row] = await sql<{ verdict: string }[]>`
    select verdict from reserve_for_tab(${tabId}, ${seedChainId}, ${seedToken}, ${payer}, ${nonce}, ${amount}, ${amount},
      null, ${amount}, null, current_date)`
  expect(row).toEqual({ verdict: 'reserved' })
}

/** Reads a payer's accepted total, and the sum of its reservations. */
async function accountOf(payer: Address) {
  const [row] = await sql<{ accepted: bigint; reserved: bigint | null }[]>`
    select accepted_total as accepted, (select sum(reserved) from tab_reservation where payer = address) as reserved
    from payer where address = ${payer}`
  return row
}

/** Counts the rows of a payment in each table. */
async function countRows({ paymentId }: Pick<ClosedTab, 'paymentId'>): Promise<Record<string, number>> {
  const tables = ['payment', 'queue', 'presentation', 'signed_authorization', 'tab_payment', 'tab_line']
  const counts: Record<string, number> = {}
  for (const table of [...tables, 'tab_sale', 'outbox']) {
    const key = table === 'payment' ? 'id' : 'payment_id'
    counts[table] = (await sql`select from ${sql(table)} where ${sql(key)} = ${paymentId}`).count
  }
  return counts
}

const counts = (of: number) => ({
  payment: of,
  queue: of,
  presentation: of,
  signed_authorization: of,
  tab_payment: of,
  tab_line: of,
  tab_sale: of,
  outbox: of,
})

/** Returns the payment of a tab in the form that {@link takeTabs} passes to `accept_payments`. */
const toTabCandidate = ({ payer, tabId, nonce }: ClosedTab) =>
  toCandidate({
    source: 'tab',
    tabId,
    payer,
    splitter: seedTabSettlement,
    halves: [seedHalf({ recipient: seedTabSettlement, value: 1_000n, nonce })],
  })

test('default: stores a closed tab as a payment with one authorization; the payment counts as waiting since the tab’s first purchase', async () => {
  const tab = await closeTab()
  const { paymentId, payer, tabId, nonce, expiresAt } = tab
  expect(await takeTabs(sql, [tab])).toEqual([])
  expect(await countRows(tab)).toEqual(counts(1))
  const [payment] = await sql`select * from payment where id = ${paymentId}`
  expect(payment).toEqual({
    id: paymentId,
    source: 'tab',
    request_id: null,
    provider_id: null,
    endpoint_id: null,
    chain_id: seedChainId,
    token: seedToken,
    payer,
    payee: seedTabSettlement,
    fee_recipient: seedPlatform,
    splitter: seedTabSettlement,
    price: 1_000n,
    provider_amount: 900n,
    fee_amount: 100n,
    valid_before: BigInt(expiresAt),
    tier: 'tab',
    effective_rate: '0.1',
    resource: tabId,
    challenged_at: openedAt,
    accepted_at: closedAt,
  })
  const [queued] = await sql`select * from queue where payment_id = ${paymentId}`
  expect(queued).toMatchObject({
    stage: 'waiting',
    next_at: null,
    due_at: null,
    provider_id: null,
    payer,
    payee: seedTabSettlement,
    provider_amount: 900n,
    fee_amount: 100n,
    accepted_at: openedAt,
    valid_before: BigInt(expiresAt),
    has_code: false,
    is_tab: true,
    may_be_voided: false,
  })
  const [presented] = await sql`
    select encode(request_hash, 'hex') as hash, '0x' || encode(signature, 'hex') as signature, fee_signature, idempotency_key
    from presentation where payment_id = ${paymentId}`
  expect(presented).toEqual({
    hash: createHash('sha256').update(tabId).digest('hex'),
    signature: tab.signature,
    fee_signature: null,
    idempotency_key: null,
  })
  const [signed] = await sql`select * from signed_authorization where payment_id = ${paymentId}`
  expect(signed).toEqual({
    payment_id: paymentId,
    half: 0,
    chain_id: seedChainId,
    token: seedToken,
    authorizer: payer,
    recipient: seedTabSettlement,
    value: 1_000n,
    valid_after: 0n,
    valid_before: BigInt(expiresAt),
    nonce,
    accepted_block: null,
  })
  const [own] = await sql`select * from tab_payment where payment_id = ${paymentId}`
  expect(own).toEqual({
    payment_id: paymentId,
    payer,
    tab_id: tabId,
    sequence: 10n,
    reward_share: 500,
    requests: 10,
    close_reason: 'idle',
    opened_at: openedAt,
  })
})

test('behavior: does not store a tab’s contract as a splitter to sweep', async () => {
  await takeTabs(sql, [await closeTab()])
  expect(await sql`select from splitter where address = ${seedTabSettlement}`).toHaveLength(0)
})

test('behavior: a tab’s payment replaces its reservation, so the payer’s total stays the same', async () => {
  const [tab, other] = [await closeTab(), await closeTab({ reserved: 700n })]
  expect(await accountOf(tab.payer)).toEqual({ accepted: 1_500n, reserved: 1_500n })
  expect(await takeTabs(sql, [tab, other])).toEqual([])
  expect(await accountOf(tab.payer)).toEqual({ accepted: 1_500n, reserved: null })
  expect(await accountOf(other.payer)).toEqual({ accepted: 700n, reserved: null })
})

const conflicts: [string, (tab: ClosedTab) => Promise<unknown>][] = [
  [
    'another payment of the payer uses the tab’s nonce',
    ({ payer, nonce }) => sql`
      insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after,
        valid_before, nonce)
      values (${`pay_${randomHex(16).slice(2)}`}, 0, ${seedChainId}, ${seedToken}, ${payer}, ${randomHex(20)}, 1, 0, 2000000000,
        ${nonce})`,
  ],
  [
    'another open tab of the payer uses the tab’s nonce',
    ({ tabId }) =>
      sql`update tab_claim set tab_id = ${`tab_${randomHex(16).slice(2)}`} where tab_id = ${tabId}`,
  ],
  [
    'another payment of the payer has the tab’s id',
    async (tab) => {
      const earlier = makeClosedTab({ payer: tab.payer, closedAt, sales: [{ provider }] })
      expect(await takeTabs(sql, [earlier])).toEqual([])
      await sql`update tab_payment set tab_id = ${tab.tabId} where payment_id = ${earlier.paymentId}`
    },
  ],
]

test.each(conflicts)('error: refuses a tab if %s, and stores the other tabs', async (_, conflict) => {
  const [tab, other] = [await closeTab(), await closeTab()]
  await conflict(tab)
  expect(await takeTabs(sql, [tab, other])).toEqual([tab.paymentId])
  expect(await countRows(tab)).toEqual(counts(0))
  expect(await countRows(other)).toEqual(counts(1))
  // The reservation of the refused tab remains: the caller of `takeTabs` ends it.
  expect(await accountOf(tab.payer)).toEqual({ accepted: 1_500n, reserved: 1_500n })
  expect(await accountOf(other.payer)).toEqual({ accepted: 1_500n, reserved: null })
})

test('behavior: importing a tab again changes nothing, even after its presentation was deleted', async () => {
  const [tab, later] = [await closeTab(), await closeTab()]
  expect(await takeTabs(sql, [tab])).toEqual([])
  await sql`delete from presentation where payment_id = ${tab.paymentId}`
  expect(await takeTabs(sql, [{ ...tab, closeReason: 'old', requests: 99 }, later])).toEqual([])
  expect(await countRows(tab)).toEqual({ ...counts(1), presentation: 0 })
  expect(await countRows(later)).toEqual(counts(1))
  expect(await accountOf(tab.payer)).toEqual({ accepted: 1_500n, reserved: null })
  const [own] = await sql`select requests, close_reason from tab_payment where payment_id = ${tab.paymentId}`
  expect(own).toEqual({ requests: 10, close_reason: 'idle' })
})

test('behavior: if two processes import the same tab, one of them stores the tab, and neither ends the tab unpaid', async () => {
  const payers = [randomHex(20), randomHex(20)].toSorted()
  const [first, second] = await Promise.all(payers.map((payer) => closeTab({ payer })))
  const tabs = [first as ClosedTab, second as ClosedTab]
  let taking: Promise<string[][]> | undefined
  await sql.begin(async (tx) => {
    await tx`select from payer where address = ${payers[0] as Hex} for update`
    taking = Promise.all([takeTabs(sql, tabs), takeTabs(sql, tabs.toReversed())])
    taking.catch(() => {})
    await until('both wait for the payer', async () => {
      const waiting = await sql`
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
      return waiting.length === 2
    })
  })
  expect(await taking).toEqual([[], []])
  for (const tab of tabs) {
    expect(await countRows(tab)).toEqual(counts(1))
    expect(await accountOf(tab.payer)).toEqual({ accepted: 1_500n, reserved: null })
  }
})

test.each([
  ['covers only the payments', 1_550n, ['accepted', 'accepted', 'accepted'], 1_550n],
  ['covers one of the payments', 1_525n, ['accepted', 'accepted', 'over_limit'], 1_525n],
  ['is already exceeded', 1_000n, ['accepted', 'over_limit', 'over_limit'], 1_500n],
] as const)(
  'behavior: accepts a tab in a group with payments of its payer under a limit that %s',
  async (_, limit, expected, accepted) => {
    const tab = await closeTab()
    const pay = () =>
      toCandidate({ source: 'submission', payer: tab.payer, halves: [seedHalf({ value: 25n })], limit })
    const group = [toTabCandidate(tab), pay(), pay()]
    const verdicts = await acceptPayments(sql, group)
    expect([verdicts[0], ...verdicts.slice(1).toSorted()]).toEqual(expected)
    expect(await accountOf(tab.payer)).toMatchObject({ accepted })
  },
)

test('error: if a tab and a payment in a group have the same nonce, accepts the tab, which claimed the nonce, and refuses the payment', async () => {
  const tab = await closeTab()
  const payment = toCandidate({
    source: 'submission',
    payer: tab.payer,
    halves: [seedHalf({ nonce: tab.nonce })],
  })
  const verdicts = await acceptPayments(sql, [
    { ...toTabCandidate(tab), id: `pay_${'f'.repeat(32)}` },
    payment,
  ])
  expect(verdicts).toEqual(['accepted', 'replayed'])
  expect(await accountOf(tab.payer)).toMatchObject({ accepted: 1_500n })
})

test('error: refuses a payment with the nonce of an open tab', async () => {
  const { payer, nonce } = await closeTab()
  await expect(
    seedTransfer(sql, { source: 'submission', payer, halves: [seedHalf({ nonce })] }),
  ).rejects.toThrow(/replayed/)
})
