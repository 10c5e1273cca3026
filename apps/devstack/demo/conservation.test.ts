import { expect, test } from 'vitest'
import { type Balances, isConserved } from './conservation.ts'

const balances: Balances = {
  minted: 1_000n,
  left: 400n,
  providers: new Map([
    ['Micro Weather', 300n],
    ['City Maps', 200n],
  ]),
  platform: 60n,
  rewards: 30n,
  waiting: 10n,
}

test.each<[string, Partial<Balances>, boolean]>([
  ['all that left the buyers arrived', {}, true],
  ['a unit is missing', { platform: 59n }, false],
  ['a unit too many arrived', { left: 401n }, false],
  ['a unit was minted beside it', { minted: 1_001n }, false],
  ['a provider lacks a unit', { providers: new Map([['Micro Weather', 499n]]) }, false],
  ['a keeper lacks a unit', { rewards: 29n }, false],
  ['a splitter lacks a unit', { waiting: 9n }, false],
])('behavior: %s', (_, changes, expected) => {
  expect(isConserved({ ...balances, ...changes })).toBe(expected)
})
