import { expect, test } from 'vitest'
import { atLeast, atMost, compareWithGoals, formatGoals } from './goals.ts'

const report = { rate: 90, cpu: { api: 300 }, citus: null, byPrice: { 1: { blocks: 2 } } }

test('default: compares each figure with its goal, including nested figures', () => {
  const goals = {
    rate: atLeast(100),
    'cpu.api': atMost(300),
    'byPrice.1.blocks': atMost(1),
    'citus.share': atMost(0.15),
  }
  expect(compareWithGoals(report, goals)).toEqual({
    rate: { figure: 90, bound: 'at least', goal: 100, met: false },
    'cpu.api': { figure: 300, bound: 'at most', goal: 300, met: true },
    'byPrice.1.blocks': { figure: 2, bound: 'at most', goal: 1, met: false },
    'citus.share': { figure: null, bound: 'at most', goal: 0.15, met: null },
  })
})

test('default: prints a line per goal, and marks the missed goals', () => {
  const lines = formatGoals(
    compareWithGoals(report, { rate: atLeast(100), 'cpu.api': atMost(300), gone: atMost(1) }),
  )
  expect(lines.slice(1).map((line) => line.split(/ {2,}/))).toEqual([
    ['rate', '90', '≥ 100', 'MISSED'],
    ['cpu.api', '300', '≤ 300', 'met'],
    ['gone', '≤ 1', 'not measured'],
  ])
})
