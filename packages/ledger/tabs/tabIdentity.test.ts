import { randomBytes } from 'node:crypto'
import type { PayerState } from '@tollkeeper/chain/chainReads'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { tabNonce } from '@tollkeeper/sdk/protocol/tab'
import type { Address } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { describe, expect, test } from 'vitest'
import { makeCandidate } from '../../../bench/data/makeCandidate.ts'
import { call } from '../../../test/support/gateway.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { openTabUpkeep } from '../../../test/support/tabUpkeep.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { acceptPayments } from '../acceptance/acceptPayments.ts'
import { createPayers } from '../acceptance/payers.ts'
import { endPayments } from '../queue/stages.ts'
import { createReserveForTab } from './reserveForTab.ts'

// Clients choose the ids of tabs and the nonces of other payments, but a tab always belongs to one payer.

const gateway = useGateway()
const shop = useShop(gateway)

const randomId = () => `tab_${randomBytes(16).toString('hex')}`
const named = (payer: PrivateKeyAccount, tabId: string) => openTab(gateway, payer, Date.now(), tabId)
const codesOf = (answers: { body: { code?: string } }[]) => answers.map(({ body }) => body.code ?? 'verified')
const lower = ({ address }: PrivateKeyAccount) => address.toLowerCase() as Address

const upkeepAt = (now: number) => openTabUpkeep(gateway, now)

/** Closes a tab, makes its settlement final, and deletes the tab like retention. */
async function endAndForget(tab: ReturnType<typeof openTab>): Promise<void> {
  const { paymentId } = (await tab.close()).body as { paymentId: string }
  await upkeepAt(Date.now()).closeAndTake()
  await endPayments(gateway.database, [{ paymentId, kind: 'settled', code: null, isFinal: true }], new Date())
  await upkeepAt(Date.now()).closeAndTake()
  await upkeepAt(Date.now()).forget(new Date(Date.now() + 60_000))
}

/** Returns an ordinary payment with the nonce of a tab of this payer. */
function paymentWithNonceOf(payer: PrivateKeyAccount, tabId: string) {
  const { network, token } = gateway.served
  const own = { payer: lower(payer), chainId: network.chainId, token }
  const { endpointId, providerId, wallet: payee } = shop
  const candidate = makeCandidate(Date.now(), { providerId, endpointId, payee }, own)
  const [first, ...others] = candidate.authorizations
  const nonce = tabNonce(gateway.settings.issuer, tabId)
  return { ...candidate, authorizations: [{ ...first, nonce }, ...others] } as typeof candidate
}

describe('a tab is identified by its payer and its id', () => {
  test('behavior: refuses an empty wallet that presents the id of a funded payer’s tab at the same time', async () => {
    const apps = [gateway.app, gateway.another()] as const
    for (let round = 0; round < 3; round++) {
      const tabId = randomId()
      const funded = await gateway.buyer(1_000_000n)
      const empty = await Promise.all(Array.from({ length: 24 }, () => gateway.buyer(0n)))
      const bodies = await Promise.all([funded, ...empty].map((payer) => named(payer, tabId).sign(shop)))
      const verify = (json: object, index: number) =>
        call<{ code?: string }>(apps[index % 2] as typeof gateway.app, 'POST', '/verify', { json })
      const [paid, ...others] = await Promise.all(bodies.map(verify))
      expect(paid?.status).toBe(200)
      expect(others.filter(({ status }) => status === 200)).toEqual([])
      const open = await gateway.database`
        select from tabs.tab where id = ${Buffer.from(tabId.slice('tab_'.length), 'hex')}`
      expect(open).toHaveLength(1)
    }
  })

  test('behavior: refuses an id that another payer has used, even after its tab was deleted', async () => {
    const tabId = randomId()
    const [first, second] = [
      named(await gateway.buyer(1_000_000n), tabId),
      named(await gateway.buyer(1_000_000n), tabId),
    ]
    expect(codesOf([await first.buy(shop), await second.buy(shop)])).toEqual(['verified', 'tab_mismatch'])
    await endAndForget(first)
    expect((await first.read()).status).toBe(404)
    expect(codesOf([await second.buy(shop)])).toEqual(['tab_mismatch'])
  })

  test('behavior: refuses to reopen a tab after it was deleted, because the tab’s payment used the tab’s nonce', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const tab = openTab(gateway, payer)
    await tab.buy(shop)
    await endAndForget(tab)
    expect(codesOf([await named(payer, tab.tabId).buy(shop)])).toEqual(['tab_closed'])
  })

  test('behavior: refuses to close a tab for another payer, regardless of the signature', async () => {
    const tab = openTab(gateway, await gateway.buyer(1_000_000n))
    await tab.buy(shop)
    const other = named(await gateway.buyer(1_000_000n), tab.tabId)
    other.lines.push(...tab.lines.map((line) => ({ ...line })))
    const answer = await other.close({ sequence: 9 })
    expect([answer.status, answer.body.code]).toEqual([404, 'unknown_tab'])
    expect((await tab.read()).body).toMatchObject({ closedAt: null, sequence: 1 })
  })

  test('behavior: lets another payer use an id for which credit was reserved but nothing bought', async () => {
    const tabId = randomId()
    const first = named(await gateway.buyer(1_000_000n), tabId)
    const second = named(await gateway.buyer(1_000_000n), tabId)
    expect((await first.present(await first.sign(shop, { amount: 1n }))).body.code).toBe('tab_behind')
    expect(codesOf([await second.buy(shop)])).toEqual(['tab_mismatch'])
    await upkeepAt(Date.now() + 660_000).releaseUnopened()
    expect(codesOf([await second.buy(shop)])).toEqual(['verified'])
    await upkeepAt(Date.now() + 660_000).releaseUnopened()
    expect(codesOf([await first.buy(shop)])).toEqual(['tab_mismatch'])
  })

  test('behavior: reserves credit separately on two networks, even if the payer and the tab’s id are the same', async () => {
    const rich: PayerState = {
      blockNumber: 100n,
      balance: 1_000_000_000n,
      hasCode: false,
      isBlacklisted: false,
      isPaused: false,
      isUsed: [false, false],
    }
    const served = [networks.localhost, networks.base].map(
      (network) => ({ ...gateway.served, network }) as ServedNetwork,
    )
    const options = {
      database: gateway.database,
      checkBalance: true,
      caps: { payer: null, newPayer: null },
      balanceTtlMs: 30_000,
      now: Date.now,
    }
    const reserve = createReserveForTab(gateway.database, { budget: 100_000_000n, now: Date.now })
    const tab = { payer: randomHex(20), tabId: randomId(), nonce: randomHex(32) }
    const steps = await Promise.allSettled(
      served.map((one) => reserve(tab, 1_000n, one, createPayers(one, { read: async () => rich }, options))),
    )
    expect(steps.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected'])
    const [row] = await gateway.database`
      select count(*)::int as reserved from tab_reservation where payer = ${tab.payer}`
    expect(row).toEqual({ reserved: 1 })
  })
})

describe('no payment shares its nonce with a tab', () => {
  test('behavior: refuses a payment with the nonce of an open tab', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const tab = openTab(gateway, payer)
    await tab.buy(shop)
    expect(await acceptPayments(gateway.database, [paymentWithNonceOf(payer, tab.tabId)])).toEqual([
      'replayed',
    ])
  })

  test('behavior: refuses a tab with the nonce of a payment, and reserves nothing for it', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const tab = openTab(gateway, payer)
    expect(await acceptPayments(gateway.database, [paymentWithNonceOf(payer, tab.tabId)])).toEqual([
      'accepted',
    ])
    const total = async () => {
      const [row] = await gateway.database<[{ total: bigint }]>`
        select accepted_total as total from payer where address = ${tab.payer}`
      return row.total
    }
    const before = await total()
    expect(codesOf([await tab.buy(shop)])).toEqual(['tab_mismatch'])
    expect(await total()).toBe(before)
    expect(await gateway.database`select from tab_claim where payer = ${tab.payer}`).toEqual([])
  })

  test('behavior: if a tab and a payment with the same nonce arrive at the same time, stores only one of them', async () => {
    for (let round = 0; round < 6; round++) {
      const payer = await gateway.buyer(1_000_000n)
      const tab = openTab(gateway, payer)
      const body = await tab.sign(shop)
      const [verdicts, answer] = await Promise.all([
        acceptPayments(gateway.database, [paymentWithNonceOf(payer, tab.tabId)]),
        tab.present(body),
      ])
      expect([verdicts[0] === 'accepted', answer.status === 200].filter(Boolean)).toHaveLength(1)
    }
  })
})
