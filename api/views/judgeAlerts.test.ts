import { expect, test } from 'vitest'
import { judgeAlerts, type Sample } from './judgeAlerts.ts'

const at = (metric: string, value: number, labels: Record<string, string> = {}): Sample => ({
  metric,
  labels: { network: 'base', ...labels },
  value,
})

test.each([
  ['over', at('tollkeeper_queue_oldest_seconds', 3901, { payee: '0xab' }), ['QueueTooOld']],
  ['not over', at('tollkeeper_queue_oldest_seconds', 3900, { payee: '0xab' }), []],
  ['under', at('tollkeeper_wallet_balance_ether', 0.0049, { wallet: '0xab' }), ['WalletLow']],
  ['equal', at('tollkeeper_wallet_paused', 1, { wallet: '0xab' }), ['WalletPaused']],
  ['by label', at('tollkeeper_index_quarantined', 2, { reason: 'receipt_unavailable' }), ['IndexHole']],
  ['another label', at('tollkeeper_index_quarantined', 2, { reason: 'outcomes_mismatch' }), []],
  ['a metric that no alert names', at('tollkeeper_surprise', 1), []],
  ['one that is judged over time', at('tollkeeper_reorgs_total', 9), []],
])('args: %s', (_, sample, names) => {
  expect(judgeAlerts([sample]).map(({ name }) => name)).toEqual(names)
})

test('default: what is urgent first, with its values filled in', () => {
  const firing = judgeAlerts([
    at('tollkeeper_wallet_balance_ether', 0.001, { wallet: '0xab' }),
    at('tollkeeper_queue_oldest_seconds', 7_200, { payee: '0xcd' }),
  ])
  expect(firing).toMatchObject([
    { severity: 'page', for: '5m', summary: 'A payment to 0xcd on base waits for 120 min' },
    { severity: 'ticket', summary: '0xab on base has 0.001 left for gas' },
  ])
})
