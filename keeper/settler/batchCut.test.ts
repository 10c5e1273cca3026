import { expect, test } from 'vitest'
import { type BatchKind, selectCompatible } from './batchCut.ts'

const recipient = `0x${'11'.repeat(20)}` as const
const alone = { recipient, isPair: false, isRefund: false, tab: null }
const pair = { ...alone, isPair: true }
const refund = { ...alone, isRefund: true }
const tab = (rewardShare: number) => ({ ...alone, tab: { rewardShare } }) as BatchKind

test.each([
  ['pairs and refunds if the first payment is a pair', [pair, alone, refund, tab(0), pair], [0, 2, 4]],
  [
    'single authorizations and refunds if the first payment is a single authorization',
    [alone, pair, tab(0), refund, alone],
    [0, 3, 4],
  ],
  [
    'tabs with the same reward if the first payment is a tab',
    [tab(10), alone, tab(20), pair, tab(10)],
    [0, 4],
  ],
  ['payments of the same kind as the first payment that isn’t a refund', [refund, pair, alone], [0, 1]],
  ['refunds if no other payment waits', [refund, refund], [0, 1]],
])('default: selects %s', (_, payments, taken) => {
  expect(selectCompatible<BatchKind>(payments)).toEqual(taken.map((index) => payments[index]))
})
