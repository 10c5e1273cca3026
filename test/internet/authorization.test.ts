import { createClient } from '@tollkeeper/sdk/client/createClient'
import { wrapFetch } from '@tollkeeper/sdk/client/wrapFetch'
import { expect, test } from 'vitest'
import { type SellerKind, sellerKinds, useSellers } from './sellers.ts'

// A route that needs its own Authorization header as well as a payment.

const sellers = useSellers()
const authorization = 'Bearer of-the-route'

const cases = sellerKinds.flatMap((kind) => [true, false].map((tabs): [SellerKind, boolean] => [kind, tabs]))

test.each(cases)(
  'behavior: the client sends a payment and a Bearer token together to a seller with %s (tabs: %s)',
  async (kind, tabs) => {
    const seller = await sellers.open(kind, { usdcPerUnit: '2' })
    const options = {
      gatewayUrl: sellers.state.url,
      network: 'localhost',
      account: await sellers.gateway.buyer(10_000_000n),
      usdcAddress: sellers.gateway.served.token,
      limits: { perPayment: '2' },
      tabs,
      // If a request has an Authorization header, the client signs one authorization for both shares, whatever `split` says.
      split: 'separate',
    } as const
    const headers = { authorization }
    const { receipt } = await createClient(options).request(`${seller.url}/weather`, { headers })
    expect(receipt).toBeTruthy()
    const response = await wrapFetch(fetch, options)(`${seller.url}/weather`, { headers })
    expect([response.status, response.headers.has('service-receipt')]).toEqual([200, true])
    expect(seller.served.map((request) => request.headers.get('authorization'))).toEqual([
      authorization,
      authorization,
    ])
  },
)
