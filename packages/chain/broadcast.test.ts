import type { PublicClient } from 'viem'
import { describe, expect, test } from 'vitest'
import { broadcast, readBroadcastError } from './broadcast.ts'

describe('readBroadcastError', () => {
  test.each([
    ['already known', 'sent'],
    ['AlreadyKnown', 'sent'],
    ['ALREADY_EXISTS: already known', 'sent'],
    ['Known transaction: 0x1234', 'sent'],
    ['replacement transaction underpriced', 'same_or_rival'],
    ['Replacement transaction underpriced. Gas price is at least 3', 'same_or_rival'],
    ['insufficient funds for gas * price + value', 'insufficient_gas_funds'],
    ["Sender doesn't have enough funds to send tx", 'insufficient_gas_funds'],
    ['nonce too low: next nonce 5, tx nonce 4', 'nonce_used'],
    ['Nonce too low. Expected nonce to be 10 but got 9.', 'nonce_used'],
    ['transaction underpriced: gas tip cap 0, minimum needed 1', 'underpriced'],
    ['max fee per gas less than block base fee', 'underpriced'],
    [
      'Transaction maxFeePerGas (1) is too low for the next block, which has a baseFeePerGas of 2',
      'underpriced',
    ],
    ['intrinsic gas too low: have 1, want 2', 'invalid'],
    ['exceeds block gas limit', 'invalid'],
    ['timeout', 'unknown'],
    ['502 Bad Gateway', 'unknown'],
  ])('reads the error “%s” of a node as %s', (words, expected) => {
    const result = readBroadcastError(
      new Error('Missing or invalid parameters.', { cause: new Error(words) }),
    )
    expect(result.status === 'rejected' ? result.code : result.status).toBe(expected)
  })

  test('behavior: removes URLs and transaction bytes from the reason', () => {
    const error = new Error(`https://rpc.example/v2/secret refused 0x${'ab'.repeat(100)}`)
    expect(readBroadcastError(error)).toEqual({ status: 'unknown', reason: '<url> refused <bytes>' })
  })
})

describe('broadcast', () => {
  /**
   * Returns a node that accepts or rejects a transaction with this response. `known` is the node's response when it is asked for the
   * transaction by hash.
   */
  const nodeOf = (answer: () => unknown, known: () => unknown = () => null) =>
    ({
      request: async ({ method }: { method: string }) =>
        method === 'eth_sendRawTransaction' ? answer() : known(),
    }) as unknown as PublicClient
  const fail = (reason: string) => () => {
    throw new Error(reason)
  }
  const taken = nodeOf(() => '0x01')
  const rejecting = nodeOf(fail('nonce too low'))
  const silent = nodeOf(fail('timeout'))
  const send = (...nodes: PublicClient[]) => broadcast(nodes, '0x', '0x')

  test('default: returns `sent` if any node has accepted the transaction', async () => {
    expect(await send(rejecting, silent, taken)).toEqual({ status: 'sent' })
  })

  test('behavior: returns `unknown` if no node accepted the transaction, but a node did not respond', async () => {
    expect(await send(rejecting, silent)).toMatchObject({ status: 'unknown' })
  })

  test('error: returns `rejected` only if all nodes reject the transaction', async () => {
    expect(await send(rejecting, rejecting)).toMatchObject({ status: 'rejected', code: 'nonce_used' })
  })

  test('error: returns `unknown` if no node is configured', async () => {
    expect(await send()).toMatchObject({ status: 'unknown' })
  })

  test.each([
    ['sent if the node knows the transaction', () => ({}), { status: 'sent' }],
    [
      'rejected if the node does not know the transaction',
      () => null,
      { status: 'rejected', code: 'underpriced' },
    ],
    [
      'unknown if the node does not respond when asked for the transaction',
      fail('timeout'),
      { status: 'unknown' },
    ],
  ])(
    'behavior: after the error “replacement transaction underpriced”, returns %s',
    async (_, known, expected) => {
      const node = nodeOf(fail('replacement transaction underpriced'), known)
      expect(await send(node)).toMatchObject(expected)
    },
  )
})
