import { networks } from '@tollkeeper/sdk/protocol/networks'
import { isAddress } from 'viem'
import { expect, test } from 'vitest'
import { priceFeedOf } from './priceFeeds.ts'

test('has a separate feed for each shipped network except the development network', () => {
  const feeds = Object.values(networks).map((network) => [network.name, priceFeedOf(network)] as const)
  for (const [name, feed] of feeds.filter(([name]) => name !== 'localhost')) {
    expect([name, isAddress(feed ?? '')]).toEqual([name, true])
    expect(feed).toBe(feed?.toLowerCase())
  }
  expect(new Set(feeds.map(([, feed]) => feed)).size).toBe(feeds.length)
  expect(priceFeedOf(networks.localhost)).toBeUndefined()
})

test('returns the feed that a network declares itself, and no feed for a custom network that declares none', () => {
  const own = '0x1111111111111111111111111111111111111111'
  expect(priceFeedOf({ ...networks.base, priceFeed: own })).toBe(own)
  expect(priceFeedOf({ name: 'toString-chain' })).toBeUndefined()
})
