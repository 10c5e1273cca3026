import fc from 'fast-check'
import { expect, test } from 'vitest'
import { groupByLane, type Lane, type LaneKind, laneOf, lanes, orderByTurns, orderLanes } from './lanes.ts'

test('default: the shared lane comes first, then the lane that has waited longest', () => {
  const due = worthless(['code', 'shared', 'high_value'])
  expect(orderLanes(due, [])[0]).toBe('shared')
  expect(orderLanes(due, ['code', 'shared'])[0]).toBe('high_value')
  expect(orderLanes(due, ['high_value', 'shared', 'code', 'shared'])[0]).toBe('high_value')
})

test('behavior: the lane with waiting callers has every second turn', () => {
  expect(turnsOf(['facilitator', 'shared', 'code'], 6)).toEqual([
    ...['facilitator', 'shared', 'facilitator', 'code', 'facilitator', 'shared'],
  ])
})

test('behavior: if the lanes for single payments and for tabs are worth the same, they alternate, also when a third lane has every second turn', () => {
  expect(turnsOf(['shared', 'tab'], 4)).toEqual(['shared', 'tab', 'shared', 'tab'])
  expect(turnsOf(['shared', 'tab', 'code'], 6)).toEqual(['shared', 'code', 'tab', 'code', 'shared', 'code'])
})

test('behavior: if the lanes for single payments and for tabs differ in value, the more valuable lane has two of three turns', () => {
  const dearTabs = new Map<Lane, bigint>([
    ['shared', 1n],
    ['tab', 2n],
  ])
  expect(turnsOf(dearTabs, 6)).toEqual(['tab', 'tab', 'shared', 'tab', 'tab', 'shared'])
  expect(turnsOf(new Map([...dearTabs, ['code', 9n]]), 6)).toEqual([
    ...['tab', 'code', 'tab', 'code', 'shared', 'code'],
  ])
  expect(orderLanes(dearTabs, ['shared', 'shared'])[0]).toBe('tab')
})

test('behavior: even if all lanes always have due payments, the main lanes have every second turn, and no lane waits forever', () => {
  fc.assert(
    fc.property(fc.subarray([...lanes], { minLength: 1 }), fc.bigInt(0n, 2n), (always, worth) => {
      const due = worthless(always)
      if (due.has('tab')) due.set('tab', worth)
      const turns = turnsOf(due, 80)
      const rest = turns.filter((lane) => lane !== 'facilitator')
      if (due.has('facilitator')) expect(turns.length - rest.length).toBeGreaterThanOrEqual(40)
      if (due.has('shared') || due.has('tab')) {
        const main = rest.filter((lane) => lane === 'shared' || lane === 'tab')
        expect(main.length).toBeGreaterThanOrEqual(rest.length / 2)
      }
      const isAgain = (index: number) => turns[index] === turns[index - 1]
      for (const [index, lane] of turns.entries())
        if (due.size > 1 && isAgain(index)) {
          // A main lane may have two turns in a row only if no other lane is due and its payments are the more valuable ones.
          expect([
            lane,
            worth > 0n,
            rest.length,
            [...due.keys()].every((one) => one === 'tab' || one === 'shared'),
          ]).toEqual(['tab', true, turns.length, true])
          expect(isAgain(index - 1)).toBe(false)
        }
      // Every lane with due payments gets at least five of the 80 turns.
      for (const lane of due.keys())
        expect(turns.filter((one) => one === lane).length).toBeGreaterThanOrEqual(5)
    }),
  )
})

test('default: orders due batches by their lanes’ turns, which depend on the value of each lane’s next batch', () => {
  const due = [
    { lane: 'tab', worth: 3n, id: 1 },
    { lane: 'shared', worth: 4n, id: 2 },
    { lane: 'tab', worth: 9n, id: 3 },
  ] as const
  expect(orderByTurns(due, []).map(({ id }) => id)).toEqual([2, 1, 3])
  expect(orderByTurns(due, ['shared', 'shared']).map(({ id }) => id)).toEqual([1, 3, 2])
})

const ordinary: LaneKind = { isHighValue: false, isIsolated: false, isTab: false, hasCode: false }

test.each([
  ['shared', {}],
  ['code', { hasCode: true }],
  ['tab', { isTab: true, hasCode: true }],
  ['high_value', { isHighValue: true, isTab: true, hasCode: true }],
  ['isolated', { isIsolated: true, isHighValue: true, isTab: true }],
] as const)('default: the lane %s gets a payment with %o', (lane, change) => {
  expect(laneOf({ ...ordinary, ...change })).toBe(lane)
})

test('default: groups payments by lane, separates the tabs of payers with code from other tabs, and takes only one payment of each isolated payer', () => {
  const payments = [
    { ...ordinary, payer: 'a', id: 1 },
    { ...ordinary, payer: 'b', id: 2, isTab: true },
    { ...ordinary, payer: 'c', id: 3, isTab: true, hasCode: true },
    { ...ordinary, payer: 'd', id: 4, isIsolated: true },
    { ...ordinary, payer: 'd', id: 5, isIsolated: true, isTab: true },
    { ...ordinary, payer: 'e', id: 6, isIsolated: true },
    { ...ordinary, payer: 'a', id: 7 },
  ]
  expect(groupByLane(payments).map(({ lane, payments }) => [lane, ...payments.map(({ id }) => id)])).toEqual([
    ['shared', 1, 7],
    ['tab', 2],
    ['tab', 3],
    ['isolated', 4, 6],
  ])
})

function worthless(due: readonly Lane[]): Map<Lane, bigint> {
  return new Map(due.map((lane) => [lane, 0n]))
}

function turnsOf(always: readonly Lane[] | ReadonlyMap<Lane, bigint>, count: number): Lane[] {
  const due = always instanceof Map ? always : worthless(always as readonly Lane[])
  const turns: Lane[] = []
  for (let turn = 0; turn < count; turn++) turns.push(orderLanes(due, turns)[0] as Lane)
  return turns
}
