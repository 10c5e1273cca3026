import { expect, test } from 'vitest'
import { parsePrices } from './prices.ts'

test('default: returns the price of each tool that the file names', () => {
  const priceOf = parsePrices({ forecast: '0.010', help: 'free' })
  expect(['forecast', 'help', 'other', 'toString'].map(priceOf)).toEqual([
    '0.01',
    'free',
    undefined,
    undefined,
  ])
})

test('args: * applies to all tools that are not named', () => {
  const priceOf = parsePrices({ '*': '0.02', help: 'free' })
  expect(['forecast', 'help'].map(priceOf)).toEqual(['0.02', 'free'])
})

test.each([
  [[]],
  [{}],
  ['0.01'],
  [{ forecast: 0.01 }],
  [{ forecast: '0' }],
  [{ forecast: '0.0000001' }],
  [{ forecast: '-1' }],
  [{ forecast: 'Free' }],
  [{ '..': '0.01' }],
  [{ '': '0.01' }],
])('error: rejects %j', (json) => {
  expect(() => parsePrices(json)).toThrow(expect.objectContaining({ code: 'invalid_prices' }))
})
