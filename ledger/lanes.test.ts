import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type Lane, lanes, orderLanes } from './lanes.ts'

test('default: what most payers share comes first, then whoever has waited longest', () => {
  const due = new Set<Lane>(['code', 'shared', 'high_value'])
  expect(orderLanes(due, [])[0]).toBe('shared')
  expect(orderLanes(due, ['code', 'shared'])[0]).toBe('high_value')
  expect(orderLanes(due, ['high_value', 'shared', 'code', 'shared'])[0]).toBe('high_value')
})

test('behavior: whoever always has something due, every second turn is the shared one’s and nobody else goes twice in a row', () => {
  fc.assert(
    fc.property(fc.subarray([...lanes], { minLength: 1 }), (always) => {
      const due = new Set(always)
      const turns: Lane[] = []
      for (let turn = 0; turn < 40; turn++) turns.push(orderLanes(due, turns)[0] as Lane)
      if (due.has('shared')) {
        expect(turns.filter((lane) => lane === 'shared').length).toBeGreaterThanOrEqual(20)
      }
      for (const [index, lane] of turns.entries()) if (due.size > 1) expect(lane).not.toBe(turns[index - 1])
      // Each of the others has its share.
      for (const lane of due) expect(turns.filter((one) => one === lane).length).toBeGreaterThanOrEqual(5)
    }),
  )
})
