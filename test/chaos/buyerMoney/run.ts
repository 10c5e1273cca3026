import type { SettledTab } from '@tollkeeper/chain/settledTabs'
import { badDebt } from '@tollkeeper/ledger/acceptance/badDebt'
import { platformPart } from '@tollkeeper/sdk/protocol/tab'
import type { Address } from 'viem'
import { expect } from 'vitest'
import { drawFrom } from '../../support/draw.ts'
import { seedPlatform } from '../../support/seedPayments.ts'
import { type BuyersTab, signNext } from './buyer.ts'
import { finality } from './playedChain.ts'
import type { World } from './world.ts'

const steps = 30

/**
 * Runs one interleaving of buyers, sellers, the gateway, strangers and reorgs. Buyers choose the same tab ids, and use
 * the nonces of tabs for ordinary payments.
 *
 * At the end every tab is final, and for each buyer: initial credit + money that moved + debt + charges that no one settled in time = all charges +
 * remaining credit.
 */
export async function runInterleaving(world: World, seed: number): Promise<Seen[]> {
  const draw = drawFrom(`buyers' money ${seed}`)
  const pick = (below: number) => Math.floor(draw() * below)
  const { open, payers, broke } = world.openRun(3, 3)
  const own = new Set(payers)
  const someTab = () => open[pick(open.length)] as BuyersTab
  /** Picks one of the tabs with a purchase, if there are any. */
  const usedTab = () => {
    const used = open.filter(({ bought }) => bought.size > 0)
    return used[pick(used.length)]
  }
  world.reports.bad.length = 0
  const before = new Map<Address, bigint>()
  for (const payer of payers)
    before.set(
      payer,
      draw() < 0.6 ? await world.giveCredit(payer, pick(2), BigInt(1_000 * (1 + pick(100)))) : 0n,
    )

  const buy = (tab: BuyersTab) =>
    world.buy(tab, {
      line: pick(2),
      // Some tabs stay too small to settle.
      price: draw() < 0.3 ? 1_000n : BigInt(1_000 * (1 + pick(60))),
      extra: draw() < 0.25 ? BigInt(1_000 * pick(200)) : 0n,
      store: pick(2),
    })
  const acts: [weight: number, act: () => Promise<unknown>][] = [
    // Several buyers buy at once, each on a tab with the same ID.
    [8, () => atOnce(open, pick(3), buy)],
    [6, () => buy(usedTab() ?? someTab())],
    [4, () => chargeLess(world, usedTab(), draw)],
    [2, async () => world.payWithNonce(someTab())],
    [2, async () => withTab(usedTab(), (tab) => world.close(tab, draw() < 0.2 ? 50_000n : 0n))],
    [3, async () => world.settleOldest(open)],
    [2, async () => withTab(usedTab(), (tab) => settleAny(world, tab, draw))],
    [1, async () => withTab(usedTab(), async ({ payer, nonce }) => world.chain.cancel(payer, nonce))],
    [2, () => world.reorg(1 + pick(Number(finality) - 2), own)],
    [3, async () => world.pass(draw() < 0.1 ? 90_000_000 : 400_000)],
    [5, () => world.upkeep.closeAndTake()],
    [1, () => world.upkeep.releaseUnopened()],
    [1, () => world.forget()],
    [5, () => learn(world, own)],
  ]
  const deck = acts.flatMap(([weight, act]) => Array<() => Promise<unknown>>(weight).fill(act))
  const choose = () => deck[pick(deck.length)] as () => Promise<unknown>
  for (let step = 0; step < steps; step++) {
    await choose()()
    // Sometimes the upkeep closes tabs and adds them to the ledger while another party acts.
    if (draw() < 0.2) await Promise.all([choose()(), world.upkeep.closeAndTake()])
  }
  await finish(world, own)
  await expectAllTaken(world, payers)
  expect(open.filter(({ payer, bought }) => payer === broke && bought.size > 0)).toEqual([])
  for (const payer of payers) await expectMoneyOf(world, payer, open, before.get(payer) ?? 0n)
  return whatHappened(world, payers, open)
}

/** The events that an interleaving can contain. */
export type Seen =
  | 'settled'
  | 'foreign use'
  | 'other terms'
  | 'unknown line'
  | 'cancelled'
  | 'expired'
  | 'credit given'
  | 'credit used'
  | 'ended unpaid'

async function whatHappened(
  { sql, chain }: World,
  payers: readonly Address[],
  open: readonly BuyersTab[],
): Promise<Seen[]> {
  const ends = await sql<{ kind: string; code: string | null }[]>`
    select distinct o.kind, o.code from tab_payment t join payment_result o on o.payment_id = t.payment_id
    where t.payer = any(${[...payers]}::text[])`
  const [rows] = await sql<[{ given: boolean; unpaid: boolean }]>`
    select exists (select from tabs.credit where '0x' || encode(payer, 'hex') = any(${[...payers]}::text[])) as given,
      exists (select from payer where address = any(${[...payers]}::text[]) and left_unpaid > 0) as unpaid`
  const taken = await sql<{ payer: Address; tabId: string; splits: string[] }[]>`
    select t.payer, t.tab_id as "tabId", array(
      select l.payee || lpad(to_hex(l.provider_share), 12, '0') || lpad(to_hex(l.platform_share), 12, '0')
      from tab_line l where l.payment_id = t.payment_id
    ) as splits
    from tab_payment t where t.payer = any(${[...payers]}::text[])`
  const used = taken.flatMap(({ payer, tabId, splits }) => {
    const tab = open.find((one) => one.payer === payer && one.tabId === tabId)
    const settled = tab && chain.find(payer, tab.nonce)?.tab
    return settled ? { ...settled, known: new Set(splits.map(BigInt)) } : []
  })
  const seen: [Seen, boolean][] = [
    ['other terms', used.some(({ platform }) => platform !== seedPlatform)],
    [
      'unknown line',
      used.some(({ lines, known }) => lines.some(({ split, amount }) => amount > 0n && !known.has(split))),
    ],
    ['settled', ends.some(({ kind }) => kind === 'settled')],
    ['foreign use', ends.some(({ code }) => code === 'authorization_used')],
    ['cancelled', ends.some(({ code }) => code === 'authorization_cancelled')],
    ['expired', ends.some(({ code }) => code === 'authorization_expired')],
    ['credit given', rows.given],
    ['credit used', open.some(({ credits }) => credits.some((credit) => credit > 0n))],
    ['ended unpaid', rows.unpaid],
  ]
  return seen.flatMap(([name, is]) => (is ? name : []))
}

async function atOnce(open: readonly BuyersTab[], id: number, buy: (tab: BuyersTab) => Promise<unknown>) {
  const ids = [...new Set(open.map(({ tabId }) => tabId))]
  await Promise.all(open.filter(({ tabId }) => tabId === ids[id]).map(buy))
}

async function withTab(tab: BuyersTab | undefined, act: (tab: BuyersTab) => Promise<unknown>): Promise<void> {
  if (tab) await act(tab)
}

async function chargeLess(world: World, tab: BuyersTab | undefined, draw: () => number): Promise<void> {
  const requests = [...(tab?.bought ?? [])]
  const [sequence, request] = requests[Math.floor(draw() * requests.length)] ?? []
  if (!tab || sequence === undefined || !request) return
  const share = draw() < 0.4 ? 0 : draw()
  await world.charge(tab, sequence, BigInt(Math.floor(Number(request.price) * share)))
}

/**
 * Settles some state on chain. Anyone who has seen a state can do this, even if it isn't the newest or was never
 * accepted. The buyer can also sign a state with itself as the platform.
 */
async function settleAny(world: World, tab: BuyersTab, draw: () => number): Promise<void> {
  if (draw() < 0.2) {
    const extra = draw() < 0.5 ? 0n : 300_000n
    const state = await signNext(tab, { splits: tab.splits, position: 0, price: 0n, extra })
    world.chain.settle(tab.payer, tab.nonce, state, tab.payer)
    return
  }
  if (draw() < 0.3) {
    // The buyer signed this state for a provider that never presented it to the gateway.
    const splits = [...tab.splits, ...world.splits.filter((split) => !tab.splits.includes(split))]
    const state = await signNext(tab, { splits, position: splits.length - 1, price: 7_000n, extra: 0n })
    world.chain.settle(tab.payer, tab.nonce, state)
    return
  }
  const state = tab.states[Math.floor(draw() * tab.states.length)]
  if (state) world.chain.settle(tab.payer, tab.nonce, state)
}

/** Mines a block, and lets the keeper record it. */
async function learn(world: World, own: ReadonlySet<Address>): Promise<void> {
  world.chain.mine()
  await world.record(own)
  await world.reconcile()
}

/** Lets all authorizations expire, and makes all events final. */
async function finish(world: World, own: ReadonlySet<Address>): Promise<void> {
  world.pass(100_000_000)
  for (let round = 0; round < 2; round++) await world.upkeep.closeAndTake()
  for (let round = 0; round < 3; round++) {
    for (let block = 0n; block <= finality; block++) world.chain.mine()
    await learn(world, own)
  }
  await world.upkeep.closeAndTake()
}

/** Checks that api and keeper are done with all closed tabs: two rounds of the upkeep have taken the tabs into the ledger, and no row has failed. */
async function expectAllTaken({ sql, reports }: World, payers: readonly Address[]): Promise<void> {
  expect(reports.bad).toEqual([])
  const left = await sql`
    select 'tab_' || encode(id, 'hex') as tab, close_reason from tabs.tab
    where '0x' || encode(payer, 'hex') = any(${[...payers]}::text[]) and (taken_at is null or awaits_end)`
  expect([...left]).toEqual([])
  const reserved = await sql`
    select r.tab_id from tab_reservation r join tabs.tab t on '0x' || encode(t.payer, 'hex') = r.payer and 'tab_' || encode(t.id, 'hex') = r.tab_id
    where r.payer = any(${[...payers]}::text[])`
  expect([...reserved]).toEqual([])
}

type LedgerLine = { tabId: string; split: bigint; charged: bigint; kind: string; code: string | null }

/** @param before The buyer's credit from earlier tabs. */
async function expectMoneyOf(
  { sql, chain }: World,
  payer: Address,
  open: readonly BuyersTab[],
  before: bigint,
): Promise<void> {
  const rows = await sql<(Omit<LedgerLine, 'split'> & { split: string })[]>`
    select t.tab_id as "tabId", l.charged, o.kind, o.code, l.payee || lpad(to_hex(l.provider_share), 12, '0')
      || lpad(to_hex(l.platform_share), 12, '0') as split
    from tab_payment t join tab_line l on l.payment_id = t.payment_id join payment_result o on o.payment_id = t.payment_id
    where t.payer = ${payer}`
  const lines: LedgerLine[] = rows.map((row) => ({ ...row, split: BigInt(row.split) }))
  let moved = 0n
  let charged = 0n
  for (const tab of open.filter((one) => one.payer === payer)) {
    charged += [...tab.bought.values()].reduce((sum, one) => sum + one.charged, 0n)
    const event = chain.find(payer, tab.nonce)
    const signed = tab.states.find(({ sequence }) => sequence === event?.tab?.sequence)
    for (const [index, { amount }] of (event?.tab?.lines ?? []).entries())
      expect(amount).toBeLessThanOrEqual(signed?.lines[index]?.amount ?? 0n)
    const own = lines.filter(({ tabId }) => tabId === tab.tabId)
    // The ledger doesn't know a tab that never became a payment. A state that the buyer signed for such a tab can
    // still settle until the state expires.
    if (event?.tab && own.length > 0) moved += countMoved(event.tab, own)
  }
  await expectArrived({ sql, chain }, payer, open, lines)
  const [sums] = await sql<[{ credit: bigint; debt: bigint; unpaid: bigint }]>`
    select
      (select coalesce(sum(amount), 0) from tabs.credit where '0x' || encode(payer, 'hex') = ${payer})::bigint as credit,
      (select coalesce(sum(value), 0) from ${badDebt(sql)} debt where debt.payer = ${payer})::bigint as debt,
      (select coalesce(sum(left_unpaid), 0) from payer where address = ${payer})::bigint as unpaid`
  // Lines that no one settled in time. The buyer isn't to blame for these.
  const isUnused = ({ tabId }: { tabId: string }) =>
    !open.some((tab) => tab.tabId === tabId && chain.find(payer, tab.nonce))
  const late = lines
    .filter((line) => line.code === 'authorization_expired' && isUnused(line))
    .reduce((sum, line) => sum + line.charged, 0n)
  expect({ payer, sum: before + moved + sums.debt + sums.unpaid + late }).toEqual({
    payer,
    sum: charged + sums.credit,
  })
}

/**
 * Compares the ledger with the chain for each tab: the amount that the ledger records as arrived must be the amount that moved on chain for the tab's
 * sales. It moved either with the tab itself, or with an earlier tab whose credit paid for the sales.
 */
async function expectArrived(
  { sql, chain }: Pick<World, 'sql' | 'chain'>,
  payer: Address,
  open: readonly BuyersTab[],
  lines: readonly LedgerLine[],
): Promise<void> {
  const sales = await sql<{ tabId: string; sold: bigint; arrived: bigint }[]>`
    select t.tab_id as "tabId", sum(s.provider_amount + s.fee_amount)::bigint as sold, sum(s.arrived)::bigint as arrived
    from tab_payment t join tab_sale s on s.payment_id = t.payment_id
    where t.payer = ${payer} group by t.tab_id`
  for (const { tabId, sold, arrived } of sales) {
    const tab = open.find((one) => one.payer === payer && one.tabId === tabId) as BuyersTab
    const used = chain.find(payer, tab.nonce)?.tab
    const own = lines.filter((line) => line.tabId === tabId)
    const total = own.reduce((sum, { charged }) => sum + charged, 0n)
    const moved = own.reduce((sum, { split, charged }) => {
      const amount = used?.lines.find((line) => line.split === split)?.amount ?? 0n
      return sum + (amount < charged ? amount : charged)
    }, 0n)
    expect({ tabId, arrived }).toEqual({ tabId, arrived: moved + sold - total })
  }
}

/**
 * Of the money that a settled state moved, returns the part that counts as the buyer's payment. Under the accepted terms, that is all of it, even on
 * lines that the ledger doesn't have. Under other terms, each line counts up to its charges, minus the platform's share.
 *
 * Also checks how the tab ended: the tab counts as settled exactly if everything charged moved under the accepted terms.
 */
function countMoved({ platform, lines }: SettledTab, own: readonly LedgerLine[]): bigint {
  const movedOn = (split: bigint) => lines.find((line) => line.split === split)?.amount ?? 0n
  const isAccepted = platform === seedPlatform
  const isPaid = own.every(({ split, charged }) => movedOn(split) >= charged)
  expect(own.map(({ kind }) => kind)).toEqual(own.map(() => (isAccepted && isPaid ? 'settled' : 'failed')))
  if (isAccepted) return lines.reduce((sum, { amount }) => sum + amount, 0n)
  return own.reduce((sum, { split, charged }) => {
    const paid = movedOn(split) < charged ? movedOn(split) : charged
    return sum + paid - platformPart(split, paid)
  }, 0n)
}
