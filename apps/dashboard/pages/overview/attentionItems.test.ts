import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import type { Attention } from '../../gateway/answers.ts'
import { attentionItems, owingItems } from './attentionItems.ts'

const none = { payments: 0, isMore: false, net_usdc: '0.000000' }
const quiet: Attention = {
  suspendedAt: null,
  disabledAt: null,
  failed: none,
  retrying: none,
  webhooks: [],
  upstreamSecretExpiresAt: null,
  endpoints: [],
  withheld: [],
  gas: [{ money: 'real', limit_usd: '1.000000', left_usd: '0.200000', isShared: true }],
}
const texts = (more: Partial<Attention>) => attentionItems({ ...quiet, ...more }).map(({ text }) => text)

beforeAll(() => vi.stubGlobal('navigator', { languages: ['en-US'] }))
afterAll(() => vi.unstubAllGlobals())

test('behavior: returns no items if nothing requires attention', () => {
  expect(texts({})).toEqual([])
})

test('behavior: states the number of failures in a sentence, and links to the page that lists the failures', () => {
  const failed = { payments: 1, isMore: false, net_usdc: '0.047500' }
  const retrying = { payments: 100, isMore: true, net_usdc: '4.750000' }
  const items = attentionItems({ ...quiet, failed, retrying })
  expect(items.map(({ text }) => text)).toEqual([
    '1 payment won’t settle without your action: 0.0475 USDC.',
    'More than 100 payments failed to settle and are retried: at least 4.75 USDC.',
  ])
  expect(items.map(({ link, tone }) => [link, tone])).toEqual([
    ['#/payments/failures', 'bad'],
    ['#/payments/failures', 'busy'],
  ])
})

test('behavior: links a webhook to its page', () => {
  const webhook = {
    webhookId: 'wh_1',
    url: 'https://a.example/hook',
    disabledAt: null,
    undelivered: 3,
    ofLast: 20,
    failure: 'http_500',
    previousSecretExpiresAt: null,
  }
  expect(attentionItems({ ...quiet, webhooks: [webhook] })).toMatchObject([
    {
      text: '3 of the last 20 messages to https://a.example/hook did not arrive (http 500). Check the receiver.',
      link: '#/developers/webhooks/wh_1',
    },
  ])
  const gone = { ...webhook, disabledAt: '2026-11-29T00:00:00Z' }
  expect(texts({ webhooks: [gone] })).toEqual([
    'The webhook https://a.example/hook is disabled, because its receiver answered 410. Rotate its secret to enable it again.',
  ])
})

test('behavior: mentions a gas allowance once less than a fifth of it is left', () => {
  const gas = [{ money: 'real', limit_usd: '1.000000', left_usd: '0.199999', isShared: false }] as const
  expect(texts({ gas: [...gas] })).toEqual([
    'The operator’s gas allowance for refunds has 0.199999 of 1.00 USD left today. It is renewed at midnight UTC.',
  ])
})

test('behavior: counts the buyers who owe, adds up their debts, and links to the list of these buyers', () => {
  const owing = (count: number, cursor: string | null = null) =>
    owingItems({
      payers: Array.from({ length: count }, () => ({ owed_usdc: '0.011400' })) as never,
      cursor,
      testnet: true,
    })
  expect(owing(0)).toEqual([])
  expect(owing(1)).toMatchObject([
    {
      text: '1 buyer owes you 0.0114 USDC for payments that failed because of the buyer.',
      link: '#/buyers?state=owing&period=all&testnet=true',
    },
  ])
  expect(owing(2, 'next').map(({ text }) => text)).toEqual([
    'More than 2 buyers owe you at least 0.0228 USDC for payments that failed because of the buyer.',
  ])
})
