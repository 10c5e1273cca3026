import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import type { Address } from 'viem'
import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { drawFrom } from '../../../test/support/draw.ts'
import { seedChainId, seedPlatform, seedProvider, seedToken } from '../../../test/support/seedPayments.ts'
import { seedTabSettlement } from '../../../test/support/seedTabs.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { onOnePostgres } from './tabDatabase.ts'
import { createTabStore, type TabCandidate } from './tabStore.ts'

// One tab against a model of a page: requests in any order, twins, voids, raised charges, closing, by two processes. Signatures are
// verified before the store is called, so it gets made-up ones.

const sql = await useDatabase()
const stores = [createTabStore(onOnePostgres(sql)), createTabStore(onOnePostgres(sql))] as const
const provider = await seedProvider(sql)
const splitOf = (line: number) =>
  encodeSplit({ provider: `0x${`${line + 1}`.repeat(40)}` as Address, providerShare: 9n, platformShare: 1n })

/** What docs/tabs.md says, line by line. */
function createModel() {
  const requests = new Map<number, { line: number; price: bigint; charged: bigint }>()
  let newest = { sequence: 0, amounts: [] as readonly bigint[] }
  let isClosed = false
  const charged = (line: number) =>
    [...requests.values()].reduce((sum, one) => sum + (one.line === line ? one.charged : 0n), 0n)
  const covers = (amounts: readonly bigint[], line: number, more: bigint) =>
    Array.from({ length: 4 }, (_, at) => charged(at) + (at === line ? more : 0n)).every(
      (owed, at) => (amounts[at] ?? 0n) >= owed,
    )
  return {
    requests,
    charged,
    newest: () => newest,
    accept(sequence: number, line: number, price: bigint, amounts: readonly bigint[]) {
      if (requests.has(sequence)) return 'replayed'
      if (isClosed) return 'closed'
      const after = sequence > newest.sequence ? { sequence, amounts } : newest
      if (!covers(after.amounts, line, price)) return 'behind'
      newest = after
      requests.set(sequence, { line, price, charged: price })
      return 'accepted'
    },
    charge(sequence: number, amount: bigint) {
      const request = requests.get(sequence)
      if (!request || amount > request.price) return 'over'
      if (amount === request.charged) return 'charged'
      if (isClosed) return 'closed'
      if (!covers(newest.amounts, request.line, amount - request.charged)) return 'over'
      request.charged = amount
      return 'charged'
    },
    close(sequence: number, amounts: readonly bigint[]) {
      if (isClosed || sequence <= newest.sequence || !covers(amounts, 0, 0n)) return false
      newest = { sequence, amounts }
      isClosed = true
      return true
    },
  }
}

test.each(Array.from({ length: 6 }, (_, seed) => seed))(
  'behavior: as the model has it, whatever is asked: seed %i',
  async (seed) => {
    const draw = drawFrom(`tab store ${seed}`)
    const pick = (below: number) => Math.floor(draw() * below)
    const id = randomHex(16).slice(2)
    const key = { payer: randomHex(20), tabId: `tab_${id}` }
    const model = createModel()
    const seen = new Set<string>()
    let lines = 0
    for (let step = 0; step < 150; step++) {
      const store = stores[pick(2)] as (typeof stores)[number]
      const act = draw()
      if (act < 0.7) {
        const line = Math.min(pick(4), lines)
        const price = BigInt(1 + pick(50))
        const sequence = 1 + pick(120)
        // Mostly what an honest client signs; sometimes less, or more.
        const width = Math.max(lines, line + 1)
        const amounts = Array.from({ length: width }, (_, at) => {
          const owed = model.charged(at) + (at === line ? price : 0n)
          const off = draw()
          return off < 0.8
            ? owed
            : off < 0.9
              ? owed + BigInt(pick(60))
              : owed - BigInt(pick(Number(owed) + 1))
        })
        const known = Math.min(lines, pick(width + 1))
        const { verdict } = await store.accept(
          candidateOf({ ...key, id, sequence, line, price, amounts, known }),
        )
        expect([step, verdict]).toEqual([step, model.accept(sequence, line, price, amounts)])
        if (verdict === 'accepted') lines = Math.max(lines, width)
        seen.add(verdict)
      } else if (act < 0.97) {
        const sequence = [...model.requests.keys()][pick(model.requests.size)]
        if (sequence === undefined) continue
        const amount = BigInt(pick(55))
        const outcome = await store.charge({ ...key, sequence }, amount)
        expect([step, outcome]).toEqual([step, model.charge(sequence, amount)])
        seen.add(outcome)
      } else if (step > 100) {
        const amounts = Array.from({ length: lines }, (_, at) => model.charged(at))
        const last = { sequence: 100 + pick(60), amounts, signature: randomHex(65) }
        expect(await store.close(key, 'buyer', last)).toBe(model.close(last.sequence, amounts))
      }
    }
    expect([...seen]).toEqual(expect.arrayContaining(['accepted', 'replayed', 'behind', 'charged', 'over']))
    const stored = await stores[0].read(key)
    expect(stored?.lines.map(({ charged }) => charged)).toEqual(
      Array.from({ length: lines }, (_, at) => model.charged(at)),
    )
    expect(stored?.lines.slice(0, stored.signedLines).map(({ signed }) => signed)).toEqual([
      ...model.newest().amounts,
    ])
    expect([stored?.requests, stored?.sequence]).toEqual([model.requests.size, model.newest().sequence])
  },
)

function candidateOf({
  id,
  line,
  known,
  ...own
}: Pick<TabCandidate, 'payer' | 'tabId' | 'sequence' | 'price' | 'amounts' | 'known'> & {
  id: string
  line: number
}): TabCandidate {
  return {
    ...own,
    known,
    position: line,
    nonce: `0x${id}${id}`,
    paymentId: `pay_${id}`,
    chainId: seedChainId,
    token: seedToken,
    contract: seedTabSettlement,
    platform: seedPlatform,
    rewardShare: 0,
    expiresAt: 2_000_000_000,
    hasCode: false,
    reservation: { reserved: 1_000_000n, lent: 1_000_000n, credit: 1_000_000n },
    signature: randomHex(65),
    requestHash: randomHex(16),
    providerId: provider.providerId,
    endpointId: provider.endpointIds[0] as string,
    splits: own.amounts.slice(known).map((_, at) => splitOf(known + at)),
  }
}
