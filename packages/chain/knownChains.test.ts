import { networks } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { readKnownChains } from '../../tools/generateKnownChains.ts'
import known from './generated/knownChains.json' with { type: 'json' }
import { isProductionChain, isTestChain } from './knownChains.ts'

test("the generated list of chains matches viem's current list", () => {
  expect(known).toEqual(readKnownChains())
})

test('classifies every shipped network as production or test, as the table of networks does', () => {
  for (const { name, chainId, testnet } of Object.values(networks).filter(({ name }) => name !== 'localhost'))
    expect([name, isTestChain(chainId), isProductionChain(chainId)]).toEqual([name, testnet, !testnet])
})

test('does not classify local and unknown chains', () => {
  for (const chainId of [31337, 1337, 4_242_424]) {
    expect(isTestChain(chainId)).toBe(false)
    expect(isProductionChain(chainId)).toBe(false)
  }
})
