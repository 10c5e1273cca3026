import { randomUUID } from 'node:crypto'
import type { Database } from '@tollkeeper/ledger/store/database'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { findLineNeeds } from '@tollkeeper/sdk/audit/tabLines'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { attenuateMacaroon } from '@tollkeeper/sdk/protocol/macaroon'
import { parseReceiptClaims, type ReceiptClaims } from '@tollkeeper/sdk/protocol/receipt'
import { decodeJwt } from 'jose'
import { decodeFunctionData, ExecutionRevertedError, type Hex, zeroAddress } from 'viem'
import { describe, expect, test } from 'vitest'
import { drawFrom } from '../../../test/support/draw.ts'
import { call, openShop, signedBody } from '../../../test/support/gateway.ts'
import { codesOf, openTab, readReserved, type StateChange } from '../../../test/support/tabBuyer.ts'
import { openTabUpkeep } from '../../../test/support/tabUpkeep.ts'
import { until } from '../../../test/support/until.ts'
import { randomHex, setBlacklisted } from '../../../test/support/usdc.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { hmacSha256 } from '../../http/hmac.ts'

const gateway = useGateway()
const shop = useShop(gateway)
const price = 50_000n

const reserved = (tabId: string) => readReserved(gateway.database, tabId)
const openedTab = async (usdc = 5_000_000n) => openTab(gateway, await gateway.buyer(usdc))

test('default: accepts many requests on one tab, each with its own receipt', async () => {
  const tab = await openedTab()
  const answers = []
  for (let n = 0; n < 3; n++) answers.push(await tab.buy(shop))
  expect(codesOf(answers)).toEqual(Array(3).fill('verified'))
  const claims = answers.map(({ body }) => parseReceiptClaims(decodeJwt(body.receipt as string)))
  expect(claims.map(({ totalUsdc, tab }) => [totalUsdc, tab?.sequence, tab?.lineTotal])).toEqual([
    ['50000', 1, '50000'],
    ['50000', 2, '100000'],
    ['50000', 3, '150000'],
  ])
  expect(new Set(claims.map(({ paymentId }) => paymentId)).size).toBe(1)
  const { body } = await tab.read()
  expect(body).toMatchObject({ requests: 3, sequence: 3, chargedUsdc: '0.150000', signedUsdc: '0.150000' })
})

test('behavior: a buyer that lost the answer can read how much its request is charged', async () => {
  const tab = await openedTab()
  const body = await tab.sign(shop)
  await tab.present(body)
  const ask = (sequence: number | string) =>
    call(gateway.app, 'GET', `/tabs/${tab.tabId}/requests/${sequence}`, {
      headers: { 'tab-signature': body.tab.signature },
    })
  const request = { tabId: tab.tabId, sequence: 1, priceUsdc: '0.050000' }
  expect((await ask(1)).body).toMatchObject({ ...request, chargedUsdc: '0.050000' })
  await tab.charge(shop, 1, '0')
  expect((await ask(1)).body).toMatchObject({ ...request, chargedUsdc: '0.000000' })
  expect((await ask(2)).body).toMatchObject({ status: 404, code: 'unknown_tab' })
  expect((await ask('x')).body).toMatchObject({ status: 400 })
})

test('behavior: a request is shown to its provider and its buyer, but to no other provider on the tab', async () => {
  const tab = await openedTab()
  const other = await openShop(gateway.app)
  const [mine, theirs] = [await tab.sign(shop), await tab.sign(other)]
  for (const body of [mine, theirs]) expect((await tab.present(body)).status).toBe(200)
  const ask = async (options: Parameters<typeof call>[3]) => {
    const { status, body } = await call(gateway.app, 'GET', `/tabs/${tab.tabId}/requests/1`, options)
    return [status, body.code ?? typeof body.receipt]
  }
  const signedBy = (signature: string) => ({ headers: { 'tab-signature': signature } })
  expect(await ask({ key: shop.key })).toEqual([200, 'string'])
  expect(await ask(signedBy(mine.tab.signature))).toEqual([200, 'string'])
  // Another encoding of the same signature.
  const yParity = mine.tab.signature.endsWith('1b') ? '00' : '01'
  expect(await ask(signedBy(`${mine.tab.signature.slice(0, -2)}${yParity}`))).toEqual([200, 'string'])
  expect(await ask(signedBy('none'))).toEqual([403, 'forbidden'])
  expect(await ask({})).toEqual([401, 'unauthorized'])
  expect(await ask({ key: other.key })).toEqual([403, 'forbidden'])
  // The state of another request of the tab, which that request's provider has seen.
  expect(await ask(signedBy(theirs.tab.signature))).toEqual([403, 'forbidden'])
  expect(await ask({ key: other.key, ...signedBy(theirs.tab.signature) })).toEqual([403, 'forbidden'])
})

test('behavior: a tab’s states may arrive in any order and at two processes, and each state buys one request', async () => {
  const tab = await openedTab()
  await tab.buy(shop)
  const other = await openShop(gateway.app, '0.02')
  const signed = []
  for (let n = 0; n < 12; n++) signed.push(await tab.sign(n % 3 === 0 ? other : shop))
  const apps = [gateway.app, gateway.another()]
  const answers = await Promise.all(
    signed.reverse().map((body, index) => tab.present(body, { app: apps[index % 2] as typeof gateway.app })),
  )
  expect(codesOf(answers)).toEqual(Array(12).fill('verified'))
  expect((await tab.read()).body).toMatchObject({
    requests: 13,
    chargedUsdc: '0.530000',
    signedUsdc: '0.530000',
    lines: [{ chargedUsdc: '0.450000' }, { chargedUsdc: '0.080000' }],
  })
})

test('behavior: if two processes read a tab at the same time, the second process charges only what the first one left unspent', async () => {
  const tab = await openedTab()
  await tab.buy(shop)
  const [first, second] = [await tab.sign(shop), await tab.sign(shop)]
  const waiting = await gateway.database.begin(async (tx) => {
    const app = gateway.withOptions({ tabDatabase: onOnePostgres(tx as unknown as Database) })
    expect((await tab.present(first, { app })).status).toBe(200)
    const answer = tab.present(second)
    await until('the second process waits for the row', async () => {
      const [row] = await gateway.database`select from pg_locks where not granted`
      return row !== undefined
    })
    return { answer }
  })
  expect((await waiting.answer).status).toBe(200)
  expect((await tab.read()).body).toMatchObject({ requests: 3, chargedUsdc: '0.150000' })
})

test('behavior: a request that reaches the table after its caller’s deadline is not accepted; if it is sent again in time, it is accepted', async () => {
  const [opened, fresh] = [await openedTab(), await openedTab()]
  await opened.buy(shop)
  const bodies = [await opened.sign(shop), await fresh.sign(shop)]
  const verify = (json: object) =>
    call<{ code?: string }>(gateway.app, 'POST', '/verify', { json, headers: { prefer: 'wait=1' } })
  const answers = await gateway.database.begin(async (tx) => {
    await tx`lock table tabs.tab in share mode`
    const waiting = bodies.map(verify)
    await until('the requests wait for the table', async () => {
      const [row] = await gateway.database<[{ count: number }]>`
        select count(*)::int from pg_locks where not granted and relation = 'tabs.tab'::regclass`
      return row.count > 0
    })
    // Waits by the database's clock, which decides.
    await tx`select pg_sleep(1.6)`
    return { waiting }
  })
  for (const { status, body } of await Promise.all(answers.waiting))
    expect([status, body.code]).toEqual([503, 'dependency_unavailable'])
  expect((await opened.read()).body).toMatchObject({ requests: 1, sequence: 1, chargedUsdc: '0.050000' })
  expect((await fresh.read()).status).toBe(404)
  for (const body of bodies) expect((await verify(body)).status).toBe(200)
  expect((await opened.read()).body).toMatchObject({ requests: 2, sequence: 2, chargedUsdc: '0.100000' })
})

test('behavior: asking whether a request was accepted does not accept it', async () => {
  const [opened, fresh] = [await openedTab(), await openedTab()]
  await opened.buy(shop)
  const ask = (json: object, key: string, headers: Record<string, string> = {}) =>
    call<{ code?: string }>(gateway.app, 'POST', '/verify', {
      json,
      headers: { 'idempotency-key': key, ...headers },
    })
  const single = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
  for (const body of [await opened.sign(shop), await fresh.sign(shop), single]) {
    const keys = [randomUUID(), randomUUID()] as const
    const about = (key: string) => ask(body, key, { 'if-match': '*' })
    expect(await about(keys[0])).toMatchObject({ status: 404, body: { code: 'unknown_payment' } })
    // Sends the request with another key. If the question above had accepted the request, it would now be refused as a repeat.
    expect((await ask(body, keys[1])).status).toBe(200)
    expect((await about(keys[1])).status).toBe(200)
    expect(await about(keys[0])).toMatchObject({ status: 409, body: { code: 'payment_replayed' } })
  }
  expect((await opened.read()).body).toMatchObject({ requests: 2 })
  expect((await ask(single, randomUUID(), { 'if-match': '"x"' })).status).toBe(422)
})

test('behavior: asking about a tab that was never opened reserves no credit for it', async () => {
  const tab = await openedTab()
  const headers = { 'idempotency-key': randomUUID(), 'if-match': '*' }
  const answer = await call(gateway.app, 'POST', '/verify', { json: await tab.sign(shop), headers })
  expect(answer.status).toBe(404)
  expect(await reserved(tab.tabId)).toBeUndefined()
})

describe('duplicate requests', () => {
  test('behavior: one of ten copies of a request is served; the others get 409', async () => {
    const tab = await openedTab()
    const body = await tab.sign(shop)
    const apps = [gateway.app, gateway.another()]
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, n) => tab.present(body, { app: apps[n % 2] as typeof gateway.app })),
    )
    expect(codesOf(answers).sort()).toEqual([...Array(9).fill('payment_replayed'), 'verified'])
    expect((await tab.read()).body).toMatchObject({ requests: 1, chargedUsdc: '0.050000' })
  })

  test('behavior: the same Idempotency-Key gets the same answer, immediately and later; after a void it buys nothing', async () => {
    const tab = await openedTab()
    const body = await tab.sign(shop)
    const key = randomUUID()
    const answers = await Promise.all(Array.from({ length: 4 }, () => tab.present(body, { key })))
    expect(codesOf(answers)).toEqual(Array(4).fill('verified'))
    const claims = answers.map(({ body }) => decodeJwt(body.receipt as string))
    expect(new Set(claims.map((one) => JSON.stringify(one))).size).toBe(1)
    expect((await tab.charge(shop, 1, '0')).status).toBe(200)
    expect((await tab.present(body, { key })).body.code).toBe('payment_voided')
    expect((await tab.present(body)).body.code).toBe('payment_replayed')
    // With a reduced charge, it is still the same request.
    expect((await tab.charge(shop, 1, '0.01')).status).toBe(200)
    expect((await tab.present(body, { key })).status).toBe(200)
    expect((await tab.charge(shop, 1, '0')).status).toBe(200)
    expect((await tab.read()).body).toMatchObject({ requests: 1, chargedUsdc: '0.000000' })
  })

  test('error: a state that bought from one endpoint buys nothing from another', async () => {
    const tab = await openedTab()
    const body = await tab.sign(shop)
    const other = await openShop(gateway.app, '0.05')
    expect((await tab.present(body)).status).toBe(200)
    const { macaroon } = await tab.challenge(other)
    const elsewhere = { ...body, macaroon, providerId: other.providerId, endpointId: other.endpointId }
    expect((await tab.present(elsewhere)).body.code).toBe('tab_mismatch')
  })
})

describe('the signed state', () => {
  test.each<[string, StateChange, string]>([
    ['an amount below the price', { amount: price - 1n }, 'tab_behind'],
    ['an amount of 0', { amount: 0n }, 'tab_behind'],
    ['another contract', { terms: { contract: zeroAddress } }, 'invalid_signature'],
    ['another platform', { terms: { platform: zeroAddress } }, 'invalid_signature'],
    ['another reward', { terms: { rewardShare: 0 } }, 'invalid_signature'],
    ['another gateway', { terms: { issuer: 'https://other.example' } }, 'invalid_signature'],
    [
      'an expiry within two hours',
      { expiry: Math.floor(Date.now() / 1000) + 7_100 },
      'authorization_expires_too_soon',
    ],
    ['an expiry in the past', { expiry: 1_700_000_000 }, 'authorization_expired'],
    ['an expiry years from now', { expiry: 2_000_000_000 }, 'tab_mismatch'],
    ['lines that were never sent', { known: 1 }, 'tab_mismatch'],
  ])('error: rejects a state with %s', async (_, change, code) => {
    const tab = await openedTab()
    expect((await tab.present(await tab.sign(shop, change))).body.code).toBe(code)
    expect((await tab.read()).status).toBe(404)
  })

  test.each(['tab', 'sequence', 'expiry', 'amounts', 'splits', 'payer', 'signature'] as const)(
    'error: rejects a state whose %s changed in transit',
    async (field) => {
      const tab = await openedTab()
      const body = await tab.sign(shop)
      const changed = {
        tab: `tab_${'0'.repeat(32)}`,
        sequence: 2,
        expiry: body.tab.expiry + 1,
        amounts: '0x00000000ffff' as const,
        splits: body.tab.splits.map((split) => `${split.slice(0, -1)}2` as const),
        payer: `0x${'1'.repeat(40)}` as const,
        signature: `${body.tab.signature.slice(0, 20)}00${body.tab.signature.slice(22)}` as const,
      }[field]
      const { status, body: problem } = await tab.present({ ...body, tab: { ...body.tab, [field]: changed } })
      expect([status, problem.code]).toEqual([402, field === 'splits' ? 'tab_mismatch' : 'invalid_signature'])
    },
  )

  test('error: rejects a line with another recipient, even with the same amount', async () => {
    const tab = await openedTab()
    const asked = await tab.challenge(shop)
    const thief = BigInt(`0x${'d'.repeat(40)}`) << 96n
    const split =
      `0x${(thief | (BigInt(asked.tab?.split as string) & (2n ** 96n - 1n))).toString(16)}` as const
    const body = await tab.sign(shop, {}, { ...asked, tab: { ...asked.tab, split } as never })
    expect((await tab.present(body)).body.code).toBe('tab_mismatch')
  })

  test('error: rejects a line below the charged amount, and accepts a line that is lowered exactly to it', async () => {
    const tab = await openedTab()
    const other = await openShop(gateway.app, '0.02')
    await tab.buy(shop)
    await tab.buy(other)
    const body = await tab.sign(other)
    // The same state lowers another line.
    const own = tab.lines[0] as (typeof tab.lines)[number]
    own.amount -= 1n
    expect((await tab.present(await tab.sign(other))).body.code).toBe('tab_behind')
    own.amount += 1n
    expect((await tab.present(body)).status).toBe(200)
  })

  test('error: rejects a used macaroon at another endpoint, for another payer, or after it expired', async () => {
    const [tab, stranger] = [await openedTab(), await openedTab()]
    const asked = await tab.challenge(shop)
    const macaroon = attenuateMacaroon(asked.macaroon, { payer: tab.payer }, hmacSha256)
    for (let n = 0; n < 2; n++)
      expect((await tab.present(await tab.sign(shop, {}, { ...asked, macaroon }))).status).toBe(200)
    const other = await openShop(gateway.app, '0.05')
    const elsewhere = { ...(await tab.sign(other)), macaroon }
    expect((await tab.present(elsewhere)).body.code).toBe('caveat_mismatch')
    const theirs = await stranger.sign(shop, {}, { ...asked, macaroon })
    expect((await stranger.present(theirs)).body.code).toBe('caveat_mismatch')
    const late = await tab.sign(shop, {}, { ...asked, macaroon })
    gateway.setNow(Date.now() + 301_000)
    expect((await tab.present(late)).body.code).toBe('macaroon_expired')
  })

  test('error: rejects a state without a macaroon, with another endpoint’s macaroon, or with an expired macaroon', async () => {
    const tab = await openedTab()
    const body = await tab.sign(shop)
    const other = await openShop(gateway.app)
    const { macaroon: _, ...without } = body
    expect((await tab.present(without as never)).body.code).toBe('invalid_field')
    const { macaroon } = await tab.challenge(other)
    expect((await tab.present({ ...body, macaroon })).body.code).toBe('caveat_mismatch')
    gateway.setNow(Date.now() + 301_000)
    expect((await tab.present(body)).body.code).toBe('macaroon_expired')
  })

  test('behavior: an offer can be used many times until it expires', async () => {
    const tab = await openedTab()
    const asked = await tab.challenge(shop)
    for (let n = 0; n < 3; n++) expect((await tab.present(await tab.sign(shop, {}, asked))).status).toBe(200)
  })
})

describe('bounds', () => {
  test.each([
    [100_000, undefined],
    [100_001, 'tab_mismatch'],
    [7_200, undefined],
    [7_199, 'authorization_expires_too_soon'],
  ])(
    'args: accepts a tab only if it is valid for 7,200 to 100,000 seconds: %d seconds',
    async (seconds, code) => {
      const now = Date.now()
      gateway.setNow(now)
      const tab = await openedTab()
      const body = await tab.sign(shop, { expiry: Math.floor(now / 1000) + seconds })
      expect((await tab.present(body)).body.code).toBe(code)
    },
  )

  test('error: rejects a new tab whose nonce is used on chain, even for a known payer', async () => {
    const payer = await gateway.buyer(5_000_000n)
    expect((await openTab(gateway, payer).buy(shop)).status).toBe(200)
    const tab = openTab(gateway, payer)
    await tab.cancel()
    expect((await tab.buy(shop)).body.code).toBe('authorization_used')
  })

  test('error: rejects a state if USDC has blacklisted the payee since the offer', async () => {
    const own = await openShop(gateway.app)
    const tab = await openedTab()
    const body = await tab.sign(own)
    await setBlacklisted(gateway.chain, own.wallet, true)
    // A process that hasn't checked this wallet before.
    const answer = await tab.present(body, { app: gateway.another() })
    expect(answer.body.code).toBe('payee_refused')
    expect((await tab.read()).status).toBe(404)
  })

  test('error: rejects a used macaroon at another endpoint of the same provider', async () => {
    const tab = await openedTab()
    const body = await tab.sign(shop)
    expect((await tab.present(body)).status).toBe(200)
    const { body: other } = await call<{ endpointId: string }>(
      gateway.app,
      'POST',
      `/providers/${shop.providerId}/endpoints`,
      {
        json: {
          url: `${shop.url}/other`,
          method: 'GET',
          pricing: { usdcPerUnit: '0.05' },
          walletId: shop.walletId,
        },
        key: shop.key,
      },
    )
    const next = { ...(await tab.sign(shop)), macaroon: body.macaroon }
    const elsewhere = { ...next, endpointId: other.endpointId }
    expect((await tab.present(elsewhere)).body.code).toBe('caveat_mismatch')
    expect((await tab.present(next)).status).toBe(200)
  })

  test('args: rejects an offer below the price that the provider requests now', async () => {
    const tab = await openedTab()
    const body = await tab.sign(shop)
    const priced = (usdcPerUnit: string) => ({ ...body, pricing: { usdcPerUnit } })
    expect((await tab.present(priced('0.050001'))).body.code).toBe('challenge_price_too_low')
    expect((await tab.present(priced('0.05'))).status).toBe(200)
  })

  test('behavior: asks the buyer to open another tab once four fifths of the credit are used', async () => {
    const own = await openShop(gateway.app, '0.2')
    const tab = await openedTab()
    const closing = []
    for (let n = 0; n < 4; n++) closing.push((await tab.buy(own)).body.tab.closing)
    expect(closing).toEqual([undefined, undefined, undefined, true])
  })
})

describe('reduced charges', () => {
  test('behavior: if a request is charged less than the buyer signed, the next requests use the remaining amount', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    const { body: charged } = await tab.charge(shop, 1, '0.02')
    const claims = parseReceiptClaims(decodeJwt((charged as { receipt: string }).receipt))
    expect([claims.totalUsdc, claims.platformUsdc, claims.tab?.lineTotal]).toEqual(['20000', '1000', '20000'])
    expect((await tab.read()).body).toMatchObject({ chargedUsdc: '0.020000', signedUsdc: '0.050000' })
    const own = tab.lines[0] as (typeof tab.lines)[number]
    own.amount = 20_000n
    expect((await tab.buy(shop)).status).toBe(200)
    expect((await tab.read()).body).toMatchObject({ chargedUsdc: '0.070000', signedUsdc: '0.070000' })
  })

  test('behavior: the last change of a request’s charge counts, and a charge can’t exceed the price or the signed amount', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    for (const amount of ['0.01', '0.03', '0.03', '0.05', '0']) {
      expect((await tab.charge(shop, 1, amount)).status).toBe(200)
    }
    expect((await tab.charge(shop, 1, '0.050001')).body.code).toBe('invalid_field')
    const own = tab.lines[0] as (typeof tab.lines)[number]
    own.amount = 0n
    await tab.buy(shop)
    // Request 1 now costs 0, and the amount signed for it has paid for another request. So its charge can't be raised again.
    expect((await tab.charge(shop, 1, '0.01')).body.code).toBe('invalid_field')
    expect((await tab.read()).body).toMatchObject({ chargedUsdc: '0.050000', signedUsdc: '0.050000' })
  })

  test('behavior: if charges on a tab were reduced, its receipts prove the amount that each request needs on its line', async () => {
    const tab = await openedTab()
    const small = await openShop(gateway.app, '0.005')
    const price = 5_000n
    const draw = drawFrom('reduced')
    const charged: bigint[] = []
    const latest: ReceiptClaims[] = []
    const read = (body: unknown) => parseReceiptClaims(decodeJwt((body as { receipt: string }).receipt))
    for (let step = 0; step < 60; step++) {
      const n = Math.floor(draw() * charged.length)
      const left = charged[n] ?? 0n
      if (draw() < 0.5 && left > 0n) {
        charged[n] = draw() < 0.5 ? 0n : BigInt(Math.floor(draw() * Number(left)))
        const { body } = await tab.charge(small, n + 1, formatUsdc(charged[n] ?? 0n))
        latest[n] = read(body)
        expect(latest[n]?.status).toBe(charged[n] === 0n ? 'voided' : 'verified')
      } else {
        const { body } = await tab.buy(small)
        latest.push(read(body))
        charged.push(price)
      }
    }
    const upTo = charged.map((_, n) => charged.slice(0, n + 1).reduce((sum, amount) => sum + amount))
    expect(latest.map(findLineNeeds(latest))).toEqual(upTo)
    const { body } = await call(gateway.app, 'GET', `/tabs/${tab.tabId}/requests/${charged.length}`, {
      key: small.key,
    })
    expect(read(body).tab).toEqual(latest.at(-1)?.tab)
    // A holder of only some receipts never computes an amount that is too low.
    const partly = findLineNeeds(latest.filter((_, n) => n % 3 > 0))
    for (const [n, claims] of latest.entries())
      expect(partly(claims)).toBeGreaterThanOrEqual(upTo[n] as bigint)
  })

  test('behavior: if a request’s charge is raised again, the line must cover this charge and the charges of all requests bought before the raise', async () => {
    const tab = await openedTab()
    const read = (body: unknown) => parseReceiptClaims(decodeJwt((body as { receipt: string }).receipt))
    await tab.buy(shop)
    await tab.charge(shop, 1, '0')
    const second = read((await tab.buy(shop)).body)
    const raised = read((await tab.charge(shop, 1, '0.03')).body)
    const needOf = findLineNeeds([second, raised])
    expect([second, raised].map(needOf)).toEqual([50_000n, 80_000n])
  })

  test('error: allows only the provider that sold a request to change its charge', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    const other = await openShop(gateway.app)
    expect((await tab.charge(other, 1, '0')).body.code).toBe('forbidden')
    expect((await tab.charge({ ...shop, key: 'tk_no' }, 1, '0')).status).toBe(401)
    expect((await tab.charge(shop, 2, '0')).body.code).toBe('unknown_tab')
    expect((await tab.read()).body).toMatchObject({ chargedUsdc: '0.050000' })
  })
})

test.each([
  ['/tabs/tab_no/close', 400],
  ['/tabs/tab_no/requests/1/charge', 404],
  [`/tabs/tab_${'0'.repeat(32)}/requests/0/charge`, 422],
])('error: POST %s is refused as malformed', async (path, expected) => {
  const { status } = await call(gateway.app, 'POST', path, { key: shop.key, json: { amount: '0' } })
  expect(status).toBe(expected)
})

test('error: a provider’s sales on open and closed tabs count against its limit', async () => {
  const app = gateway.another({ providerCap: 120_000n })
  const own = await openShop(gateway.app)
  const tab = await openedTab()
  const buy = async (at: typeof app) => (await tab.present(await tab.sign(own), { app: at })).body.code
  expect([await buy(app), await buy(app)]).toEqual([undefined, undefined])
  const body = await tab.sign(own)
  expect((await tab.present(body, { app })).body.code).toBe('provider_limit_exceeded')
  const key = randomUUID()
  expect((await tab.present(body, { key })).status).toBe(200)
  // The middleware can still ask about a request that was accepted before the limit was reached, and can therefore void it.
  const headers = { 'idempotency-key': key, 'if-match': '*' }
  expect((await call(app, 'POST', '/verify', { json: body, headers })).status).toBe(200)
  await tab.close()
  await openTabUpkeep(gateway, Date.now()).closeAndTake()
  // Another process, which has accepted none of these requests.
  const other = gateway.another({ providerCap: 190_000n })
  const next = await openedTab()
  expect((await next.present(await next.sign(own), { app: other })).body.code).toBe('provider_limit_exceeded')
})

describe('prices', () => {
  test('behavior: prices down to one base unit are possible only on a tab', async () => {
    const cheap = await openShop(gateway.app, '0.000001')
    const tab = await openedTab()
    const { body } = await tab.buy(cheap)
    const claims = parseReceiptClaims(decodeJwt(body.receipt as string))
    expect([claims.totalUsdc, claims.platformUsdc, claims.tier]).toEqual(['1', '0', 'ultra-micro'])
    const asked = await tab.challenge(cheap)
    expect(asked.tab?.only).toBe(true)
    const exact = await signedBody(gateway, cheap, await gateway.buyer(1_000_000n))
    expect((await call(gateway.app, 'POST', '/verify', { json: exact })).body.code).toBe(
      'price_below_minimum',
    )
  })

  test('behavior: no tab is offered for prices of 1 USDC or more', async () => {
    const expensive = await openShop(gateway.app, '1')
    expect((await (await openedTab()).challenge(expensive)).tab).toBeUndefined()
  })

  test('error: if tabs are off, they are neither offered nor accepted', async () => {
    const off = gateway.another({ tabs: null })
    const tab = await openedTab()
    expect((await tab.challenge(shop, off)).tab).toBeUndefined()
    expect((await tab.present(await tab.sign(shop), { app: off })).body.code).toBe('tabs_off')
  })
})

describe('USDC changes', () => {
  /** Creates a gateway with its own TabSettlement address, and with a simulated state of USDC. */
  function openElsewhere(client = gateway.served.client) {
    const deployment = { ...gateway.served.deployment, tabSettlement: randomHex(20) }
    const served = { ...gateway.served, client, deployment }
    return { served, app: () => gateway.withOptions({ networks: [served] }) }
  }

  async function tradeAt({ served, app }: ReturnType<typeof openElsewhere>, change: () => Promise<unknown>) {
    const cheap = await openShop(gateway.app, '0.001')
    const before = app()
    const payer = await gateway.buyer(1_000_000n)
    const tab = openTab({ ...gateway, served, app: before }, payer)
    expect((await tab.present(await tab.sign(shop), { app: before })).status).toBe(200)
    const body = await tab.sign(shop)
    await change()
    // Opens another process, because the first process still has USDC's earlier state in its cache.
    const after = app()
    expect((await tab.challenge(shop, after)).tab).toBeUndefined()
    expect((await tab.present(body, { app: after })).body.code).toBe('tabs_off')
    const { providerId, endpointId } = cheap
    const asked = await call(after, 'POST', '/challenge', { json: { providerId, endpointId } })
    expect(asked.body.code).toBe('price_below_minimum')
    const exact = await signedBody(gateway, shop, payer)
    expect((await call(after, 'POST', '/verify', { json: exact })).status).toBe(200)
  }

  test('behavior: if TabSettlement is blacklisted, tabs are neither offered nor accepted, but ordinary payments are', async () => {
    const elsewhere = openElsewhere()
    await tradeAt(elsewhere, () =>
      setBlacklisted(gateway.chain, elsewhere.served.deployment.tabSettlement, true),
    )
  })

  test('behavior: if USDC limits validBefore, tabs are neither offered nor accepted', async () => {
    let isBounded = false
    const { client } = gateway.served
    const call: typeof client.call = async (asked) => {
      const { to, data = '0x' } = asked as { to?: string | null; data?: Hex }
      if (isBounded && to === gateway.served.token) {
        const { args } = decodeFunctionData({ abi: usdcAbi, data })
        if (args?.some((one) => typeof one === 'bigint' && one >= 2n ** 40n))
          throw new ExecutionRevertedError({ message: 'FiatTokenV3: authorization is valid too long' })
      }
      return client.call(asked)
    }
    const elsewhere = openElsewhere({ ...client, call })
    await tradeAt(elsewhere, async () => {
      isBounded = true
    })
  })
})
