import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { type AuditReport, audit } from '@tollkeeper/sdk/audit/index'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { settle } from '../support/paidReceipts.ts'
import { failPayments } from '../support/paymentPosition.ts'
import { newBuyer, openShop, type Shop } from '../support/shop.ts'
import { mineUntil, startTestStack, type TestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'

// One month of a provider with payments of every status and a tab. Auditing its receipts against the chain
// must give the same counts as its statement.

const eager = { TRIGGER_TIME_SECONDS: '1' }
/** No trigger fires. */
const patient = { TRIGGER_COUNT: '1000', TRIGGER_AMOUNT_USDC: '1000', TRIGGER_TIME_SECONDS: '3600' }

let stack: TestStack
let database: Database
let shop: Shop
let month: string
beforeAll(async () => {
  stack = await startTestStack({ env: { keeper: eager } })
  database = openDatabase({ url: stack.databaseUrl, max: 2, applicationName: 'test', limited: false })
  shop = await openShop(stack, {
    usdcPerUnit: '0.05',
    handler: (c) => (c.req.query('fail') ? c.text('failed', 500) : c.json({})),
  })
  month = new Date().toISOString().slice(0, 7)
  await seedMonth()
})
afterAll(async () => {
  await shop?.close()
  await database?.end()
  await stack?.close()
})

async function view<Answer>(path: string): Promise<Answer> {
  const answer = await ask(path)
  expect([path, answer.status]).toEqual([path, 200])
  return (await answer.json()) as Answer
}

function ask(path: string): Promise<Response> {
  return fetch(`${stack.api.url}/providers/${shop.providerId}/${path}`, {
    headers: { authorization: `Bearer ${shop.apiKey}` },
  })
}

type Status = { payment_status: string }
const statusOf = async (paymentId: string) =>
  (await stack.get(`/payments/${paymentId}`)).body as unknown as Status

/**
 * Creates two settled payments, a voided one, a settled tab of four requests, and one payment of each other
 * status.
 */
async function seedMonth(): Promise<void> {
  const { client } = await newBuyer(stack, '5')
  const pay = async () => (await client.request(shop.url)).paymentId ?? ''
  const settled = [await pay(), await pay()]
  await expect(client.request(`${shop.url}?fail=1`)).rejects.toMatchObject({ status: 500 })
  const tabBuyer = await newBuyer(stack, '5', { tabs: true })
  let tab = ''
  for (let i = 0; i < 4; i++) tab = (await tabBuyer.client.request(shop.url)).paymentId ?? ''
  await tabBuyer.client.close()
  await mineUntil(stack, 'they are settled', async () => {
    const statuses = await Promise.all([...settled, tab].map(statusOf))
    return statuses.every(({ payment_status }) => payment_status === 'settled')
  })
  await stack.keeper.restart(patient)
  const [, failed, retrying, partial] = [await pay(), await pay(), await pay(), await pay()]
  await failPayments(database, [failed ?? ''])
  const failure = { batchId: null, isFinal: false, code: 'insufficient_balance', detail: '' }
  await recordFailure(database, { ...failure, paymentId: retrying ?? '' }, { now: new Date() })
  await settleHalf(partial ?? '')
  await mineUntil(stack, 'one payment is partially settled', async () => {
    return (await statusOf(partial ?? '')).payment_status === 'partially_settled'
  })
}

/** Settles only the provider's authorization, as anyone can who has its signature. */
async function settleHalf(paymentId: string): Promise<void> {
  const [half] = await database`
    select a.authorizer as "from", a.recipient as "to", a.value, a.valid_after as "validAfter", a.valid_before as "validBefore", a.nonce,
      '0x' || encode(p.signature, 'hex') as signature
    from signed_authorization a join presentation p on p.payment_id = a.payment_id
    where a.payment_id = ${paymentId} and a.half = 0`
  await settle(stack.chain, [
    { authorization: { primaryType: 'TransferWithAuthorization', ...half } as never },
  ])
}

type Lines = { receipt?: string; tabLine?: string }[]
async function download(count: number): Promise<Lines> {
  let lines: Lines = []
  // Receipts of the last ten seconds are not listed yet.
  await until('all receipts are listed', async () => {
    const text = await (await ask('receipts?tabLines=true')).text()
    lines = text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Lines[number])
    return lines.length === count
  })
  return lines
}

const run = (lines: Lines, period?: { from: bigint; to: bigint }): Promise<AuditReport> =>
  audit({
    receipts: lines.flatMap(({ receipt }) => receipt ?? []),
    tabLines: lines.flatMap(({ tabLine }) => tabLine ?? []),
    jwks: `${stack.api.url}/.well-known/jwks.json`,
    rpcUrls: [stack.chain.url],
    deployments: stack.chain.deployments,
    provider: shop.providerId,
    confirmations: 0,
    ...(period && { period }),
  })

type StatementRow = Record<string, number | string>
const readStatement = async () =>
  (await view<{ networks: [StatementRow] }>(`statement?month=${month}`)).networks[0]

async function expectCounts(report: AuditReport): Promise<void> {
  const row = await readStatement()
  expect(report.counts).toEqual({
    payments: row.payments,
    settled: row.settledPayments,
    outstanding: row.outstandingPayments,
    outstandingAmount: parseUsdc(String(row.outstanding_usdc)),
    failed: row.failedPayments,
    voided: row.voidedPayments,
  })
  expect(report.providers[0]?.providerAmount).toBe(parseUsdc(String(row.settled_usdc)))
}

const monthOf = (text: string) => {
  const from = new Date(`${text}-01T00:00:00Z`)
  const to = Date.UTC(from.getUTCFullYear(), from.getUTCMonth() + 1)
  return { from: BigInt(from.getTime() / 1000), to: BigInt(to / 1000) }
}

test('behavior: an audit of the receipts counts the same payments as the month’s statement', async () => {
  // Seven single payments, four requests on the tab, and the tab's line.
  const lines = await download(12)
  const report = await run(lines, monthOf(month))
  expect(report.counts).toMatchObject({ payments: 10, settled: 7, outstanding: 2, failed: 1, voided: 1 })
  expect(report.tabLines).toMatchObject([
    { state: 'settled', receipts: { requests: 4, totalAmount: 200_000n } },
  ])
  await expectCounts(report)
  const other = await run(lines, monthOf('2020-01'))
  expect([other.receipts, other.tabLines, other.counts.payments]).toEqual([[], [], 0])
})

test('behavior: an audit still reconciles a tab’s line after the tab’s requests are deleted', async () => {
  await database`delete from tabs.tab`
  const lines = await download(8)
  const report = await run(lines, monthOf(month))
  expect(report.tabLines).toMatchObject([{ state: 'settled', reconciled: true }])
  expect(report.tabs).toMatchObject([{ lines: [{ requests: 0, booked: { requests: 4 }, gap: 0n }] }])
  await expectCounts(report)
})

test('behavior: the bookkeeping export lists the same received money as the chain', async () => {
  const { lines, totals } = await view<{
    lines: Record<string, string>[]
    totals: [Record<string, string>]
  }>(`bookkeeping?month=${month}`)
  const row = await readStatement()
  // All payments were accepted and settled in this month, so counts by acceptance equal counts by settlement.
  const gross = parseUsdc(String(row.settled_usdc)) + parseUsdc(String(row.settled_fee_usdc))
  expect(totals).toMatchObject([
    { gross: formatUsdc(gross), fee: row.settled_fee_usdc, net: row.settled_usdc, requests: 7 },
  ])
  for (const { transaction, booked_at } of lines) {
    const { blockNumber } = await stack.rpc.getTransactionReceipt({ hash: transaction as `0x${string}` })
    const { timestamp } = await stack.rpc.getBlock({ blockNumber })
    expect(booked_at).toBe(new Date(Number(timestamp) * 1000).toISOString())
  }
  const fees = await view<{ documents: [Record<string, string>] }>(`fee-document?month=${month}`)
  expect(fees.documents).toMatchObject([{ fee_usdc: row.settled_fee_usdc }])
})
