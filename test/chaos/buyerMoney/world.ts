import { randomBytes } from 'node:crypto'
import type { Context } from '@tollkeeper/keeper/loops/context'
import { createMemory } from '@tollkeeper/keeper/loops/context'
import { reconcilePayments } from '@tollkeeper/keeper/loops/reconcile'
import { createMetrics } from '@tollkeeper/keeper/settings/metrics'
import { acceptPayments } from '@tollkeeper/ledger/acceptance/acceptPayments'
import { createPayers } from '@tollkeeper/ledger/acceptance/payers'
import { dropBlock, moveRecordHead, recordEvents } from '@tollkeeper/ledger/facts/record'
import { reopenPayments } from '@tollkeeper/ledger/queue/stages'
import { readUndone, unfinishPayments } from '@tollkeeper/ledger/results/finalizations'
import { voidPayment } from '@tollkeeper/ledger/results/voids'
import type { Database } from '@tollkeeper/ledger/store/database'
import { addCredits } from '@tollkeeper/ledger/tabs/giveCredits'
import { createReserveForTab } from '@tollkeeper/ledger/tabs/reserveForTab'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { createTabStore, type Reservation, type TabVerdict } from '@tollkeeper/ledger/tabs/tabStore'
import { closingTimes, createTabUpkeep } from '@tollkeeper/ledger/tabs/upkeep'
import { createLogger } from '@tollkeeper/runtime/log'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import type { Address } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { makeCandidate } from '../../../bench/data/makeCandidate.ts'
import { collectBadRows } from '../../support/badRows.ts'
import { type SeedProvider, seedChainId, seedProvider, seedScope } from '../../support/seedPayments.ts'
import { type BuyersTab, candidateOf, openBuyersTab, owedOn, signNext } from './buyer.ts'
import { createPlayedChain, finality } from './playedChain.ts'

const dayMs = 86_400_000

/**
 * Creates the gateway, its keeper and the chain. Consecutive runs share all three. Only the chain is simulated; the ledger and the tab store are
 * real.
 */
export async function createWorld(sql: Database) {
  let ahead = 0
  const now = () => Date.now() + ahead
  const chain = createPlayedChain(now)
  const { served } = chain
  const providers = [await seedProvider(sql), await seedProvider(sql)] as const
  const splits = providers.map(({ wallet }) =>
    encodeSplit({ provider: wallet, providerShare: 9n, platformShare: 1n }),
  )
  const tabs = onOnePostgres(sql)
  // Two stores, as two gateway processes have.
  const stores = [createTabStore(tabs), createTabStore(tabs)] as const
  const payers = createPayers(
    served,
    {
      read: async ({ payer }) => ({
        blockNumber: chain.head(),
        balance: chain.balances.get(payer) ?? 0n,
        hasCode: false,
        isBlacklisted: false,
        isPaused: false,
        isUsed: [false, false],
      }),
    },
    {
      database: sql,
      checkBalance: true,
      caps: { payer: null, newPayer: null },
      balanceTtlMs: 30_000,
      tabCredit: { base: 10_000_000n, basisPoints: 1_000n },
      now,
    },
  )
  const reserve = createReserveForTab(sql, { budget: 10n ** 15n, now })
  const reports = collectBadRows()
  const upkeep = createTabUpkeep({
    sql,
    tabs,
    networks: [served],
    rules: { ...closingTimes, amount: 10_000_000n },
    minimumPrices: {},
    onBadRow: reports.onBadRow,
    now: () => new Date(now()),
  })
  const context = {
    sql,
    served,
    finalityBlocks: finality,
    now: () => new Date(now()),
    checkpoint() {},
    log: createLogger('keeper', 'silent'),
    metrics: createMetrics(),
    memory: createMemory(),
  } as unknown as Context

  /** Buys on a tab. Returns whether the purchase was accepted. */
  async function buy(
    tab: BuyersTab,
    { line, price, extra, store }: { line: number; price: bigint; extra: bigint; store: number },
  ): Promise<boolean> {
    const { providerId, endpointIds } = providers[line] as SeedProvider
    const split = splits[line] as bigint
    const known = tab.splits.indexOf(split)
    const all = known < 0 ? [...tab.splits, split] : tab.splits
    const position = known < 0 ? all.length - 1 : known
    const state = await signNext(tab, { splits: all, position, price, extra })
    const own = stores[store] as (typeof stores)[number]
    const isNew = (await own.readSplits(tab, tab.splits.length)).length === 0
    const ask = () => reserve(tab, price, served, payers)
    const accept = (reservation: Reservation | null) =>
      own.accept(
        candidateOf(tab, state, {
          position,
          price,
          reservation,
          providerId,
          endpointId: endpointIds[0] ?? '',
        }),
      )
    let verdict: TabVerdict
    try {
      verdict = await accept(isNew ? await ask() : null)
      if (verdict.verdict === 'unreserved') verdict = await accept(await ask())
    } catch (error) {
      if (error instanceof BaseError) return false
      throw error
    }
    if (verdict.verdict !== 'accepted') return false
    tab.splits = all
    if (known < 0) tab.credits[position] = verdict.credit ?? 0n
    tab.bought.set(state.sequence, { position, price, charged: price })
    return true
  }

  async function charge(tab: BuyersTab, sequence: number, amount: bigint): Promise<void> {
    const outcome = await stores[0].charge({ payer: tab.payer, tabId: tab.tabId, sequence }, amount)
    const request = tab.bought.get(sequence)
    if (outcome === 'charged' && request) request.charged = amount
  }

  async function close(tab: BuyersTab, extra: bigint): Promise<void> {
    const { sequence, lines, signature } = await signNext(tab, {
      splits: tab.splits,
      position: 0,
      price: 0n,
      extra,
    })
    await stores[1].close(tab, 'buyer', { sequence, amounts: lines.map(({ amount }) => amount), signature })
  }

  /** Makes an ordinary payment with the nonce of a tab. The provider then voids the payment. */
  async function payWithNonce(tab: BuyersTab): Promise<void> {
    const { providerId, wallet: payee, endpointIds } = providers[0]
    const seller = { providerId, payee, endpointId: endpointIds[0] ?? '' }
    const candidate = makeCandidate(now(), seller, { payer: tab.payer, ...seedScope })
    const [first, ...others] = candidate.authorizations
    const authorizations = [{ ...first, nonce: tab.nonce }, ...others] as typeof candidate.authorizations
    const [verdict] = await acceptPayments(sql, [{ ...candidate, authorizations }])
    if (verdict === 'accepted')
      await voidPayment(sql, { paymentId: candidate.id, providerId, now: new Date(now()) })
  }

  /** Adds all events up to the chain's head to the record. */
  async function record(own: ReadonlySet<Address>): Promise<void> {
    await sql.begin(async (tx) => {
      await recordEvents(tx, seedScope, chain.eventsOf(own), 'index')
      const blockNumber = chain.head()
      await moveRecordHead(tx, seedChainId, { blockNumber, readNumber: blockNumber, blockTime: chain.time() })
    })
  }

  /** Follows a reorg as packages/ledger/results/recorder.ts does. */
  async function reorg(depth: number, own: ReadonlySet<Address>): Promise<void> {
    for (const { number: blockNumber, hash: blockHash } of chain.reorg(depth)) {
      await sql.begin(async (tx) => {
        const { reopened, unfinished } = await readUndone(tx, seedChainId, [blockHash])
        await unfinishPayments(tx, unfinished)
        await reopenPayments(tx, reopened)
        await dropBlock(tx, seedChainId, { blockNumber, blockHash })
      })
    }
    await record(own)
  }

  return {
    sql,
    chain,
    splits,
    reports,
    buy,
    charge,
    close,
    payWithNonce,
    record,
    reorg,
    owedOn,
    upkeep,
    /** Settles the oldest waiting tab, as the keeper does, if its nonce is unused. */
    async settleOldest(open: readonly BuyersTab[]): Promise<void> {
      const [row] = await sql<{ tabId: string; payer: Address; sequence: number }[]>`
        select t.tab_id as "tabId", t.payer, t.sequence::float8 as sequence from tab_payment t
        join queue q on q.payment_id = t.payment_id and q.stage = 'waiting'
        where t.payer = any(${open.map(({ payer }) => payer)}::text[]) order by q.accepted_at limit 1`
      const tab = open.find(({ payer, tabId }) => payer === row?.payer && tabId === row.tabId)
      const state = tab?.states.find(({ sequence }) => sequence === row?.sequence)
      if (tab && state) chain.settle(tab.payer, tab.nonce, state)
    },
    reconcile: () => reconcilePayments(context),
    /** Gives the buyer credit with a provider, as if earlier tabs had left it. Returns the amount. */
    async giveCredit(payer: Address, line: number, amount: bigint): Promise<bigint> {
      await addCredits(sql, { payer, chainId: seedChainId }, [{ split: splits[line] as bigint, amount }])
      return amount
    },
    forget: () => upkeep.forget(new Date(Date.now() + dayMs)),
    pass: (ms: number) => {
      ahead += ms
    },
    /** Creates the buyers of a run, of whom the last has no money, and the tab ids that all of them use. */
    openRun(funded: number, ids: number) {
      const accounts = Array.from({ length: funded + 1 }, () => privateKeyToAccount(generatePrivateKey()))
      const addresses = accounts.map(({ address }) => address.toLowerCase() as Address)
      for (const address of addresses.slice(0, -1)) chain.balances.set(address, 1_000_000_000n)
      const tabIds = Array.from({ length: ids }, () => `tab_${randomBytes(16).toString('hex')}`)
      const open = accounts.flatMap((account) => tabIds.map((tabId) => openBuyersTab(account, tabId, now())))
      return { open, payers: addresses, broke: addresses.at(-1) as Address }
    },
  }
}

export type World = Awaited<ReturnType<typeof createWorld>>
