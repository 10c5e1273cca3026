import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { recordEvents } from '@tollkeeper/ledger/facts/record'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { call, openShop } from '../../test/support/gateway.ts'
import {
  blockHashOf,
  seedHalf,
  seedPayment,
  seedSettlement,
  seedToken,
  storePayments,
} from '../../test/support/seedPayments.ts'
import { seedRefund } from '../../test/support/seedRefund.ts'
import { seedTab, settleTab } from '../../test/support/seedTabs.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { convert, type FiatRate, parseFiatRates } from './fiatRates.ts'

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)
let folder: string
let ratesFile: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'books-'))
  ratesFile = join(folder, 'rates.csv')
  await writeFile(ratesFile, 'date,currency,rate,source\n2026-04-10,EUR,0.9213,ECB\n2026-04-10,CHF,0.5,SNB\n')
})
afterAll(() => rm(folder, { recursive: true }))

const seller = () => ({ ...shop, endpointIds: [shop.endpointId] })
const time = (text: string) => new Date(`2026-${text}Z`)
let block = 5_000
const at = (text: string) => ({ blockNumber: block++, blockTime: time(text).getTime() / 1000 })

const seed = async (accepted: string, settled?: string, options = {}) => {
  const payment = await seedPayment(gateway.database, {
    provider: seller(),
    acceptedAt: time(accepted),
    validBefore: 1_900_000_000,
    ...options,
  })
  if (settled) await seedSettlement(gateway.database, payment, at(settled))
  return payment
}

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const get = (path: string, app = gateway.app) =>
  call<Body>(app, 'GET', `/providers/${shop.providerId}${path}`, { key: shop.key })

/** Seeds a payment of March that settled in April, a payment of April, a tab of April, and a refund. */
async function seedMonth() {
  const march = await seed('03-31T23:50:00', '04-01T00:10:00')
  const april = await seed('04-10T10:00:00', '04-10T10:05:00')
  await seed('04-30T23:59:00', '05-01T00:30:00')
  await seed('04-11T10:00:00')
  const tab = await seedTab(gateway.database, {
    closedAt: time('04-12T12:00:00'),
    sales: [
      { provider: seller(), requests: 10, acceptedAt: time('04-12T10:30:00') },
      { provider: seller(), requests: 5 },
    ],
  })
  await settleTab(gateway.database, tab, at('04-12T12:10:00'))
  await seedRefund(gateway.database, april, {
    provider: seller(),
    value: 20_000n,
    acceptedAt: time('04-15T00:00:00'),
    settled: at('04-15T01:00:00'),
  })
  return { march, april, tab }
}

test('behavior: the book has a line for each payment that arrived, numbered without gaps, and totals', async () => {
  const { march, april, tab } = await seedMonth()
  const { body } = await get('/bookkeeping?month=2026-04')
  const line = {
    wallet: shop.wallet,
    endpoint_id: shop.endpointId,
    network: 'localhost',
    testnet: true,
    currency: 'USDC',
    fiat_gross: null,
    fiat_source: null,
    fee_document: `F-2026-04-localhost-${shop.providerId.slice(5, 13)}`,
  }
  expect(body.lines).toMatchObject([
    {
      ...line,
      document: '2026-04-000001',
      kind: 'sale',
      payment_id: march.paymentId,
      payer: march.payer,
      booking_date: '2026-04-01',
      booked_at: '2026-04-01T00:10:00.000Z',
      accepted_at: '2026-03-31T23:50:00.000Z',
      transaction: expect.stringMatching(/^0x/),
      gross: '0.050000',
      fee: '0.002500',
      net: '0.047500',
      requests: 1,
      tab_id: null,
      refund: null,
    },
    { ...line, document: '2026-04-000002', payment_id: april.paymentId, booking_date: '2026-04-10' },
    {
      ...line,
      document: '2026-04-000003',
      tab_id: tab.tabId,
      sale: 0,
      requests: 10,
      gross: '0.001000',
      fee: '0.000100',
    },
    {
      ...line,
      document: '2026-04-000004',
      tab_id: tab.tabId,
      sale: 1,
      requests: 5,
      gross: '0.000500',
      fee: '0.000050',
    },
    {
      ...line,
      document: '2026-04-000005',
      kind: 'refund',
      payment_id: april.paymentId,
      payer: april.payer,
      refund: 1,
      booking_date: '2026-04-15',
      gross: '-0.020000',
      fee: '0.000000',
      net: '-0.020000',
      fee_document: null,
    },
  ])
  expect(body.totals).toEqual([
    {
      network: 'localhost',
      testnet: true,
      documents: 5,
      requests: 17,
      gross: '0.081500',
      fee: '0.005150',
      net: '0.076350',
      refunds: '-0.020000',
      fiat_gross: null,
      fiat_fee: null,
      fiat_net: null,
      fiat_currency: null,
    },
  ])
  const [march3, may] = [
    (await get('/bookkeeping?month=2026-03')).body,
    (await get('/bookkeeping?month=2026-05')).body,
  ]
  expect([march3.lines, march3.totals]).toEqual([[], []])
  expect(may.lines).toMatchObject([{ document: '2026-05-000001', booking_date: '2026-05-01' }])
})

test('behavior: writes the same lines as CSV, with totals at the end and without formulas in cells', async () => {
  await gateway.database`update endpoint set description = '=HYPERLINK("https://evil.example")' where id = ${shop.endpointId}`
  await seedMonth()
  const { body: json } = await get('/bookkeeping?month=2026-04')
  const csv = await get('/bookkeeping?month=2026-04&format=csv')
  expect(csv.headers.get('content-type')).toBe('text/csv; charset=utf-8; header=present')
  expect(csv.headers.get('content-disposition')).toBe('attachment; filename="bookkeeping-2026-04.csv"')
  const [header = '', ...lines] = (csv.body as string).trimEnd().split('\r\n')
  const columns = header.split(',')
  expect(columns).toEqual(Object.keys(json.lines[0]))
  expect(lines).toHaveLength(6)
  for (const line of lines.slice(0, 5)) expect(line).toContain(`"'=HYPERLINK(""https://evil.example"")"`)
  const cells = lines.map((line) => line.replaceAll(/"[^,]*"/g, '').split(','))
  const cell = (row: number, column: string) => cells[row]?.[columns.indexOf(column)]
  expect([cell(4, 'gross'), cell(4, 'kind'), cell(4, 'testnet')]).toEqual(['-0.020000', 'refund', 'yes'])
  expect([cell(5, 'kind'), cell(5, 'document'), cell(5, 'gross'), cell(5, 'net')]).toEqual([
    'total',
    'total',
    '0.081500',
    '0.076350',
  ])
})

test('behavior: the book becomes final once the month has ended and none of its lines can change, and then stays the same', async () => {
  await seedMonth()
  const { database } = gateway
  const stateOf = async (month: string) => (await get(`/bookkeeping?month=${month}`)).body.state
  await database`update recorded_block set looked = 2 where time < ${time('05-01T00:00:00').getTime() / 1000}`
  await database`insert into record_head (chain_id, block_number, read_number, block_time)
    values (31337, 9000, 9000, ${time('05-02T00:00:00').getTime() / 1000})
    on conflict (chain_id) do update set block_number = 9000, read_number = 9000, block_time = excluded.block_time`
  expect([await stateOf('2026-04'), await stateOf('2026-05')]).toEqual(['final', 'preliminary'])
  const before = (await get('/bookkeeping?month=2026-04')).body
  // A payment that settles later is booked in a later month.
  await seed('04-20T00:00:00', '05-03T00:00:00')
  expect((await get('/bookkeeping?month=2026-04')).body).toEqual(before)
  await database`update recorded_block set looked = 1 where time = ${time('04-15T01:00:00').getTime() / 1000}`
  expect(await stateOf('2026-04')).toBe('preliminary')
})

/** Seeds a payment of real money; no other test has one. */
async function seedOnBase(settled: string, gross = 50_000n) {
  const [id, payer] = [newId('pay'), randomHex(20)]
  const half = seedHalf({ recipient: randomHex(20), value: gross, validBefore: 1_900_000_000n })
  await storePayments(gateway.database, [
    {
      id,
      payer,
      chainId: 8_453,
      token: seedToken,
      providerId: shop.providerId,
      endpointId: shop.endpointId,
      payee: shop.wallet,
      splitter: half.recipient,
      providerAmount: (gross * 19n) / 20n,
      feeAmount: gross / 20n,
      halves: [half],
      acceptedAt: time(settled),
    },
  ])
  const number = block++
  await recordEvents(
    gateway.database,
    { chainId: 8_453, token: seedToken },
    [
      {
        authorizer: payer,
        nonce: half.nonce,
        state: 'used',
        recipient: half.recipient,
        value: gross,
        txHash: randomHex(32),
        logIndex: 0,
        blockNumber: BigInt(number),
        blockHash: blockHashOf(number),
        blockTime: BigInt(time(settled).getTime() / 1000),
      },
    ],
    'index',
  )
}

test("behavior: adds fiat values by the operator's rates, and none if a rate is missing", async () => {
  await seedOnBase('04-10T10:00:00')
  await seedOnBase('04-12T10:00:00', 1_000n)
  const app = gateway.another({ fiat: { ratesFile, currency: 'EUR' } })
  const { body } = await get('/bookkeeping?month=2026-04', app)
  const eur = { fiat_currency: 'EUR', fiat_rate: '0.9213', fiat_rate_date: '2026-04-10', fiat_source: 'ECB' }
  expect(body.lines).toMatchObject([
    { ...eur, fiat_gross: '0.046065', fiat_fee: '0.002303', fiat_net: '0.043762' },
    { ...eur, fiat_gross: '0.000921', fiat_fee: '0.000046', fiat_net: '0.000875' },
  ])
  expect(body.totals).toMatchObject([
    {
      network: 'base',
      fiat_gross: '0.046986',
      fiat_fee: '0.002349',
      fiat_net: '0.044637',
      fiat_currency: 'EUR',
    },
  ])
  const chf = (await get('/bookkeeping?month=2026-04&currency=CHF', app)).body
  expect(chf.lines).toMatchObject([{ fiat_gross: '0.025000' }, { fiat_gross: '0.000500' }])
  await seedOnBase('04-20T10:00:00')
  const gap = (await get('/bookkeeping?month=2026-04', app)).body
  expect(gap.lines[2]).toMatchObject({ gross: '0.050000', fiat_gross: null, fiat_currency: null })
  expect(gap.totals).toMatchObject([{ fiat_gross: null, fiat_currency: null }])
})

test('error: fails instead of guessing fiat values if the file of rates is damaged', async () => {
  const damaged = join(folder, 'damaged.csv')
  await writeFile(damaged, 'date,currency,rate,source\n2026-04-10,EUR,much,ECB\n')
  const app = gateway.another({ fiat: { ratesFile: damaged, currency: 'EUR' } })
  const { status, body } = await get('/bookkeeping?month=2026-04', app)
  expect([status, body.code]).toEqual([503, 'dependency_unavailable'])
  expect(body.detail).toContain('line 2')
  expect(body.detail).not.toContain(folder)
})

test('behavior: issues a fee document with exactly the fees that were booked', async () => {
  await seedMonth()
  const operator = { name: 'Toll GmbH', address: 'Weg 1, 10115 Berlin', taxId: 'DE123456789' }
  const app = gateway.another({ operator })
  const { body: books } = await get('/bookkeeping?month=2026-04')
  const { body } = await get('/fee-document?month=2026-04', app)
  const sum = (column: string) =>
    formatUsdc(
      books.lines
        .filter(({ kind }: Body) => kind !== 'refund')
        .reduce((all: bigint, line: Body) => all + BigInt(line[column].replace('.', '')), 0n),
    )
  expect(body).toMatchObject({
    month: '2026-04',
    state: 'preliminary',
    issuer: operator,
    recipient: { providerId: shop.providerId },
    documents: [
      {
        number: books.lines[0].fee_document,
        network: 'localhost',
        payments: 17,
        gross_usdc: sum('gross'),
        fee_usdc: sum('fee'),
        net_usdc: sum('net'),
        rate: '0.050738',
        endpoints: [{ endpointId: shop.endpointId, gross_usdc: sum('gross'), fee_usdc: sum('fee') }],
      },
    ],
  })
  expect((await get('/fee-document?month=2026-04&network=base', app)).status).toBe(422)
  expect((await get('/fee-document?month=2026-03', app)).body.documents).toEqual([])
})

test('behavior: renders the fee document as a single page without scripts, and escapes all user-supplied text', async () => {
  await seedMonth()
  const evil = `<img src=x onerror="alert('1')">&`
  await gateway.database`update provider set name = ${evil} where id = ${shop.providerId}`
  await gateway.database`update endpoint set description = ${evil} where id = ${shop.endpointId}`
  const app = gateway.another({ operator: { name: evil, address: evil, taxId: evil } })
  const { body: page, headers } = await get('/fee-document?month=2026-04&format=html', app)
  expect(headers.get('content-type')).toBe('text/html; charset=utf-8')
  expect(headers.get('content-security-policy')).toMatch(
    /^default-src 'none'; style-src 'sha256-[^']+'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox$/,
  )
  expect(page).not.toMatch(/<img|<script|onerror="/)
  expect(page.match(/&lt;img src=x onerror=&quot;alert\(&#39;1&#39;\)&quot;&gt;&amp;/g)).toHaveLength(5)
  expect(page).toContain('Preliminary')
  expect(page).toContain('5.07%')
})

test('behavior: only the provider can read its books', async () => {
  await seedMonth()
  const other = await openShop(gateway.app)
  for (const path of ['/bookkeeping?month=2026-04', '/fee-document?month=2026-04']) {
    const at = `/providers/${shop.providerId}${path}`
    expect((await call(gateway.app, 'GET', at, { key: other.key })).status).toBe(403)
    expect((await call(gateway.app, 'GET', at)).status).toBe(401)
  }
  const { body } = await call<Body>(
    gateway.app,
    'GET',
    `/providers/${other.providerId}/bookkeeping?month=2026-04`,
    { key: other.key },
  )
  expect(body.lines).toEqual([])
})

test('behavior: computes the example of docs/bookkeeping.md', async () => {
  await seedMonth()
  const docs = await readFile(new URL('../../docs/bookkeeping.md', import.meta.url), 'utf8')
  const table = docs
    .slice(docs.indexOf('## Example'))
    .split('\n')
    .filter((line) => line.startsWith('|'))
  const written = table.slice(2).map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  )
  const { lines, totals } = (await get('/bookkeeping?month=2026-04')).body
  const [total] = totals
  expect(written).toEqual([
    ...lines.map((line: Body) => [
      line.document,
      line.booking_date,
      line.kind,
      line.gross,
      line.fee,
      line.net,
    ]),
    ['total', '', '', total.gross, total.fee, total.net],
  ])
  const [fees] = (await get('/fee-document?month=2026-04')).body.documents
  expect(docs.replaceAll(/\s+/g, ' ')).toContain(
    `The fee document shows fees of ${fees.fee_usdc} USDC on a gross of ${fees.gross_usdc} USDC`,
  )
  const rates = parseFiatRates('date,currency,rate,source\n2026-04-10,EUR,0.9213,ECB reference rate')
  const rate = rates.rateOn('EUR', '2026-04-10') as FiatRate
  const [gross, fee] = [convert(50_000n, rate), convert(2_500n, rate)]
  expect(docs.replaceAll(/\s+/g, ' ')).toContain(
    `0.050000 USDC at 0.9213 are ${formatUsdc(gross)} EUR gross, ${formatUsdc(fee)} EUR fee and ${formatUsdc(gross - fee)} EUR net`,
  )
})

test.each([
  ['month=2026-13', 'invalid_request'],
  ['month=2199-01', 'invalid_date_range'],
  ['month=2026-04&format=xml', 'invalid_field'],
  ['month=2026-04&currency=euro', 'invalid_request'],
])('error: rejects %s', async (query, code) => {
  expect((await get(`/bookkeeping?${query}`)).body).toMatchObject({ code })
})
