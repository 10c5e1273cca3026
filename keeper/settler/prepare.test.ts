import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import type { Address } from 'viem'
import { expect, test } from 'vitest'
import type { PlanEntry } from './plan.ts'
import { leavePayeeOut } from './prepare.ts'

const address = (digit: string): Address => `0x${digit.repeat(40)}`
const batch = { feeRecipient: address('f') }

/** Returns a tab that pays these accounts. */
function entryOf(position: number, ...payees: Address[]): PlanEntry {
  const authorization = {
    from: address('a'),
    to: address('e'),
    value: 1n,
    validAfter: 0n,
    validBefore: 2n,
    nonce: `0x${'1'.repeat(64)}`,
    signature: `0x${'1'.repeat(130)}`,
  } as const
  const lines = payees.map((provider) => ({
    split: encodeSplit({ provider, providerShare: 9n, platformShare: 1n }),
    amount: 1n,
  }))
  return {
    item: {
      position,
      paymentId: `pay_${position}`,
      provider: { authorization, state: 'open' },
      fee: null,
      tab: { sequence: 1, expiry: 2, rewardShare: 0, lines },
    },
    settlement: { authorization },
  }
}

const entries = [
  entryOf(0, address('1')),
  entryOf(1, address('2'), address('1')),
  entryOf(2, address('2'), address('3')),
]
const positions = (list: readonly PlanEntry[]) => list.map(({ item }) => item.position)

test('default: leaves out the tabs that pay a refused account, and blames no payer', () => {
  const { kept, dropped } = leavePayeeOut(batch, entries, address('1'))
  expect(positions(kept)).toEqual([2])
  expect(dropped).toMatchObject(
    [0, 1].map((position) => ({
      item: { position },
      reason: 'failed',
      // This code doesn't blame the payer. The codes for a used, cancelled, unfunded or badly signed authorization would.
      failure: { code: 'account_blacklisted' },
    })),
  )
})

test('behavior: leaves out all tabs if the refused account is the platform’s', () => {
  const { kept, dropped } = leavePayeeOut(batch, entries, batch.feeRecipient)
  expect([positions(kept), dropped.length]).toEqual([[], 3])
})

test('behavior: keeps all tabs if none of them pays the refused account', () => {
  const { kept, dropped } = leavePayeeOut(batch, entries, address('9'))
  expect([positions(kept), dropped]).toEqual([[0, 1, 2], []])
})
