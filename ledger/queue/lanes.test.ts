import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type Lane, lanes, orderLanes } from './lanes.ts'

test('default: what most payers share comes first, then whoever has waited longest', () => {
  const due = new Set<Lane>(['code', 'shared', 'high_value'])
  expect(orderLanes(due, [])[0]).toBe('shared')
  expect(orderLanes(due, ['code', 'shared'])[0]).toBe('high_value')
  expect(orderLanes(due, ['high_value', 'shared', 'code', 'shared'])[0]).toBe('high_value')
})

test('behavior: what somebody waits for has every second turn', () => {
  expect(turnsOf(['facilitator', 'shared', 'code'], 6)).toEqual([
    ...['facilitator', 'shared', 'facilitator', 'code', 'facilitator', 'shared'],
  ])
})

test('behavior: single payments and tabs take turns, with each other and with the rest', () => {
  expect(turnsOf(['shared', 'tab'], 4)).toEqual(['shared', 'tab', 'shared', 'tab'])
  expect(turnsOf(['shared', 'tab', 'code'], 6)).toEqual(['shared', 'code', 'tab', 'code', 'shared', 'code'])
})

test('behavior: whoever always has something due, every second turn is the main lanes’ and nobody goes twice in a row', () => {
  fc.assert(
    fc.property(fc.subarray([...lanes], { minLength: 1 }), (always) => {
      const due = new Set(always)
      const turns = turnsOf(always, 80)
      const rest = turns.filter((lane) => lane !== 'facilitator')
      if (due.has('facilitator')) expect(turns.length - rest.length).toBeGreaterThanOrEqual(40)
      if (due.has('shared') || due.has('tab')) {
        const main = rest.filter((lane) => lane === 'shared' || lane === 'tab')
        expect(main.length).toBeGreaterThanOrEqual(rest.length / 2)
      }
      for (const [index, lane] of turns.entries()) if (due.size > 1) expect(lane).not.toBe(turns[index - 1])
      // Each of the others has its share.
      for (const lane of due) expect(turns.filter((one) => one === lane).length).toBeGreaterThanOrEqual(5)
    }),
  )
})

function turnsOf(always: Lane[], count: number): Lane[] {
  const turns: Lane[] = []
  for (let turn = 0; turn < count; turn++) turns.push(orderLanes(new Set(always), turns)[0] as Lane)
  return turns
}
