import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { seedScope } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { defaultTriggers } from '../queue/triggers.ts'
import type { BatchItem } from './items.ts'
import { countDueSweeps, countWaitingSplitters, isSweepDue } from './sweeps.ts'

const sql = await useDatabase()
const now = new Date('2026-11-22T12:00:00Z')
const ago = (ms: number) => new Date(now.getTime() - ms)
const day = 86_400_000

test.each([
  ['no payments', { payments: 0, amount: 0n, since: null }, 'time', false],
  ['nine payments', { payments: 9, amount: 45_000n, since: ago(day - 1) }, 'time', false],
  ['ten payments', { payments: 10, amount: 0n, since: null }, 'time', true],
  ['a payment that has waited for a day', { payments: 1, amount: 0n, since: ago(day) }, 'count', true],
  ['the amount that fires a trigger', { payments: 1, amount: 1_000_000n, since: null }, 'amount', true],
  [
    'less than the amount that fires a trigger',
    { payments: 1, amount: 999_999n, since: null },
    'amount',
    false,
  ],
  ['a payment of high value', { payments: 1, amount: 9_700_000n, since: null }, 'high_value', true],
  ['a submitted payment', { payments: 1, amount: 1n, since: null }, 'submission', true],
  ['no submitted payment', { payments: 1, amount: 0n, since: null }, 'submission', false],
  ['a payment that is about to expire', { payments: 1, amount: 1n, since: null }, 'expiry', false],
] as const)('args: returns whether a splitter is due with %s', (_, queue, trigger, isDue) => {
  expect(isSweepDue(queue, trigger, defaultTriggers, now)).toBe(isDue)
})

test('behavior: a keeper that knows only its current batch sweeps each splitter that is paid by enough items of this batch', () => {
  const terms = { provider: '0xa', platform: '0xb', providerShare: 19n, platformShare: 1n } as const
  const item = (to: string) =>
    ({ provider: { authorization: { to, value: 20n } }, fee: null, splitter: terms }) as unknown as BatchItem
  const items = [...Array.from({ length: 3 }, () => item('0x1')), item('0x2')]
  expect(countDueSweeps(items, 3)).toEqual([terms])
  expect(countDueSweeps(items, 4)).toEqual([])
})

test('behavior: counts waiting splitters by platform, up to the maximum that a batch sweeps', async () => {
  const [busy, calm, idle] = [randomHex(20), randomHex(20), randomHex(20)]
  const seed = async (platform: string, lookAt: Date, count: number, chainId = seedScope.chainId) => {
    for (let n = 0; n < count; n++)
      await sql`
        insert into splitter (chain_id, token, address, provider, platform, provider_share, platform_share, look_at)
        values (${chainId}, ${seedScope.token}, ${randomHex(20)}, ${randomHex(20)}, ${platform}, 19, 1, ${lookAt})`
  }
  await seed(busy, now, 21)
  await seed(calm, now, 1)
  await seed(calm, new Date(now.getTime() + 1), 2)
  await seed(calm, now, 1, seedScope.chainId + 1)
  expect(await countWaitingSplitters(sql, seedScope, [busy, calm, idle], now)).toEqual(
    new Map([
      [busy, 20],
      [calm, 1],
      [idle, 0],
    ]),
  )
  expect(await countWaitingSplitters(sql, seedScope, [], now)).toEqual(new Map())
})
