import { encodeErrorResult, type Hex, parseAbi } from 'viem'
import { describe, expect, test } from 'vitest'
import { classifyRevert, revertText } from './failures.ts'

const abi = parseAbi(['error Error(string)'])
const revert = (text: string) => encodeErrorResult({ abi, errorName: 'Error', args: [text] })

describe('classifyRevert', () => {
  test.each([
    ['FiatTokenV2: authorization is used or canceled', 'race', 'authorization_used'],
    ['FiatTokenV2: authorization is expired', 'payment', 'authorization_expired'],
    ['FiatTokenV2: authorization is not yet valid', 'payment', 'authorization_not_yet_valid'],
    ['ERC20: transfer amount exceeds balance', 'payment', 'insufficient_balance'],
    ['FiatTokenV2: invalid signature', 'payment', 'invalid_signature'],
    ["ECRecover: invalid signature 's' value", 'payment', 'invalid_signature'],
    ['Blacklistable: account is blacklisted', 'payment', 'account_blacklisted'],
    ['Pausable: paused', 'token', 'token_paused'],
    ['ERC20: transfer to the zero address', 'payment', 'transfer_refused'],
  ])('classifies the revert reason “%s” (owner: %s, code: %s)', (text, owner, code) => {
    expect(classifyRevert(revert(text))).toEqual({ owner, code, detail: text })
  })

  test('behavior: classifies a missing reason as a failed signature check of a contract wallet', () => {
    expect(classifyRevert('0x')).toMatchObject({ owner: 'payment', code: 'invalid_signature' })
    expect(classifyRevert('0xdeadbeef')).toMatchObject({ code: 'invalid_signature' })
  })
})

test('behavior: revertText returns the available part of a truncated revert reason', () => {
  const cut = revert('x'.repeat(100)).slice(0, 2 + 2 * 132) as Hex
  expect(revertText(cut)).toBe('x'.repeat(64))
})
