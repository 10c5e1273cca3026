import { describe, expect, test } from 'vitest'
import { filtersOf, findByText } from './paymentSearch.ts'

const hex = (digits: number) => 'aB'.repeat(digits / 2)

describe('findByText', () => {
  test.each([
    [`pay_${'0'.repeat(32)}`, { link: `#/payments/pay_${'0'.repeat(32)}` }],
    [` tab_${'1'.repeat(32)}\n`, { tabId: `tab_${'1'.repeat(32)}` }],
    [`0x${hex(40)}`, { link: `#/payments?payer=0x${hex(40).toLowerCase()}` }],
    [`0x${hex(64)}`, { link: `#/payments?tx_hash=0x${hex(64).toLowerCase()}` }],
    [`0x${hex(38)}`, undefined],
    ['pay_1', undefined],
    ['', undefined],
  ])('behavior: returns what the pasted text %j refers to', (text, found) => {
    expect(findByText(text)).toEqual(found)
  })
})

describe('filtersOf', () => {
  test('behavior: keeps only the filters of the payments page', () => {
    expect(filtersOf({ status: 'failed', state: 'open', payer: '' })).toEqual({ status: 'failed' })
  })
})
