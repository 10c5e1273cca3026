import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networks, type ShippedNetworkName } from '@tollkeeper/sdk/protocol/networks'
import { encodePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { describe, expect, test } from 'vitest'
import { parseSubmission } from './parseSubmission.ts'

const serve = (...names: ShippedNetworkName[]) =>
  names.map((name) => ({ network: networks[name], token: networks[name].usdc }) as ServedNetwork)
const signed: SignedAuthorization = {
  from: `0x${'a'.repeat(40)}`,
  to: `0x${'b'.repeat(40)}`,
  value: 1n,
  validAfter: 0n,
  validBefore: 1_800_000_000n,
  nonce: `0x${'1'.repeat(64)}`,
  signature: `0x${'2'.repeat(130)}`,
}
const transfer = encodePayload(signed)

describe('the network of a submission', () => {
  test('default: is the network that the submission names', () => {
    const body = { network: 'base-sepolia', transfers: [transfer] }
    const { served, transfers } = parseSubmission(serve('base', 'base-sepolia'), body)
    expect([served.network.name, transfers.length]).toEqual(['base-sepolia', 1])
  })

  test('behavior: is the only served network if the submission names none', () => {
    expect(parseSubmission(serve('base'), { transfers: [transfer] }).served.network.name).toBe('base')
    const named = parseSubmission(serve('base'), { network: 'base', transfers: [transfer] })
    expect(parseSubmission(serve('base'), { transfers: [transfer] }).key).toBe(named.key)
  })

  test('error: is rejected if it is unknown, or if the submission names no network although several are served', () => {
    const both = serve('base', 'base-sepolia')
    const unnamed = expect.objectContaining({
      code: 'invalid_request',
      message: expect.stringContaining('expected one of base, base-sepolia'),
    })
    expect(() => parseSubmission(both, { transfers: [transfer] })).toThrow(unnamed)
    const elsewhere = { network: 'polygon', transfers: [transfer] }
    const unknown = expect.objectContaining({ code: 'unknown_network' })
    expect(() => parseSubmission(serve('base'), elsewhere)).toThrow(unknown)
  })
})

test('error: rejects a transfer of 0', () => {
  const nothing = encodePayload({ ...signed, value: 0n, nonce: `0x${'3'.repeat(64)}` })
  expect(() => parseSubmission(serve('base'), { transfers: [transfer, nothing] })).toThrow(
    expect.objectContaining({ code: 'amount_too_low', details: { transfer: 1 } }),
  )
})
