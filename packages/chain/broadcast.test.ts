import { describe, expect, test } from 'vitest'
import { readBroadcastError } from './broadcast.ts'

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
  ])('args: %s', (words, expected) => {
    const result = readBroadcastError(
      new Error('Missing or invalid parameters.', { cause: new Error(words) }),
    )
    expect(result.status === 'rejected' ? result.code : result.status).toBe(expected)
  })

  test('behavior: no URL and no bytes in what is logged', () => {
    const error = new Error(`https://rpc.example/v2/secret refused 0x${'ab'.repeat(100)}`)
    expect(readBroadcastError(error)).toEqual({ status: 'unknown', reason: '<url> refused <bytes>' })
  })
})
