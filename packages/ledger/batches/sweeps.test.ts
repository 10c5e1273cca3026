import { expect, test } from 'vitest'
import { defaultTriggers } from '../queue/triggers.ts'
import type { BatchItem } from './items.ts'
import { countDueSweeps, isSweepDue } from './sweeps.ts'

const now = new Date('2026-11-22T12:00:00Z')
const ago = (ms: number) => new Date(now.getTime() - ms)
const day = 86_400_000

test.each([
  ['nothing in it', { payments: 0, amount: 0n, since: null }, 'time', false],
  ['nine', { payments: 9, amount: 45_000n, since: ago(day - 1) }, 'time', false],
  ['ten', { payments: 10, amount: 0n, since: null }, 'time', true],
  ['one that has waited for a day', { payments: 1, amount: 0n, since: ago(day) }, 'count', true],
  ['its provider’s amount', { payments: 1, amount: 1_000_000n, since: null }, 'amount', true],
  ['another provider’s amount', { payments: 1, amount: 999_999n, since: null }, 'amount', false],
  ['a payment of high value', { payments: 1, amount: 9_700_000n, since: null }, 'high_value', true],
  ['what was asked for', { payments: 1, amount: 1n, since: null }, 'direct', true],
  ['no part of what was asked for', { payments: 1, amount: 0n, since: null }, 'direct', false],
  ['about to expire', { payments: 1, amount: 1n, since: null }, 'expiry', false],
] as const)('args: %s', (_, queue, trigger, isDue) => {
  expect(isSweepDue(queue, trigger, defaultTriggers, now)).toBe(isDue)
})

test('behavior: a keeper that knows its batch alone sweeps what that pays often', () => {
  const terms = { provider: '0xa', platform: '0xb', providerShare: 19n, platformShare: 1n } as const
  const item = (to: string) =>
    ({ provider: { authorization: { to, value: 20n } }, fee: null, splitter: terms }) as unknown as BatchItem
  const items = [...Array.from({ length: 3 }, () => item('0x1')), item('0x2')]
  expect(countDueSweeps(items, 3)).toEqual([terms])
  expect(countDueSweeps(items, 4)).toEqual([])
})
