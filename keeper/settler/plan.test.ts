import type { BatchItem, ItemHalf } from '@tollkeeper/ledger/batches/items'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { describe, expect, test } from 'vitest'
import { gasRequestOf, type PlannedBatch, planEntry, planPayments, refusalOfWhole } from './plan.ts'

const address = (digit: string) => `0x${digit.repeat(40)}` as const
const platform = address('f')
const batch: PlannedBatch = {
  batchId: `0x${'b'.repeat(64)}`,
  token: address('c'),
  feeRecipient: platform,
  trigger: 'count',
  lane: 'shared',
}

function halfOf(
  change: Partial<ItemHalf['authorization']> = {},
  state: ItemHalf['state'] = 'open',
): ItemHalf {
  const authorization = {
    from: address('1'),
    to: address('2'),
    value: 9_500n,
    validAfter: 0n,
    validBefore: 2_000_000_000n,
    nonce: `0x${'3'.repeat(64)}` as const,
    signature: `0x${'4'.repeat(130)}` as const,
    ...change,
  }
  return { authorization, state }
}
const feeOf = (change: Partial<ItemHalf['authorization']> = {}, state?: ItemHalf['state']) =>
  halfOf({ to: platform, value: 500n, nonce: `0x${'5'.repeat(64)}`, ...change }, state)
const itemOf = (provider: ItemHalf, fee: ItemHalf | null = null): BatchItem => ({
  position: 0,
  paymentId: 'pay_1',
  provider,
  fee,
})

describe('planEntry', () => {
  test('default: settles the provider’s authorization and the fee together if both are open', () => {
    const item = itemOf(halfOf(), feeOf())
    expect(planEntry(item, batch)?.settlement).toEqual({
      authorization: item.provider.authorization,
      fee: item.fee?.authorization,
    })
  })

  test('behavior: settles only the provider’s authorization if the two authorizations can’t share an entry', () => {
    const item = itemOf(halfOf(), feeOf({ validBefore: 2_000_000_001n }))
    expect(planEntry(item, batch)?.settlement).toEqual({ authorization: item.provider.authorization })
  })

  test('behavior: settles the fee alone once the provider’s authorization has settled', () => {
    const item = itemOf(halfOf({}, 'settled'), feeOf())
    expect(planEntry(item, batch)?.settlement).toEqual({ authorization: item.fee?.authorization })
  })

  test.each([
    ['cancelled', 'open'],
    ['foreign_use', 'open'],
    ['settled', 'settled'],
    ['settled', 'cancelled'],
  ] as const)(
    'error: settles nothing if the provider’s authorization is %s and the fee is %s',
    (state, feeState) => {
      expect(planEntry(itemOf(halfOf({}, state), feeOf({}, feeState)), batch)).toBeNull()
    },
  )
})

describe('gasRequestOf', () => {
  const spend = (item: BatchItem) => {
    const entry = planEntry(item, batch)
    if (!entry) throw new Error('Expected an entry')
    return gasRequestOf(entry, false)
  }

  test('default: returns the fee that pays for the gas', () => {
    expect(spend(itemOf(halfOf(), feeOf()))).toMatchObject({ fee: 500n, isPair: true, hasLostFee: false })
    expect(spend(itemOf(halfOf({}, 'settled'), feeOf()))).toMatchObject({ fee: 500n, isPair: false })
  })

  test('behavior: marks the fee as lost if only the provider’s authorization can still settle', () => {
    const item = itemOf(halfOf(), feeOf({}, 'cancelled'))
    expect(spend(item)).toMatchObject({ fee: 0n, isPair: false, hasLostFee: true })
  })

  test('behavior: a tab’s fee is the platform’s part less the reward for settling the tab', () => {
    const split = encodeSplit({ provider: address('2'), providerShare: 9n, platformShare: 1n })
    const lines = [{ split, amount: 100_000n }]
    const tab = { sequence: 1, expiry: 2_000_000_000, rewardShare: 2_000, lines }
    expect(spend({ ...itemOf(halfOf({ value: 100_000n })), tab })).toMatchObject({
      fee: 8_000n,
      reward: 2_000n,
      hasLostFee: false,
    })
  })
})

test('default: orders a transaction’s payments by payer, and each payer’s payments by amount, the smallest first', () => {
  const items = [
    itemOf(halfOf({ from: address('8'), value: 3n })),
    itemOf(halfOf({ from: address('7'), value: 2n })),
    itemOf(halfOf({ from: address('8'), value: 1n })),
  ]
  const entries = items.flatMap((item) => planEntry(item, batch) ?? [])
  const planned = planPayments(batch, entries, false).entries.map(({ item }) => items.indexOf(item))
  expect(planned).toEqual([1, 2, 0])
})

describe('refusalOfWhole', () => {
  const item = itemOf(halfOf())

  test('default: returns no reason if each authorization is planned or settled', () => {
    expect(refusalOfWhole([item], [{ item, reason: 'already_settled' }])).toBeNull()
  })

  test.each([
    ['cancelled', 'authorization_cancelled'],
    ['foreign_use', 'authorization_used'],
  ] as const)('error: returns a reason if a fee in the batch is %s', (state, code) => {
    expect(refusalOfWhole([itemOf(halfOf(), feeOf({}, state))], [])).toBe(code)
  })

  test('behavior: returns a payment’s own fault rather than a temporary reason', () => {
    const drops = [
      { item, reason: 'deferred' },
      { item, reason: 'nonce_used' },
    ] as const
    expect(refusalOfWhole([item], drops)).toBe('authorization_used')
    expect(refusalOfWhole([itemOf(halfOf({}, 'cancelled'))], drops)).toBe('authorization_cancelled')
    expect(refusalOfWhole([item], drops.slice(0, 1))).toBe('deferred')
  })
})
