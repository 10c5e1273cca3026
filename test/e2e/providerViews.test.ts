import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { decodeReceipt, type ReceiptClaims } from '@tollkeeper/sdk/protocol/receipt'
import type { Address, Hex } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { backdate, withinMonth } from '../support/backdate.ts'
import { countFinal } from '../support/paymentPosition.ts'
import { newBuyer, openShop, type Shop, type TestBuyer } from '../support/shop.ts'
import { dropBlocksSince, mineUntil, startTestStack, type TestStack, takeSnapshot } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { readBalance, signAuthorization, tokenOf } from '../support/usdc.ts'

/** Thresholds that no payment in this file reaches. */
const patient = { TRIGGER_COUNT: '1000', TRIGGER_AMOUNT_USDC: '1000', TRIGGER_TIME_SECONDS: '3600' }
const eager = { TRIGGER_TIME_SECONDS: '1' }
/** The provider's share of one payment of 0.01 USDC. */
const net = 9_500n
const hourMs = 3_600_000
const dayMs = 24 * hourMs

let stack: TestStack
let database: Database
let shop: Shop
let buyer: TestBuyer

beforeAll(async () => {
  stack = await startTestStack({ env: { keeper: patient } })
  database = openDatabase({ url: stack.databaseUrl, max: 2, applicationName: 'test', limited: false })
  shop = await openShop(stack)
  buyer = await newBuyer(stack, '1')
})
afterAll(async () => {
  await shop?.close()
  await database?.end()
  await stack?.close()
})

test('behavior: reported revenue equals the wallet’s balance before and after payments are added to the sums, and after a reorg', async () => {
  const early = await pay([40 * dayMs, 30 * hourMs, 0])
  await stack.keeper.restart(eager)
  await untilFinal(early)
  await stack.keeper.stop()
  await expectViews({ settled: early, open: [] })

  const late = await pay([0, 26 * hourMs])
  await expectViews({ settled: early, open: late })
  const snapshot = await takeSnapshot(stack)
  await stack.keeper.start(eager)
  await until('they are settled', async () => (await countSettled()) === 5)
  await stack.keeper.stop()
  // A payment that a reorg could still drop is in no sum.
  expect(await areSummed(late)).toBe(false)
  await expectViews({ settled: [...early, ...late], open: [] })

  await dropBlocksSince(stack, snapshot)
  await until('the index follows', async () => (await countSettled()) === 3)
  await expectViews({ settled: early, open: late })

  await stack.keeper.start(eager)
  await untilFinal([...early, ...late])
  await expectViews({ settled: [...early, ...late], open: [] })
})

test('behavior: a statement lists the same payments, fees and refunds as USDC’s own logs', async () => {
  const { month, time, ageMs } = withinMonth()
  await stack.keeper.stop()
  const paid = await pay([ageMs, ageMs])
  await stack.keeper.start(eager)
  await untilFinal(paid)
  const [paymentId = ''] = paid
  const account = privateKeyToAccount(generatePrivateKey())
  await stack.chain.mintUsdc([account.address], 1_000_000n)
  const refunds = `payments/${paymentId}/refunds`
  await post('wallets', { network: stack.chain.network, address: account.address })
  const { payer, next } = (await view(refunds)) as { payer: Address; next: { nonce: Hex } }
  const token = tokenOf(stack.chain)
  const signed = await signAuthorization({ network: networkByName(stack.chain.network), token }, account, {
    from: account.address.toLowerCase() as Address,
    to: payer,
    value: 6_000n,
    validAfter: 0n,
    validBefore: BigInt(Math.floor(Date.now() / 1000) + 86_400),
    nonce: next.nonce,
  })
  await post(refunds, { payload: encodePayload(signed) })
  await until('it has arrived', async () => {
    const [refund] = (await view(refunds)).refunds as Rows
    return refund?.refund_status === 'settled'
  })

  await database`update refund set accepted_at = ${time} where of_payment_id = ${paymentId}`
  const { networks: [row] = [], from, to } = (await view(`statement?month=${month}`)) as Record<string, Rows>
  const receipts = await readAllReceipts(`from=${from}&to=${to}`, Number(row?.payments))
  const used = await readUses()
  const sum = (nonces: Hex[], recipient: Address) =>
    used
      .filter((one) => nonces.includes(one.nonce) && one.to === recipient.toLowerCase())
      .reduce((total, { value }) => total + value, 0n)
  const nonces = (half: 0 | 1) => receipts.flatMap(({ authorizations }) => authorizations[half]?.nonce ?? [])
  const platform = receipts[0]?.authorizations[1]?.to as Address
  const promised = receipts.flatMap(({ refunds = [] }) => refunds.map(({ nonce }) => nonce))
  expect(promised).toEqual([next.nonce])
  expect(row).toMatchObject({
    payments: receipts.length,
    settled_usdc: formatUsdc(sum(nonces(0), shop.address as Address)),
    settled_fee_usdc: formatUsdc(sum(nonces(1), platform)),
    refunds: 1,
    refunded_usdc: formatUsdc(sum(promised, payer)),
    refunds_outstanding_usdc: '0.000000',
    gas: { others: { batches: 0 } },
  })
  expect(row?.refunded_usdc).toBe('0.006000')
})

async function post(path: string, body: object): Promise<void> {
  const { status } = await fetch(`${stack.api.url}/providers/${shop.providerId}/${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${shop.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  expect([path, status]).toEqual([path, 201])
}

async function readAllReceipts(query: string, count: number): Promise<ReceiptClaims[]> {
  let lines: string[] = []
  // Receipts of the last ten seconds are not listed yet.
  await until('all receipts are listed', async () => {
    lines = (await (await ask(`receipts?${query}`)).text()).split('\n').filter((line) => line !== '')
    return lines.length === count
  })
  return lines.flatMap((line) => decodeReceipt(JSON.parse(line).receipt) ?? [])
}

/** Returns every authorization used on the chain, with the Transfer right after it. */
async function readUses(): Promise<{ nonce: Hex; to: string; value: bigint }[]> {
  const logs = await stack.rpc.getContractEvents({
    address: tokenOf(stack.chain),
    abi: usdcAbi,
    fromBlock: 0n,
  })
  return logs.flatMap((log, index) => {
    const transfer = logs[index + 1]
    if (log.eventName !== 'AuthorizationUsed' || transfer?.eventName !== 'Transfer') return []
    const { to = '', value = 0n } = transfer.args
    return [{ nonce: log.args.nonce as Hex, to: to.toLowerCase(), value }]
  })
}

/** Makes payments through the SDK, one after the other, and moves their acceptance into the past. */
async function pay(agesMs: number[]): Promise<string[]> {
  const ids: string[] = []
  for (const ageMs of agesMs) {
    const { paymentId = '' } = await buyer.client.request(shop.url)
    await backdate(database, { paymentId }, ageMs)
    ids.push(paymentId)
  }
  return ids
}

/** Waits thirty blocks until the payments are final, and therefore included in the sums. */
async function untilFinal(ids: string[]): Promise<void> {
  await mineUntil(stack, 'they are in the sums', () => areSummed(ids))
}

async function areSummed(ids: string[]): Promise<boolean> {
  const payments = ids.map((paymentId) => ({ paymentId }))
  return (await countFinal(database, payments)) === ids.length
}

type Rows = Record<string, unknown>[]

function ask(path: string): Promise<Response> {
  return fetch(`${stack.api.url}/providers/${shop.providerId}/${path}`, {
    headers: { authorization: `Bearer ${shop.apiKey}` },
  })
}

/** Returns a view's response once the index has caught up. Until then the view may return 503, as to any client. */
async function view(path: string): Promise<Record<string, unknown>> {
  let answer = await ask(path)
  await until(`${path} is answered`, async () => {
    if (answer.status === 503) answer = await ask(path)
    return answer.status !== 503
  })
  expect([path, answer.status]).toEqual([path, 200])
  return answer.json() as Promise<Record<string, unknown>>
}

/** Returns null while the index is behind the block on which the keeper acted. */
async function countSettled(): Promise<number | null> {
  const answer = await ask('payments?status=settled&limit=100')
  if (answer.status === 503) return null
  const { payments } = (await answer.json()) as { payments: unknown[] }
  return payments.length
}

async function expectViews({ settled, open }: { settled: string[]; open: string[] }): Promise<void> {
  const accepted = await database<{ id: string; at: Date }[]>`
    select id, accepted_at as at from payment where provider_id = ${shop.providerId}`
  expect(accepted).toHaveLength(settled.length + open.length)
  for (const [interval, mostMs] of [
    ['hour', 31 * dayMs],
    ['day', 60 * dayMs],
    ['month', 100 * dayMs],
  ] as const) {
    const from = new Date(Date.now() - mostMs)
    const expected = Map.groupBy(
      accepted.filter(({ at }) => at >= from),
      ({ at }) => startOf(interval, at),
    )
    const { revenue } = await view(`revenue?interval=${interval}&from=${from.toISOString()}`)
    const seen = (revenue as Rows).map((row) => [
      row.startsAt,
      row.payments,
      row.settledPayments,
      row.settled_usdc,
      row.outstanding_usdc,
    ])
    expect([interval, seen]).toEqual([
      interval,
      [...expected]
        .sort(([one], [other]) => (one < other ? 1 : -1))
        .map(([startsAt, payments]) => {
          const moved = BigInt(payments.filter(({ id }) => settled.includes(id)).length)
          const rest = BigInt(payments.length) - moved
          return [startsAt, payments.length, Number(moved), formatUsdc(moved * net), formatUsdc(rest * net)]
        }),
    ])
  }
  const { revenue } = await view('revenue?interval=total')
  const balance = await readBalance(stack.rpc, tokenOf(stack.chain), shop.address as Address)
  expect((revenue as Rows).map((row) => parseUsdc(String(row.settled_usdc)))).toEqual([balance])
  const since = new Date(Date.now() - 10 * dayMs).toISOString()
  const recent = accepted.filter(({ at }) => at >= new Date(since))
  const recentSettled = BigInt(recent.filter(({ id }) => settled.includes(id)).length)
  expect((await view(`payers?from=${since}`)).payers).toMatchObject([
    {
      payer: buyer.address.toLowerCase(),
      payments: recent.length,
      settled_usdc: formatUsdc(recentSettled * net),
    },
  ])
}

function startOf(interval: 'hour' | 'day' | 'month', time: Date): string {
  const iso = time.toISOString()
  const kept = { hour: 13, day: 10, month: 7 }[interval]
  return `${iso.slice(0, kept)}${'0000-01-01T00:00:00.000Z'.slice(kept)}`
}
