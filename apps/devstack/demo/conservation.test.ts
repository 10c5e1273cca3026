import { expect, test } from 'vitest'
import { type Balances, isConserved } from './conservation.ts'

const balances: Balances = {
  supply: 1_000n,
  buyers: 400n,
  providers: new Map([
    ['Micro Weather', 300n],
    ['City Maps', 200n],
  ]),
  platform: 60n,
  keepers: 30n,
  splitters: 10n,
}

test.each<[string, Partial<Balances>, boolean]>([
  ['everything that the buyers spent arrived', {}, true],
  ['a unit is missing', { platform: 59n }, false],
  ['a unit too many arrived', { buyers: 401n }, false],
  ['a unit was minted for someone else', { supply: 1_001n }, false],
  ['a provider lacks a unit', { providers: new Map([['Micro Weather', 499n]]) }, false],
  ['a keeper lacks a unit', { keepers: 29n }, false],
  ['a splitter lacks a unit', { splitters: 9n }, false],
])('behavior: detects whether %s', (_, changes, expected) => {
  expect(isConserved({ ...balances, ...changes })).toBe(expected)
})
