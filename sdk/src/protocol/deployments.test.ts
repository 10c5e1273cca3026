import { describe, expect, test } from 'vitest'
import { committedDeployments, parseDeployments, splitterFactory, tabSettlement } from './deployments.ts'

const entry = {
  batchSettlement: `0x${'Ab'.repeat(20)}`,
  splitterFactory: `0x${'ef'.repeat(20)}`,
  tabSettlement: `0x${'12'.repeat(20)}`,
  usdc: `0x${'cd'.repeat(20)}`,
  startBlock: 12,
}

describe('parseDeployments', () => {
  test('default: reads the addresses in lower-case, and ignores unknown fields', () => {
    expect(parseDeployments({ base: { ...entry, transactionHash: '0x' } })).toEqual({
      base: { ...entry, batchSettlement: `0x${'ab'.repeat(20)}` },
    })
  })

  test('behavior: skips a network on which nothing is deployed yet', () => {
    expect(parseDeployments({ base: { ...entry, startBlock: null } })).toEqual({})
  })

  test.each([
    ['unknown network', { solana: entry }, /solana/],
    ['missing factory', { base: { ...entry, splitterFactory: undefined } }, /base\.splitterFactory/],
    ['missing TabSettlement', { base: { ...entry, tabSettlement: undefined } }, /base\.tabSettlement/],
    ['malformed address', { base: { ...entry, usdc: '0x1' } }, /base\.usdc/],
    ['negative start block', { base: { ...entry, startBlock: -1 } }, /base\.startBlock/],
    ['missing start block', { base: { ...entry, startBlock: undefined } }, /base\.startBlock/],
    ['missing entry', { base: null }, /base\.startBlock/],
    ['file without an object', null, /object/],
  ])('error: rejects a %s', (_, json, message) => {
    expect(() => parseDeployments(json)).toThrow(message)
  })
})

test('behavior: the committed file has the same contract addresses for every network', () => {
  const deployments = Object.values(committedDeployments)
  expect(new Set(deployments.map((deployment) => deployment?.batchSettlement)).size).toBe(1)
  for (const deployment of deployments) expect(deployment).toMatchObject({ splitterFactory, tabSettlement })
})
