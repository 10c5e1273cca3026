import { createClient } from '@tollkeeper/sdk/client/createClient'
import { expect, test } from 'vitest'
import { type SellerKind, sellerKinds, useSellers } from './sellers.ts'

// URLs with long queries, such as those of searches and filters.

const sellers = useSellers()

const cases = sellerKinds.flatMap((kind) =>
  [2_100, 4_000, 7_000].map((length): [SellerKind, number] => [kind, length]),
)

async function newClient(tabs: boolean) {
  return createClient({
    gatewayUrl: sellers.state.url,
    network: 'localhost',
    account: await sellers.gateway.buyer(1_000_000n),
    usdcAddress: sellers.gateway.served.token,
    limits: { perPayment: '1' },
    tabs,
  })
}

test.each(cases)(
  'behavior: a seller with %s sells a URL with a query of %d characters',
  async (kind, length) => {
    const warnings: string[] = []
    const seller = await sellers.open(kind, { gate: { warn: (message) => warnings.push(message) } })
    const path = `/search?q=${'x'.repeat(length - 2)}`
    for (const tabs of [true, false]) {
      const { receipt } = await (await newClient(tabs)).request(`${seller.url}${path}`)
      expect(receipt).toBeTruthy()
    }
    expect(seller.served.map(({ url }) => url)).toEqual([path, path])
    expect(warnings).toEqual([])
  },
)

test.each(sellerKinds)(
  'error: a seller with %s answers 414 if a URL is too long, and names the limit',
  async (kind) => {
    const seller = await sellers.open(kind)
    const response = await fetch(`${seller.url}/search?q=${'x'.repeat(8_000)}`)
    expect(response.status).toBe(414)
    expect(await response.json()).toMatchObject({
      code: 'uri_too_long',
      detail: expect.stringContaining('at most 7930 characters'),
    })
  },
)
