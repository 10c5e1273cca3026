import { expect, test } from 'vitest'
import { composeNotices } from './compose.ts'

test('behavior: a failed tab is reported as one payment, with the number of requests to the provider', () => {
  const data = { tabId: `tab_${'0'.repeat(32)}`, requests: 12, code: 'insufficient_balance', attempts: 6 }
  const notice = { outboxId: 1n, event: 'settlement.failed', paymentId: 'pay_1', data } as const
  const { text } = composeNotices(
    { providerId: 'prov_1', address: 'a@b.example' },
    [notice],
    'https://gateway.example',
  )
  expect(text).toContain('1 payment failed and will not be retried:')
  expect(text).toContain('\n  pay_1 (a tab with 12 requests to you) insufficient_balance\n')
})
