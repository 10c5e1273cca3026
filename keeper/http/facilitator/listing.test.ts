import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { withHostileParts } from '../../../test/support/hostileJson.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { createListings } from './listing.ts'
import { Refused } from './reasons.ts'
import { type FacilitatorRequest, parseRequest } from './request.ts'

// A payment's description of its resource is untrusted input. It is read after the money has moved, so reading it must never throw.

const sql = await useDatabase()
const network = networks['base-sepolia']
const usdc = network.usdc as `0x${string}`
const served = [{ network, token: usdc } as ServedNetwork]
const payTo = randomHex(20)
const payload = {
  signature: randomHex(65),
  authorization: {
    from: randomHex(20),
    to: payTo,
    value: '10000',
    nonce: randomHex(32),
    validAfter: '0',
    validBefore: '4102444800',
  },
}
const input = { type: 'http', method: 'POST', bodyType: 'json', body: { sea: 'Baltic' } }
const bodies = {
  'x402 v2': {
    x402Version: 2,
    paymentPayload: {
      x402Version: 2,
      accepted: { scheme: 'exact', network: network.caip2 },
      payload,
      resource: {
        url: 'https://tides.example/',
        description: 'Tides',
        mimeType: 'application/json',
        serviceName: 'Tides',
        tags: ['sea'],
        iconUrl: 'https://tides.example/icon.png',
      },
      extensions: { bazaar: { info: { input }, schema: { type: 'object' } } },
    },
    paymentRequirements: {
      scheme: 'exact',
      network: network.caip2,
      asset: usdc,
      payTo,
      amount: '10000',
      maxTimeoutSeconds: 60,
    },
  },
  'x402 v1': {
    x402Version: 1,
    paymentPayload: { x402Version: 1, scheme: 'exact', network: network.name, payload },
    paymentRequirements: {
      scheme: 'exact',
      network: network.name,
      asset: usdc,
      payTo,
      maxAmountRequired: '10000',
      resource: 'https://tides.example/',
      description: 'Tides',
      mimeType: 'application/json',
      maxTimeoutSeconds: 60,
      outputSchema: { input: { ...input, discoverable: true }, output: { tide: 'low' } },
    },
  },
}

function read(body: unknown): FacilitatorRequest | undefined {
  try {
    return parseRequest(served, body)
  } catch (error) {
    if (error instanceof Refused) return undefined
    throw error
  }
}

test.each(Object.entries(bodies))(
  'behavior: in an %s request, any value in any field is either refused before payment or does not affect the payment',
  async (_, body) => {
    const listings = createListings(sql, { log: { warn: () => {} }, now: Date.now })
    const requests = [...withHostileParts(body)].flatMap((one) => read(one) ?? [])
    expect(requests.length).toBeGreaterThan(50)
    for (const request of requests) {
      listings.announce(request, null)
      await listings.list(request, null)
    }
    const listed = await sql`select resource from declared_resource where pay_to = ${payTo}`
    expect(listed).toContainEqual({ resource: 'https://tides.example/' })
  },
)

test('behavior: lists a changed price immediately, but updates the entry of an unchanged price at most once a minute', async () => {
  const listings = createListings(sql, { log: { warn: () => {} }, now: Date.now })
  const seller = randomHex(20)
  const pay = async (value: string) => {
    const { paymentPayload, paymentRequirements, ...rest } = bodies['x402 v2']
    const authorization = { ...payload.authorization, to: seller, value }
    const request = parseRequest(served, {
      ...rest,
      paymentPayload: { ...paymentPayload, payload: { ...payload, authorization } },
      paymentRequirements: { ...paymentRequirements, payTo: seller, amount: value },
    })
    await listings.list(request, null)
    const [row] = await sql<{ amount: bigint; at: string }[]>`
      select amount, settled_at::text as at from declared_resource where pay_to = ${seller}`
    return row
  }
  const first = await pay('10000')
  expect(await pay('10000')).toEqual(first)
  expect((await pay('7000'))?.amount).toBe(7_000n)
})
