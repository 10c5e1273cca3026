import { expect, test } from 'vitest'
import { type Column, placesOf } from './Table.tsx'

const cell = () => null
const placesAre = (columns: Column<never>[]) => placesOf(columns).join(' ')

test('behavior: shows a row’s name and amount on the first line, and three more texts on the second line', () => {
  expect(
    placesAre([
      ['Batch', cell],
      ['Payments', cell, 'number'],
      ['Net, USDC', cell, 'number'],
      ['Trigger', cell],
      ['Mined', cell],
      ['Confirmed', cell],
      ['Transaction', cell],
      ['', cell, 'actions'],
    ]),
  ).toBe('first more end second second second more actions')
})

test('behavior: ends a row’s first line with the first number if the row has no amount', () => {
  expect(
    placesAre([
      ['Buyer', cell],
      ['Network', cell],
      ['Payments', cell, 'number'],
    ]),
  ).toBe('first second end')
})

test('behavior: shows a column’s value at the place that the column specifies', () => {
  expect(
    placesAre([
      ['Endpoint', cell, 'wrap'],
      ['Net, USDC', cell, 'number', 'more'],
      ['Payments', cell, 'number', 'end'],
      ['Calls', cell, 'number', 'second'],
      ['Why', cell, 'wrap', 'more'],
    ]),
  ).toBe('first more end second more')
})
