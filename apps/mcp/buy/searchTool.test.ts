import { expect, test } from 'vitest'
import { withHostileParts } from '../../../test/support/hostileJson.ts'
import { describeListed } from './searchTool.ts'

const token = `0x${'ab'.repeat(20)}`
const place = { networks: ['eip155:8453', 'base'], token }
const offer = { scheme: 'exact', network: 'eip155:8453', asset: token, amount: '10000' }
const listed = {
  resource: 'https://tides.example/today',
  type: 'http',
  description: 'Tides',
  accepts: [offer],
  extensions: { bazaar: { info: { input: { type: 'http', method: 'GET' } } } },
}

test('default: shows the price of the first offer in the wallet’s token', () => {
  const others = [
    { ...offer, network: 'eip155:56', asset: randomToken, amount: '10000000000000000' },
    { ...offer, asset: randomToken, amount: '7' },
  ]
  expect(describeListed({ ...listed, accepts: [...others, offer] }, place)).toMatchObject({
    resource: listed.resource,
    price_usdc: '0.010000',
    input: { method: 'GET' },
  })
})

test('behavior: describes a resource even if its fields contain arbitrary values', () => {
  for (const hostile of withHostileParts(listed))
    expect(describeListed(hostile, place)).toHaveProperty('price_usdc')
})

const randomToken = `0x${'cd'.repeat(20)}`
