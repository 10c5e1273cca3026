import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { tabSettlementAbi } from '@tollkeeper/sdk/protocol/abi/tabSettlement'
import { createPublicClient, custom, encodeAbiParameters, encodeErrorResult, type Hex } from 'viem'
import { expect, test } from 'vitest'
import { simulateBatch } from './simulate.ts'

/** Returns a node that answers each call with this data, or reverts with it. */
function nodeThat(answer: { returns: Hex } | { reverts: Hex }) {
  return createPublicClient({
    transport: custom({
      request: async ({ method }: { method: string }) => {
        if (method !== 'eth_call') throw new Error(`not asked for: ${method}`)
        if ('returns' in answer) return answer.returns
        throw Object.assign(new Error('execution reverted'), { code: 3, data: answer.reverts })
      },
    }),
  })
}

const account = `0x${'ab'.repeat(20)}` as const
const call = { from: account, to: account, calldata: '0x', gas: 1_000_000n } as const
const simulate = (answer: Parameters<typeof nodeThat>[0]) =>
  simulateBatch(nodeThat(answer), call, { blockNumber: 1n })

test('default: returns the contract’s outcomes, even if the contract reverts because nothing settled', async () => {
  const returns = encodeAbiParameters([{ type: 'bytes' }], ['0x10'])
  expect(await simulate({ returns })).toMatchObject({
    status: 'outcomes',
    outcomes: [{ provider: 'settled' }],
  })
  const reverts = encodeErrorResult({ abi: batchSettlementAbi, errorName: 'NothingSettled', args: ['0x30'] })
  expect(await simulate({ reverts })).toMatchObject({
    status: 'outcomes',
    outcomes: [{ provider: 'failed' }],
  })
})

test('behavior: returns the account to which the token refuses transfers', async () => {
  const reverts = encodeErrorResult({ abi: tabSettlementAbi, errorName: 'PayeeRefused', args: [account] })
  expect(await simulate({ reverts })).toEqual({ status: 'payee_refused', account })
})

test('behavior: returns the reason of any other revert', async () => {
  const reverts = encodeErrorResult({ abi: tabSettlementAbi, errorName: 'InvalidLines', args: [1n] })
  expect(await simulate({ reverts })).toMatchObject({ status: 'reverted' })
})

test('error: throws if a node does not respond', async () => {
  const client = createPublicClient({
    transport: custom({ request: async () => Promise.reject(new Error('no such host')) }, { retryCount: 0 }),
  })
  await expect(simulateBatch(client, call, { blockNumber: 1n })).rejects.toThrow('no such host')
})
