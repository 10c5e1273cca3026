import { createTestClient, http } from 'viem'
import { beforeAll, describe, expect, test } from 'vitest'
import { ofTabs } from '../../../test/crash/checkpoints.ts'
import { collectBadRows } from '../../../test/support/badRows.ts'
import { call, openShop, type Shop, signedBody } from '../../../test/support/gateway.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { openTabUpkeep } from '../../../test/support/tabUpkeep.ts'
import { findTakenTab } from '../../../test/support/takenTab.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { endPayments, reopenPayments } from '../queue/stages.ts'
import { closingTimes, type TabUpkeepOptions } from './upkeep.ts'

const gateway = useGateway()
const shop = useShop(gateway)
let dear: Shop

beforeAll(async () => {
  dear = await openShop(gateway.app, '0.3')
})

type Tab = ReturnType<typeof openTab>
const minutes = (n: number) => Date.now() + n * 60_000
const openedTab = async (usdc = 5_000_000n) => openTab(gateway, await gateway.buyer(usdc))

const upkeepAt = (now: number, more: Partial<TabUpkeepOptions> = {}) => openTabUpkeep(gateway, now, more)

async function reasonAt(tab: Tab, now: number): Promise<unknown> {
  await upkeepAt(now).closeAndTake()
  return (await tab.read()).body.closeReason
}

describe('closing', () => {
  test('behavior: closes a tab after five minutes without a purchase', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    expect(await reasonAt(tab, minutes(4.9))).toBeNull()
    expect(await reasonAt(tab, minutes(5.1))).toBe('idle')
  })

  test('behavior: closes a tab a minute before it is an hour old, whether it is used or not', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    await gateway.database`update tabs.tab set used_at = used_at + interval '59 minutes'`
    expect(await reasonAt(tab, minutes(58.9))).toBeNull()
    expect(await reasonAt(tab, minutes(59.1))).toBe('old')
  })

  test('behavior: closes a tab after the number of hours that the operator sets, if the payer’s earned credit covers the tab', async () => {
    const [earned, lent] = [await openedTab(), await openedTab()]
    for (const tab of [earned, lent]) await tab.buy(shop)
    await gateway.database`update tabs.tab set lent = 0 where id = ${idOf(earned)}`
    const rules = { ...closingTimes, earnedTimes: 24, amount: 10_000_000n }
    const reasonAfter = async (tab: Tab, now: number) => {
      await upkeepAt(now, { rules }).closeAndTake()
      return (await tab.read()).body.closeReason
    }
    expect(await reasonAfter(lent, minutes(5.1))).toBe('idle')
    expect(await reasonAfter(earned, minutes(119))).toBeNull()
    await gateway.database`update tabs.tab set used_at = used_at + interval '23 hours' where id = ${idOf(earned)}`
    const longest = 24 * 59
    expect(await reasonAfter(earned, minutes(longest - 1))).toBeNull()
    expect(await reasonAfter(earned, minutes(longest + 1))).toBe('old')
  })

  test('behavior: closes a tab after the usual times if its charges exceed its payer’s earned credit', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    await gateway.database`update tabs.tab set reserved = 100000, lent = 40000 where id = ${idOf(tab)}`
    const rules = { ...closingTimes, earnedTimes: 24, amount: 10_000_000n }
    await upkeepAt(minutes(6), { rules }).closeAndTake()
    expect((await tab.read()).body.closeReason).toBeNull()
    await tab.buy(shop)
    await upkeepAt(minutes(6), { rules }).closeAndTake()
    expect((await tab.read()).body.closeReason).toBe('idle')
  })

  test('behavior: closes a tab once it uses four fifths of its payer’s credit', async () => {
    const tab = await openedTab()
    for (let n = 0; n < 2; n++) await tab.buy(dear)
    expect(await reasonAt(tab, Date.now())).toBeNull()
    const last = await tab.buy(dear)
    expect(last.body.tab.closing).toBe(true)
    expect(await reasonAt(tab, Date.now())).toBe('credit')
  })

  test('behavior: closes a tab once its charges reach a limit, regardless of the signed amount', async () => {
    const tab = await openedTab()
    const upkeep = upkeepAt(Date.now(), { rules: { ...closingTimes, amount: 600_000n } })
    const reason = async () => {
      await upkeep.closeAndTake()
      return (await tab.read()).body.closeReason
    }
    await tab.buy(dear, { amount: 600_000n })
    expect(await reason()).toBeNull()
    await tab.buy(dear)
    expect(await reason()).toBe('amount')
  })

  test('behavior: closes a tab once it has the maximum number of requests', async () => {
    const tab = await openedTab()
    const rules = { ...closingTimes, requests: 2, amount: 10_000_000n }
    const upkeep = upkeepAt(Date.now(), { rules })
    for (const expected of [null, 'count']) {
      await tab.buy(shop)
      await upkeep.closeAndTake()
      expect((await tab.read()).body.closeReason).toBe(expected)
    }
  })

  test('behavior: closes a tab if its payer’s balance is about to fall below the payer’s debts, if the payer has code, or if the tab’s nonce is used', async () => {
    const upkeep = upkeepAt(Date.now())
    const reasonOf = async (tab: Tab) => {
      await upkeep.watch(gateway.served)
      return (await tab.read()).body.closeReason
    }
    const [rich, poor, cancelling, delegating] = await Promise.all([
      openedTab(),
      openedTab(370_000n),
      openedTab(),
      openedTab(),
    ])
    for (const tab of [rich, poor, cancelling, delegating]) expect((await tab.buy(dear)).status).toBe(200)
    expect(await reasonOf(rich)).toBeNull()
    expect(await reasonOf(poor)).toBe('balance')
    await cancelling.cancel()
    expect(await reasonOf(cancelling)).toBe('authorization_used')
    const client = createTestClient({ mode: 'hardhat', transport: http(gateway.chain.url) })
    await client.setCode({ address: delegating.payer, bytecode: '0x60006000fd' })
    expect(await reasonOf(delegating)).toBe('code')
    expect(await reasonOf(rich)).toBeNull()
  })

  test('behavior: compares the payer’s balance with all debts, which include separate payments', async () => {
    const [covered, short] = await Promise.all(
      [440_000n, 430_000n].map(async (usdc) => {
        const payer = await gateway.buyer(usdc)
        const exact = await signedBody(gateway, dear, payer)
        expect((await call(gateway.app, 'POST', '/verify', { json: exact })).status).toBe(200)
        const tab = openTab(gateway, payer)
        expect((await tab.buy(shop)).status).toBe(200)
        return tab
      }),
    )
    await upkeepAt(Date.now()).watch(gateway.served)
    expect((await covered?.read())?.body.closeReason).toBeNull()
    expect((await short?.read())?.body.closeReason).toBe('balance')
  })

  test('behavior: compares the payer’s balance with its debts on any number of tabs', async () => {
    const tab = await openedTab(1_200_000n)
    await tab.buy(await openShop(gateway.app, '0.005'))
    // Add 200 similar tabs, which take several pages.
    await gateway.database`
      insert into tabs.tab select (jsonb_populate_record(t, jsonb_build_object('id', '\\x' || md5(n::text)))).*
      from tabs.tab t, generate_series(1, 199) n where t.id = ${idOf(tab)}`
    await upkeepAt(Date.now()).watch(gateway.served)
    const [row] = await gateway.database`
      select count(*)::int as closed from tabs.tab
      where payer = ${Buffer.from(tab.payer.slice(2), 'hex')} and close_reason = 'balance'`
    expect(row).toEqual({ closed: 200 })
    await gateway.database`delete from tabs.tab where payer = ${Buffer.from(tab.payer.slice(2), 'hex')}`
  })

  test('behavior: closes a tab only once if its buyer closes it at the same time', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    await gateway.database.begin(async (tx) => {
      await tx`update tabs.tab set closed_at = now(), close_reason = 'buyer' where id = ${idOf(tab)}`
      // The upkeep skips a tab that its buyer is closing.
      await upkeepAt(minutes(6)).closeAndTake()
    })
    expect((await tab.read()).body).toMatchObject({ closeReason: 'buyer', isTaken: false })
    await upkeepAt(minutes(6)).closeAndTake()
    expect((await tab.read()).body).toMatchObject({ closeReason: 'buyer', isTaken: true })
  })

  test('behavior: keeps a tab open while it is too small to settle, and ends it unpaid before it expires', async () => {
    const cheap = await openShop(gateway.app, '0.001')
    const tab = await openedTab()
    for (let n = 0; n < 4; n++) await tab.buy(cheap)
    expect(await reasonAt(tab, minutes(24 * 60))).toBeNull()
    expect(await reasonAt(tab, minutes(25.5 * 60))).toBe('expiring')
    const { body } = await tab.read()
    expect(body).toMatchObject({ isTaken: true, chargedUsdc: '0.004000' })
    expect(await findTakenTab(gateway.database, body.paymentId as string)).toBeUndefined()
    expect(await reservedOf(tab)).toBeUndefined()
  })
})

describe('the payment of a closed tab', () => {
  test('default: creates the payment from the tab’s newest state, with its lines and sales, and releases the tab’s reservation', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    await tab.buy(dear)
    await tab.buy(shop)
    expect(await reservedOf(tab)).toBeDefined()
    await tab.close()
    await upkeepAt(Date.now()).closeAndTake()
    const { body } = await tab.read()
    expect(await findTakenTab(gateway.database, body.paymentId as string)).toMatchObject({
      source: 'tab',
      stage: 'waiting',
      sequence: 4n,
      requests: 3,
      value: 400_000n,
      providerAmount: 380_000n,
      feeAmount: 20_000n,
      lines: [
        { payee: shop.wallet, amount: 100_000n },
        { payee: dear.wallet, amount: 300_000n },
      ],
      sales: [
        { providerId: shop.providerId, requests: 2, providerAmount: 95_000n, feeAmount: 5_000n },
        { providerId: dear.providerId, requests: 1, providerAmount: 285_000n, feeAmount: 15_000n },
      ],
    })
    expect(await reservedOf(tab)).toBeUndefined()
  })

  test('behavior: dates the payment’s acceptance to the closing of the tab, and the start of its wait to the first purchase', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    const closedAt = minutes(6)
    await upkeepAt(closedAt).closeAndTake()
    const { paymentId, openedAt } = (await tab.read()).body
    const readTimes = async () => {
      const [times] = await gateway.database`
        select q.accepted_at as queued, p.accepted_at as accepted
        from queue q join payment p on p.id = q.payment_id where p.id = ${paymentId as string}`
      return times
    }
    const times = { queued: new Date(openedAt as string), accepted: new Date(closedAt) }
    expect(await readTimes()).toEqual(times)
    // This also holds after the payment has failed and is to be retried.
    const end = {
      paymentId: paymentId as string,
      kind: 'failed',
      code: 'insufficient_balance',
      isFinal: false,
    } as const
    await endPayments(gateway.database, [end], new Date())
    await reopenPayments(gateway.database, [paymentId as string])
    expect(await readTimes()).toEqual(times)
  })

  test('behavior: a sale sums the purchases of one hour, from its first to its last millisecond', async () => {
    const tab = await openedTab()
    for (let n = 0; n < 3; n++) await tab.buy(shop)
    await gateway.database`
      update tabs.request set accepted_at = date_trunc('hour', accepted_at, 'UTC') - interval '1 hour'
        + (array['-1 ms', '0', '3599999 ms']::interval[])[sequence]
      where tab_id = ${idOf(tab)}`
    await upkeepAt(minutes(6)).closeAndTake()
    const { body } = await tab.read()
    const taken = await findTakenTab(gateway.database, body.paymentId as string)
    expect(taken).toMatchObject({ sales: [{ requests: 1 }, { requests: 2 }] })
  })

  test('behavior: the platform’s part is rounded once for each line, not for each hour of sales', async () => {
    const odd = await openShop(gateway.app, '0.005009')
    const tab = await openedTab()
    await tab.buy(odd)
    await tab.buy(odd)
    await gateway.database`
      update tabs.request set accepted_at = accepted_at - interval '1 hour' where tab_id = ${idOf(tab)} and sequence = 1`
    await upkeepAt(minutes(6)).closeAndTake()
    const { body } = await tab.read()
    // The platform's tenth of each sale is 500.9, and its tenth of both sales is 1,001.8.
    expect(await findTakenTab(gateway.database, body.paymentId as string)).toMatchObject({
      value: 10_018n,
      providerAmount: 9_017n,
      feeAmount: 1_001n,
      sales: [
        { requests: 1, providerAmount: 4_509n, feeAmount: 500n },
        { requests: 1, providerAmount: 4_508n, feeAmount: 501n },
      ],
    })
  })

  test.each(ofTabs)('behavior: creates the payment and its credit once after a crash at %s', async (at) => {
    const tab = await openedTab()
    await tab.buy(shop)
    await tab.buy(shop)
    await tab.charge(shop, 2, '0.02')
    const dying = upkeepAt(minutes(6), {
      checkpoint: (name) => {
        if (name === at) throw new Error('killed')
      },
    })
    await expect(dying.closeAndTake()).rejects.toThrow('killed')
    expect((await tab.read()).body).toMatchObject({ closeReason: 'idle', isTaken: false })
    await Promise.all([upkeepAt(Date.now()).closeAndTake(), upkeepAt(Date.now()).closeAndTake()])
    const { body } = await tab.read()
    expect(body.isTaken).toBe(true)
    const [{ count }] = await gateway.database<[{ count: bigint }]>`
      select count(*) from payment where id = ${body.paymentId as string}`
    expect(count).toBe(1n)
    await end(tab, 'settled')
    await Promise.all([upkeepAt(Date.now()).closeAndTake(), upkeepAt(Date.now()).closeAndTake()])
    expect(await creditOf(tab)).toEqual([30_000n])
  })

  test('behavior: a tab of several lines needs an additional fifth of the minimum for each further line', async () => {
    const shops = await Promise.all(Array.from({ length: 6 }, () => openShop(gateway.app, '0.0016')))
    const [small, enough] = [await openedTab(), await openedTab()]
    for (const own of shops) for (const tab of [small, enough]) await tab.buy(own)
    await enough.buy(shops[0] as Shop)
    await upkeepAt(minutes(6)).closeAndTake()
    const reasons = [small, enough].map(async (tab) => (await tab.read()).body.closeReason)
    expect(await Promise.all(reasons)).toEqual([null, 'idle'])
    // When the smaller tab expires, it ends without a payment.
    await upkeepAt(minutes(25.5 * 60)).closeAndTake()
    const { body } = await call(gateway.app, 'GET', `/tabs/${small.tabId}`)
    expect([body.closeReason, body.isTaken]).toEqual(['expiring', true])
    expect(await gateway.database`select from payment where id = ${body.paymentId as string}`).toEqual([])
  })

  test('behavior: after a crash, the amount of a tab that was too small reduces its payer’s credit only once', async () => {
    const cheap = await openShop(gateway.app, '0.001')
    const tab = await openedTab()
    await tab.buy(cheap)
    const dying = upkeepAt(minutes(25.5 * 60), {
      checkpoint: (name) => {
        if (name === 'after-tab-taken') throw new Error('killed')
      },
    })
    await expect(dying.closeAndTake()).rejects.toThrow('killed')
    await Promise.all([upkeepAt(Date.now()).closeAndTake(), upkeepAt(Date.now()).closeAndTake()])
    expect((await tab.read()).body.isTaken).toBe(true)
    const [row] = await gateway.database`select left_unpaid from payer where address = ${tab.payer}`
    expect(row).toEqual({ left_unpaid: 1_000n })
  })

  test('behavior: settles an older state that signs exactly the charges if the last requests were not charged', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    await tab.buy(dear)
    await tab.buy(shop)
    await tab.charge(shop, 3, '0')
    await reasonAt(tab, minutes(6))
    const { body } = await tab.read()
    expect(await findTakenTab(gateway.database, body.paymentId as string)).toMatchObject({
      sequence: 2n,
      value: 350_000n,
      lines: [{ amount: 50_000n }, { amount: 300_000n }],
    })
    await end(tab, 'settled')
    await upkeepAt(Date.now()).closeAndTake()
    expect(await creditOf(tab)).toEqual([])
  })

  test('behavior: if no state signs exactly the charges, the buyer’s next tab starts with a credit once this tab has settled', async () => {
    const payer = await gateway.buyer(5_000_000n)
    const tab = openTab(gateway, payer)
    await tab.buy(shop)
    await tab.charge(shop, 1, '0.02')
    await reasonAt(tab, minutes(6))
    const { body } = await tab.read()
    expect(await findTakenTab(gateway.database, body.paymentId as string)).toMatchObject({
      sequence: 1n,
      value: 50_000n,
      sales: [{ requests: 1, providerAmount: 19_000n, feeAmount: 1_000n }],
    })
    await end(tab, 'settled')
    await upkeepAt(Date.now()).closeAndTake()
    expect(await creditOf(tab)).toEqual([30_000n])

    const next = openTab(gateway, payer)
    const { body: first } = await next.buy(shop)
    expect(first.tab.credit).toBe('30000')
    expect((await next.read()).body).toMatchObject({ chargedUsdc: '0.020000', signedUsdc: '0.050000' })
    const own = next.lines[0] as Tab['lines'][number]
    own.amount -= 30_000n
    expect((await next.buy(shop)).status).toBe(200)
    expect((await next.read()).body).toMatchObject({ chargedUsdc: '0.070000', signedUsdc: '0.070000' })
    expect(await creditOf(next)).toEqual([])
  })

  test('behavior: gives the buyer the credit only when the settlement is final, because a reorg may revert it', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    await tab.charge(shop, 1, '0.02')
    await reasonAt(tab, minutes(6))
    const { paymentId } = (await tab.read()).body as { paymentId: string }
    const spent = { paymentId, kind: 'spent', code: null, isFinal: false } as const
    await endPayments(gateway.database, [spent], new Date())
    await upkeepAt(Date.now()).closeAndTake()
    expect(await creditOf(tab)).toEqual([])
    await end(tab, 'settled')
    await upkeepAt(Date.now()).closeAndTake()
    expect(await creditOf(tab)).toEqual([30_000n])
  })

  test('behavior: a purchase that was paid only from a credit counts as a sale, on a line that settles nothing', async () => {
    const payer = await gateway.buyer(5_000_000n)
    const [tab, next] = [openTab(gateway, payer), openTab(gateway, payer)]
    await tab.buy(shop)
    await tab.buy(dear)
    await tab.charge(shop, 1, '0')
    await reasonAt(tab, minutes(6))
    await end(tab, 'settled')
    await upkeepAt(Date.now()).closeAndTake()
    await next.buy(dear)
    expect((await next.buy(shop)).body.tab.credit).toBe('50000')
    await reasonAt(next, minutes(6))
    const { body } = await next.read()
    expect(await findTakenTab(gateway.database, body.paymentId as string)).toMatchObject({
      sequence: 2n,
      requests: 2,
      value: 350_000n,
      lines: [{ amount: 300_000n }, { amount: 50_000n }],
      sales: [{ providerId: dear.providerId }, { providerId: shop.providerId, providerAmount: 47_500n }],
    })
  })

  test('behavior: creates the payment of a tab with 150,000 requests', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    // All requests but the last are stored here in the way the gateway stores them.
    await gateway.database`
      insert into tabs.request (price, line_total, accepted_at, sequence, item, payer, tab_id, request_hash, signature)
      select 1, 1, r.accepted_at, -n, r.item, r.payer, r.tab_id, r.request_hash, r.signature
      from tabs.request r, generate_series(1, 150000) n where r.tab_id = ${idOf(tab)}`
    await tab.close()
    await upkeepAt(Date.now()).closeAndTake()
    const { body } = await tab.read()
    expect(await findTakenTab(gateway.database, body.paymentId as string)).toMatchObject({
      sales: [{ requests: 150_001 }],
    })
  })

  test('behavior: reports a tab that can’t be imported and retries it later, without delaying others', async () => {
    const [bad, good] = [await openedTab(), await openedTab()]
    for (const tab of [bad, good]) await tab.buy(shop)
    const requests = await gateway.database`delete from tabs.request where tab_id = ${idOf(bad)} returning *`
    const lost = requests.map((row) => ({ ...row }))
    const reports = collectBadRows()
    const later = (seconds: number) => upkeepAt(minutes(6) + seconds * 1_000, reports)
    await later(0).closeAndTake()
    expect([(await bad.read()).body.isTaken, (await good.read()).body.isTaken]).toEqual([false, true])
    expect(reports.bad).toEqual([{ step: 'take', row: { payer: bad.payer, tabId: bad.tabId } }])
    await gateway.database`insert into tabs.request ${gateway.database(lost)}`
    await later(3).closeAndTake()
    expect((await bad.read()).body.isTaken).toBe(false)
    await later(7).closeAndTake()
    expect((await bad.read()).body.isTaken).toBe(true)
    expect(reports.bad).toHaveLength(1)
  })

  test('behavior: a tab whose nonce another payment used ends unpaid and reduces its payer’s credit', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    const { body } = await tab.read()
    await gateway.database`
      insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after, valid_before, nonce)
      values (${`pay_${'e'.repeat(32)}`}, 0, ${gateway.served.network.chainId}, ${gateway.served.token}, ${tab.payer}, ${shop.wallet}, 1,
        0, 2000000000, ${body.nonce as string})`
    const reports = collectBadRows()
    await tab.close()
    for (let round = 0; round < 2; round++) await upkeepAt(Date.now(), reports).closeAndTake()
    expect((await tab.read()).body.isTaken).toBe(true)
    expect(await findTakenTab(gateway.database, body.paymentId as string)).toBeUndefined()
    expect((await call(gateway.app, 'GET', `/payments/${body.paymentId}`)).body).toMatchObject({
      payment_status: 'failed',
      failureCode: 'authorization_used',
    })
    expect(await reservedOf(tab)).toBeUndefined()
    const [row] = await gateway.database`select left_unpaid from payer where address = ${tab.payer}`
    expect(row).toEqual({ left_unpaid: 50_000n })
    expect(reports.bad).toHaveLength(1)
  })

  test('behavior: an amount that was signed far too high buys nothing before it has settled, or if it never settles', async () => {
    const payer = await gateway.buyer(2_000_000n)
    const [tab, other] = [openTab(gateway, payer), openTab(gateway, payer)]
    await other.buy(dear)
    await tab.buy(shop, { amount: 100_000_000n })
    expect((await tab.close({ amount: 100_000_000n })).status).toBe(200)
    const upkeep = upkeepAt(Date.now())
    await upkeep.closeAndTake()
    expect((await tab.read()).body).toMatchObject({ isTaken: true, signedUsdc: '100.000000' })
    await upkeep.closeAndTake()
    expect((await other.buy(shop)).body.tab.credit).toBeUndefined()
    expect((await other.read()).body.chargedUsdc).toBe('0.350000')
    // While the tab may still settle, its buyer's future credit is kept.
    await upkeep.forget(new Date(minutes(1)))
    await end(tab, 'failed')
    await upkeep.closeAndTake()
    expect(await creditOf(tab)).toEqual([])
    expect((await tab.read()).status).toBe(200)
    await upkeep.forget(new Date(minutes(1)))
    expect((await tab.read()).status).toBe(404)
  })

  test('behavior: a tab without charges becomes no payment', async () => {
    const tab = await openedTab()
    await tab.buy(shop)
    await tab.charge(shop, 1, '0')
    expect(await reasonAt(tab, minutes(4.9))).toBeNull()
    await reasonAt(tab, minutes(5.1))
    const { body } = await tab.read()
    expect([body.closeReason, body.isTaken]).toEqual(['idle', true])
    expect(await findTakenTab(gateway.database, body.paymentId as string)).toBeUndefined()
  })
})

test('behavior: releases the credit of a tab that was never opened', async () => {
  const tab = await openedTab()
  expect((await tab.present(await tab.sign(shop, { amount: 1n }))).body.code).toBe('tab_behind')
  const open = await openedTab()
  await open.buy(shop)
  await upkeepAt(minutes(9)).releaseUnopened()
  expect(await reservedOf(tab)).toBeDefined()
  await upkeepAt(minutes(11)).releaseUnopened()
  expect(await reservedOf(tab)).toBeUndefined()
  expect(await reservedOf(open)).toBeDefined()
})

test('behavior: deletes only tabs that were imported long ago', async () => {
  const [old, young] = [await openedTab(), await openedTab()]
  for (const tab of [old, young]) await tab.buy(shop)
  await old.close()
  await upkeepAt(Date.now()).closeAndTake()
  const { body } = await old.read()
  await end(old, 'settled')
  await upkeepAt(Date.now()).closeAndTake()
  expect(await upkeepAt(Date.now()).forget(new Date(Date.now() - 60_000))).toBe(false)
  expect((await old.read()).status).toBe(200)
  await upkeepAt(Date.now()).forget(new Date(Date.now() + 60_000))
  expect([(await old.read()).status, (await young.read()).status]).toEqual([404, 200])
  const [{ left }] = await gateway.database<[{ left: bigint }]>`
    select count(*) as left from tabs.request where payer = ${Buffer.from(old.payer.slice(2), 'hex')}`
  expect(left).toBe(0n)
  // The ledger still has the tab.
  expect(await findTakenTab(gateway.database, body.paymentId as string)).toMatchObject({ requests: 1 })
})

describe('an unused credit', () => {
  /** Creates a tab whose only line starts with a credit of 0.3 USDC, of which a purchase used 0.05. */
  async function openedWithCredit(): Promise<Tab> {
    const tab = await openedTab()
    await gateway.database`
      insert into tabs.credit (payer, chain_id, split, amount)
      select ${bytesOf(tab.payer)}, ${gateway.served.network.chainId}, ${bytesOf((await tab.challenge(shop)).tab?.split ?? '0x')}, 300000`
    expect((await tab.buy(shop)).body.tab.credit).toBe('300000')
    expect(await creditOf(tab)).toEqual([])
    return tab
  }

  test('behavior: returns the unused part once when the tab is imported, even after a crash', async () => {
    const tab = await openedWithCredit()
    await tab.buy(dear)
    await tab.close()
    const dying = upkeepAt(Date.now(), {
      checkpoint: (name) => {
        if (name === 'after-tab-taken') throw new Error('killed')
      },
    })
    await expect(dying.closeAndTake()).rejects.toThrow('killed')
    expect(await creditOf(tab)).toEqual([])
    await Promise.all([upkeepAt(Date.now()).closeAndTake(), upkeepAt(Date.now()).closeAndTake()])
    expect(await creditOf(tab)).toEqual([250_000n])
    await end(tab, 'settled')
    await upkeepAt(Date.now()).closeAndTake()
    // The first state signed 0.05 USDC on the line, which the credit had already paid.
    expect(await creditOf(tab)).toEqual([300_000n])
  })

  test('behavior: returns only the unused part if the tab’s payment fails, because the signed amounts never moved', async () => {
    const tab = await openedWithCredit()
    await tab.buy(dear)
    await tab.close()
    await upkeepAt(Date.now()).closeAndTake()
    await end(tab, 'failed')
    await upkeepAt(Date.now()).closeAndTake()
    expect(await creditOf(tab)).toEqual([250_000n])
  })

  test('behavior: returns the unused part if only the credit paid for the tab’s requests', async () => {
    const tab = await openedWithCredit()
    await reasonAt(tab, minutes(5.1))
    expect((await tab.read()).body).toMatchObject({ isTaken: true, chargedUsdc: '0.000000' })
    expect(await creditOf(tab)).toEqual([250_000n])
  })

  test('behavior: returns the unused part if the tab can never become a payment', async () => {
    const tab = await openedWithCredit()
    await tab.buy(dear)
    const { body } = await tab.read()
    await gateway.database`
      insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after, valid_before, nonce)
      values (${`pay_${'f'.repeat(32)}`}, 0, ${gateway.served.network.chainId}, ${gateway.served.token}, ${tab.payer}, ${shop.wallet}, 1,
        0, 2000000000, ${body.nonce as string})`
    await tab.close()
    await upkeepAt(Date.now(), collectBadRows()).closeAndTake()
    expect(await creditOf(tab)).toEqual([250_000n])
  })
})

test('behavior: credits a buyer with the amount that another state moved beyond the charges', async () => {
  const tab = await openedTab()
  await tab.buy(shop)
  await tab.buy(dear)
  await tab.charge(dear, 2, '0.1')
  await tab.buy(shop, { amount: 60_000n })
  await tab.close()
  await upkeepAt(Date.now()).closeAndTake()
  const { paymentId } = (await tab.read()).body as { paymentId: string }
  // Writes the same row as facts/record.ts after an older state of the tab moved.
  await gateway.database`update tab_line set moved = case position when 0 then 20000 else 300000 end where payment_id = ${paymentId}`
  await end(tab, 'settled')
  await upkeepAt(Date.now()).closeAndTake()
  expect(await creditOf(tab)).toEqual([200_000n])
})

/** Finalizes the payment of a tab that was imported. */
async function end(tab: Tab, kind: 'settled' | 'failed'): Promise<void> {
  const { paymentId } = (await tab.read()).body as { paymentId: string }
  const code = kind === 'failed' ? 'insufficient_balance' : null
  await endPayments(gateway.database, [{ paymentId, kind, code, isFinal: true }], new Date())
}

function idOf({ tabId }: Tab): Buffer {
  return Buffer.from(tabId.slice('tab_'.length), 'hex')
}

async function reservedOf({ tabId }: Tab): Promise<bigint | undefined> {
  const [row] = await gateway.database<{ reserved: bigint }[]>`
    select reserved from tab_reservation where tab_id = ${tabId}`
  return row?.reserved
}

function bytesOf(address: string): Buffer {
  return Buffer.from(address.slice(2), 'hex')
}

async function creditOf({ payer }: Tab): Promise<bigint[]> {
  const rows = await gateway.database<{ amount: bigint }[]>`
    select amount from tabs.credit where payer = ${Buffer.from(payer.slice(2), 'hex')}`
  return rows.map(({ amount }) => amount)
}
