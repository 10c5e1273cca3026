import { expect, test } from 'vitest'
import { matchPages, readDestination } from './destinations.ts'

const id = 'ab'.repeat(16)
const address = `0x${'Ab'.repeat(20)}`
const hash = `0x${'cd'.repeat(32)}`

test.each([
  [`pay_${id}`, `#/payments/pay_${id}`],
  [` pay_${id}\n`, `#/payments/pay_${id}`],
  [`ep_${id}`, `#/endpoints/ep_${id}`],
  [`wh_${id}`, `#/developers/webhooks/wh_${id}`],
  [address, `#/buyers/${address.toLowerCase()}`],
  ['eyJhbGciOiJFUzI1NiJ9.e30.AA', '#/receipt/eyJhbGciOiJFUzI1NiJ9.e30.AA'],
])('behavior: returns a link to the page of %s', (text, link) => {
  expect(readDestination(text)).toMatchObject({ kind: 'page', link })
})

test('behavior: recognizes a transaction hash and a tab’s id', () => {
  expect(readDestination(hash.toUpperCase().replace('0X', '0x'))).toMatchObject({ kind: 'transaction', hash })
  expect(readDestination(`tab_${id}`)).toMatchObject({ kind: 'tab', tabId: `tab_${id}` })
})

test.each(['', 'pay_', `constructor_${id}`, `pay_${id}0`, '0x12', `prov_${id}`, 'payments', '<img src=x>'])(
  'behavior: returns no destination for %j',
  (text) => {
    expect(readDestination(text)).toBeUndefined()
  },
)

test('behavior: finds pages by the words in their titles', () => {
  const pages = ['Overview', 'Payments', 'Failed payments', 'Payouts'].map((title) => ({ title }))
  const titles = (text: string) => matchPages(pages, text).map(({ title }) => title)
  expect(titles('pay')).toEqual(['Payments', 'Payouts', 'Failed payments'])
  expect(titles('pay fail')).toEqual(['Failed payments'])
  expect(titles('')).toEqual(pages.map(({ title }) => title))
  expect(titles('nothing')).toEqual([])
})
