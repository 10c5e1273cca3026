import { expect, test } from 'vitest'
import { composeNotices } from './compose.ts'

test('behavior: a tab that fails is told as one payment, with how much of it was the provider’s', () => {
  const data = { tabId: `tab_${'0'.repeat(32)}`, requests: 12, code: 'insufficient_balance', attempts: 6 }
  const notice = { outboxId: 1n, event: 'settlement.failed', paymentId: 'pay_1', data } as const
  const { text } = composeNotices(
    { providerId: 'prov_1', address: 'a@b.example' },
    [notice],
    'https://gateway.example',
  )
  expect(text).toContain('1 payment will not be settled any more:')
  expect(text).toContain('\n  pay_1 (a tab with 12 requests to you) insufficient_balance\n')
})
