import { tabNonce } from '@tollkeeper/sdk/protocol/tab'
import type { Address } from 'viem'
import { beforeAll, expect, test } from 'vitest'
import { openShop, type Shop } from '../../../test/support/gateway.ts'
import { blockHashOf } from '../../../test/support/seedPayments.ts'
import { tabEvidence } from '../../../test/support/seedTabs.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { openTabUpkeep } from '../../../test/support/tabUpkeep.ts'
import { findTakenTab } from '../../../test/support/takenTab.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { dropBlock, recordEvents } from '../facts/record.ts'
import { endPayments } from '../queue/stages.ts'

// Anyone who has a state of a tab can settle it, so another state than the ledger's choice can settle.

const gateway = useGateway()
const shop = useShop(gateway)
let other: Shop
beforeAll(async () => {
  other = await openShop(gateway.app, '0.3')
})

type Tab = ReturnType<typeof openTab>

const openedTab = async () => openTab(gateway, await gateway.buyer(5_000_000n))

const paymentOf = async (tab: Tab) => (await tab.read()).body.paymentId as string

const runUpkeep = () => openTabUpkeep(gateway, Date.now()).closeAndTake()

/** Closes the tab, and takes it into the ledger. */
async function take(tab: Tab) {
  await tab.close()
  await runUpkeep()
  return findTakenTab(gateway.database, await paymentOf(tab))
}

/** Records that a state with these amounts moved, one amount for each of the buyer's lines. */
async function moveState(
  tab: Tab,
  amounts: readonly bigint[],
  { platform = gateway.settings.platformWallet, block = 50 }: { platform?: Address; block?: number } = {},
): Promise<void> {
  const { served, settings } = gateway
  const state = {
    payer: tab.payer,
    nonce: tabNonce(settings.issuer, tab.tabId),
    sequence: 2,
    lines: amounts.map((amount, index) => ({ split: tab.lines[index]?.split as bigint, amount })),
    platform,
    rewardShare: settings.tabs?.rewardShare ?? 0,
  }
  const place = { number: BigInt(block), hash: blockHashOf(block), time: 1_795_262_400n }
  const evidence = { ...tabEvidence(state, place), recipient: served.deployment.tabSettlement }
  const scope = { chainId: served.network.chainId, token: served.token }
  await gateway.database.begin((tx) => recordEvents(tx, scope, [evidence], 'index'))
}

/** Makes the result of a tab's payment final: settled or failed, as the record shows. Then runs the upkeep, which stores the payer's credits. */
async function finalize(tab: Tab): Promise<string | undefined> {
  const paymentId = await paymentOf(tab)
  const [event] = await gateway.database<{ state: string }[]>`
    select state from authorization_event where payment_id = ${paymentId}`
  const isSettled = event?.state === 'settled'
  await endPayments(
    gateway.database,
    [
      {
        paymentId,
        kind: isSettled ? 'settled' : 'failed',
        code: isSettled ? null : 'authorization_used',
        isFinal: true,
      },
    ],
    new Date(),
  )
  await runUpkeep()
  return event?.state
}

async function creditsOf({ payer }: Tab) {
  const rows = await gateway.database<{ split: Uint8Array; amount: bigint }[]>`
    select split, amount from tabs.credit where payer = ${Buffer.from(payer.slice(2), 'hex')}`
  return rows.map(({ split, amount }) => [BigInt(`0x${Buffer.from(split).toString('hex')}`), amount])
}

/** Creates a tab with two lines. The only request on the second line was voided, so the ledger chooses the state before it. */
async function tabWithVoidedLine(): Promise<Tab> {
  const tab = await openedTab()
  await tab.buy(shop)
  await tab.buy(other)
  await tab.charge(other, 2, '0')
  expect(await take(tab)).toMatchObject({ sequence: 1n, lines: [{ amount: 50_000n }] })
  return tab
}

test('behavior: if the settled state has a line that the ledger’s chosen state lacks, credits the amount of that line', async () => {
  const tab = await tabWithVoidedLine()
  await moveState(tab, [50_000n, 300_000n])
  expect(await finalize(tab)).toBe('settled')
  expect(await creditsOf(tab)).toEqual([[tab.lines[1]?.split, 300_000n]])
})

test('behavior: a reorg also removes the credit for a line that the ledger’s chosen state lacks', async () => {
  const tab = await tabWithVoidedLine()
  await moveState(tab, [50_000n, 300_000n])
  await dropBlock(gateway.database, gateway.served.network.chainId, {
    blockNumber: 50n,
    blockHash: blockHashOf(50),
  })
  await moveState(tab, [50_000n], { block: 51 })
  expect(await finalize(tab)).toBe('settled')
  expect(await creditsOf(tab)).toEqual([])
})

test('behavior: if the settled state has a line that the gateway never saw, credits the amount of that line', async () => {
  const tab = await openedTab()
  await tab.buy(shop)
  expect(await take(tab)).toMatchObject({ lines: [{ amount: 50_000n }] })
  // The seller never presents this state.
  await tab.sign(other)
  await moveState(tab, [50_000n, 300_000n])
  expect(await finalize(tab)).toBe('settled')
  expect(await creditsOf(tab)).toEqual([[tab.lines[1]?.split, 300_000n]])
})

test('behavior: a state that covers all charges settles the tab, even if it signs less than the accepted state', async () => {
  const tab = await openedTab()
  await tab.buy(other)
  await tab.charge(other, 1, '0.1')
  await tab.buy(other)
  await tab.charge(other, 2, '0.25')
  expect(await take(tab)).toMatchObject({ lines: [{ amount: 600_000n }] })
  await moveState(tab, [400_000n])
  expect(await finalize(tab)).toBe('settled')
  expect(await creditsOf(tab)).toEqual([[tab.lines[0]?.split, 50_000n]])
})

test('behavior: gives no credit for amounts that moved under a buyer’s own terms, since no fee was paid', async () => {
  const tab = await openedTab()
  await tab.buy(shop)
  await take(tab)
  await moveState(tab, [4_000_000n], { platform: tab.payer })
  expect(await finalize(tab)).toBe('foreign_use')
  expect(await creditsOf(tab)).toEqual([])
})

test('behavior: the part of a sale that a credit paid for counts as arrived, even if the tab failed', async () => {
  const tab = await openedTab()
  await gateway.database`
    insert into tabs.credit (payer, chain_id, split, amount)
    select ${Buffer.from(tab.payer.slice(2), 'hex')}, ${gateway.served.network.chainId},
      ${Buffer.from(((await tab.challenge(other)).tab?.split ?? '0x').slice(2), 'hex')}, 100000`
  await tab.buy(other, { amount: 200_000n })
  expect(await take(tab)).toMatchObject({ lines: [{ amount: 200_000n }] })
  await finalize(tab)
  const [sale] = await gateway.database`
    select provider_amount + fee_amount as sold, arrived from tab_sale where payment_id = ${await paymentOf(tab)}`
  expect(sale).toEqual({ sold: 300_000n, arrived: 100_000n })
  const [lost] = await gateway.database`select default_of_tab(${await paymentOf(tab)})`
  expect(lost).toEqual({ default_of_tab: 190_000n })
})
