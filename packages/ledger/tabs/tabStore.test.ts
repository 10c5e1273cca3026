import { hash } from 'node:crypto'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import type { GatewayTab, GatewayTabTerms, TabPurchase } from '@tollkeeper/sdk/protocol/tabRule'
import type { Address } from 'viem'
import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { drawFrom } from '../../../test/support/draw.ts'
import {
  describeTab,
  playTabStep,
  type TabStep,
  type TabStepResult,
  tabRuleCases,
} from '../../../test/support/tabRule.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { onOnePostgres, toBytes } from './tabDatabase.ts'
import { createTabStore, type TabCandidate, tabBytes } from './tabStore.ts'

// Runs the same steps on the store, which two processes share, and on the SDK's rule for tabs (`playTabStep`). Signatures are verified before the
// store is called, so they are random here.

const sql = await useDatabase()
const stores = [createTabStore(onOnePostgres(sql)), createTabStore(onOnePostgres(sql))] as const

/** Creates a new payer's tab in the store. The two processes take turns. */
function openStored() {
  const key = { payer: randomHex(20), tabId: `tab_${randomHex(16).slice(2)}` }
  let steps = 0

  async function read() {
    const [tab] = await sql<
      (TabStepResult['tab'] & { splits: bigint[]; requests: (bigint | number)[][] | null })[]
    >`
      select t.closed_at is not null as "isClosed", t.reserved, t.sequence::float8 as sequence,
        coalesce(t.signed, t.charged) as signed, t.charged,
        array(select coalesce(t.reduced[i], 0) from generate_series(1, cardinality(t.charged)) i) as reduced,
        array(
          select ('0x' || encode(l.split, 'hex')) from tabs.line l
          where l.payer = t.payer and l.tab_id = t.id order by l.position
        ) as splits,
        (
          select json_agg(json_build_array(r.sequence, i.position, r.price, coalesce(r.charged, r.price), r.line_total,
            coalesce(r.line_reduced, 0)) order by r.sequence)
          from tabs.request r
          join tabs.item i on i.payer = r.payer and i.tab_id = r.tab_id and i.number = r.item
          where r.payer = t.payer and r.tab_id = t.id
        ) as requests
      from tabs.tab t where t.payer = ${toBytes(key.payer)} and t.id = ${tabBytes(key.tabId)}`
    if (!tab) return { tab: null }
    const { splits, requests, ...described } = tab
    return { tab: described, splits: splits.map(BigInt), requests: requests ?? [] }
  }

  async function accept(purchase: TabPurchase): Promise<Omit<TabStepResult, 'tab'>> {
    const store = stores[steps++ % 2] as (typeof stores)[number]
    const split = purchase.splits[purchase.line - purchase.known]
    const ofLine = { payer: toBytes(key.payer), chain_id: purchase.terms.chainId, split: wordOf(split ?? 0n) }
    if (purchase.credit !== undefined)
      await sql`insert into tabs.credit ${sql({ ...ofLine, amount: purchase.credit })}`
    const decided = await store.accept(candidateOf(key, purchase))
    const { verdict } = decided
    const left = await sql`delete from tabs.credit where payer = ${ofLine.payer} returning amount`
    const isBought = verdict === 'accepted' || verdict === 'repeated'
    const credit = (isBought && decided.credit) || 0n
    expect(left).toHaveLength(purchase.credit !== undefined && credit === 0n ? 1 : 0)
    if (!isBought) return { verdict }
    const { lineTotal, lineReduced } = decided
    return {
      verdict,
      request: { lineTotal, lineReduced: lineReduced ?? 0n },
      ...(credit > 0n && { credit }),
    }
  }

  async function play(step: TabStep): Promise<Omit<TabStepResult, 'tab'>> {
    const store = stores[steps++ % 2] as (typeof stores)[number]
    if ('accept' in step) return accept(step.accept)
    if ('charge' in step) {
      const { sequence, amount } = step.charge
      return { verdict: await store.charge({ ...key, sequence }, amount) }
    }
    const { tab } = await read()
    const isTaken = await store.close(key, 'buyer', { ...step.close, signature: randomHex(65) })
    return { verdict: isTaken || tab?.isClosed ? 'closed' : 'behind' }
  }

  return { play, read }
}

test.each(tabRuleCases)('behavior: $name', async ({ steps }) => {
  const stored = openStored()
  for (const [index, { step, result }] of steps.entries()) {
    // The route judges these steps before it calls the store.
    if ('close' in step && ['mismatch', 'too_small'].includes(result.verdict)) continue
    const played = await stored.play(step)
    const { tab } = await stored.read()
    expect([index, { ...played, tab }]).toEqual([index, result])
  }
})

const seen = new Set<string>()

test.each(Array.from({ length: 12 }, (_, seed) => seed))(
  'behavior: for any steps, returns the verdicts and stores the tabs that the SDK’s rule for tabs produces (seed %i)',
  async (seed) => {
    const steps = createSteps(`tab store ${seed}`)
    const stored = openStored()
    let tab: GatewayTab | undefined
    for (let index = 0; index < 150; index++) {
      const step = steps.next(tab, index)
      if (!step) continue
      const by = playTabStep(tab, step)
      const played = await stored.play(step)
      const { tab: _, ...expected } = by.result
      tab = by.tab
      expect([index, step, played]).toEqual([index, step, expected])
      expect([index, step, await stored.read()]).toEqual([
        index,
        step,
        tab ? describeAll(tab) : { tab: null },
      ])
      seen.add(`${Object.keys(step)} ${played.verdict}`)
    }
  },
)

test('behavior: the steps of the tests above produce every verdict of the store', () => {
  const verdicts = {
    accept: [
      'accepted',
      'repeated',
      'voided',
      'replayed',
      'unreserved',
      'closed',
      'mismatch',
      'crowded',
      'behind',
    ],
    charge: ['charged', 'closed', 'over'],
    close: ['closed', 'behind'],
  }
  const all = Object.entries(verdicts).flatMap(([step, each]) => each.map((verdict) => `${step} ${verdict}`))
  expect([...seen].toSorted()).toEqual(all.toSorted())
})

/** Describes a tab with its lines' splits and its requests. */
function describeAll(tab: GatewayTab) {
  const requests = [...tab.requests].toSorted(([one], [other]) => one - other)
  return {
    tab: describeTab(tab),
    splits: tab.lines.map(({ split }) => split),
    requests: requests.map(([sequence, { line, ...request }]) => [
      sequence,
      line,
      ...[request.price, request.charged, request.lineTotal, request.lineReduced].map(Number),
    ]),
  }
}

const terms: GatewayTabTerms = {
  chainId: 8453,
  token: `0x${'1'.repeat(40)}`,
  contract: `0x${'2'.repeat(40)}`,
  platform: `0x${'3'.repeat(40)}`,
  rewardShare: 1_000,
  expiry: 2_000_000_000,
}

const splitOf = (line: number) =>
  encodeSplit({
    provider: `0x${line.toString(16).padStart(40, '0')}` as Address,
    providerShare: 9n,
    platformShare: 1n,
  })

/**
 * Creates a generator of random steps. Most are steps of an honest client and gateway, in any order. Some have a fault, and every kind of fault
 * occurs.
 */
function createSteps(seed: string) {
  const draw = drawFrom(seed)
  const pick = (below: number) => Math.floor(draw() * below)
  const happens = (share: number) => draw() < share
  const sequences = (tab: GatewayTab | undefined) => [...(tab?.requests.keys() ?? [])]

  function drawAccept(tab: GatewayTab | undefined): TabStep {
    const lines = tab?.lines ?? []
    const earlier = sequences(tab)
    const line = Math.min(pick(5), lines.length) + (happens(0.05) ? 1 + pick(9) : 0)
    // Some clients don't know all lines, and some add lines of requests that haven't arrived yet.
    const width = happens(0.8) ? Math.max(lines.length, line + 1) : line + 1 + pick(3)
    const known = Math.min(width, happens(0.04) ? lines.length + 1 : pick(lines.length + 1))
    const price = BigInt(1 + pick(50))
    const isRepeat = happens(0.1)
    const sequence = isRepeat ? (earlier[pick(earlier.length)] ?? 1) : 1 + pick(120)
    return {
      accept: {
        terms: happens(0.03) ? { ...terms, rewardShare: 999 } : terms,
        requestHash:
          isRepeat && happens(0.7) ? (tab?.requests.get(sequence)?.requestHash ?? '') : randomHex(16),
        sequence,
        line,
        known,
        splits: Array.from({ length: width - known }, (_, index) =>
          splitOf(known + index + (happens(0.01) ? 100 : 0)),
        ),
        amounts: Array.from({ length: width }, (_, index) => {
          const charged = lines[index]?.charged ?? 0n
          const least = charged + (index === line ? price : 0n)
          const owed = least > 0n ? least : 0n
          const off = draw()
          if (off < 0.85) return owed
          return off < 0.95 ? owed + BigInt(pick(60)) : owed - BigInt(pick(Number(owed) + 1))
        }),
        price,
        ...(happens(tab ? 0.2 : 0.9) && { reserved: BigInt(pick(3_000)) }),
        ...(line >= known && happens(0.3) && { credit: BigInt(1 + pick(60)) }),
      },
    }
  }

  return {
    /** Draws the next step; undefined if there is none this time. */
    next(tab: GatewayTab | undefined, index: number): TabStep | undefined {
      const action = draw()
      if (!tab || action < 0.65) return drawAccept(tab)
      if (action < 0.96) {
        const earlier = sequences(tab)
        const sequence = happens(0.03) ? 200 : (earlier[pick(earlier.length)] as number)
        return { charge: { sequence, amount: BigInt(pick(happens(0.2) ? 1 : 55)) } }
      }
      if (index < 110) return undefined
      const amounts = tab.lines.map(({ charged }) => (charged > 0n ? charged : 0n))
      if (happens(0.3)) amounts[0] = BigInt(pick(60))
      return { close: { sequence: 100 + pick(60), expiry: terms.expiry, amounts, least: 0n } }
    },
  }
}

function candidateOf(
  { payer, tabId }: Pick<TabCandidate, 'payer' | 'tabId'>,
  purchase: TabPurchase,
): TabCandidate {
  const { terms, sequence, line, known, splits, amounts, price, requestHash, reserved } = purchase
  const { expiry, ...own } = terms
  const id = tabId.slice('tab_'.length)
  return {
    ...own,
    payer,
    tabId,
    nonce: `0x${id}${id}`,
    paymentId: `pay_${id}`,
    expiresAt: expiry,
    hasCode: false,
    reservation: reserved === undefined ? null : { reserved, lent: reserved, credit: null },
    sequence,
    amounts,
    signature: randomHex(65),
    requestHash: `0x${hash('md5', requestHash)}`,
    position: line,
    price,
    providerId: 'prov_1',
    endpointId: 'ep_1',
    known,
    splits,
  }
}

function wordOf(split: bigint): Buffer {
  return toBytes(`0x${split.toString(16).padStart(64, '0')}`)
}
