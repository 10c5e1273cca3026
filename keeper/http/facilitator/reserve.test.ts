import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { expect, test } from 'vitest'
import type { HttpContext } from '../context.ts'
import type { FacilitatorRequest } from './request.ts'
import { reserve } from './reserve.ts'

const address = (digit: string) => `0x${digit.repeat(40)}` as const
const seconds = 1_800_000_000n
/** A context with only the parts that are needed to refuse a request by its terms. */
const context = { now: () => new Date(Number(seconds) * 1_000) } as HttpContext

const request: FacilitatorRequest = {
  version: 2,
  served: { token: address('c') } as ServedNetwork,
  network: 'eip155:8453',
  authorization: {
    from: address('1'),
    to: address('2'),
    value: 10_000n,
    validAfter: 0n,
    validBefore: seconds + 21n,
    nonce: `0x${'3'.repeat(64)}`,
    signature: `0x${'4'.repeat(130)}`,
  },
  asked: { asset: address('c'), payTo: address('2'), amount: '10000' },
  accepted: { scheme: 'exact', network: 'eip155:8453' },
  resource: 'https://api.example/weather',
  paymentIdentifier: null,
  declared: null,
  hash: '00',
}
const { authorization, asked, accepted } = request

test.each<[string, Partial<FacilitatorRequest>, RegExp]>([
  ['another scheme', { accepted: { ...accepted, scheme: 'upto' } }, /scheme must be exact/],
  ['another network', { accepted: { ...accepted, network: 'eip155:1' } }, /network must be/],
  ['another token', { asked: { ...asked, asset: address('d') } }, /asset on/],
  ['another recipient', { authorization: { ...authorization, to: address('9') } }, /must pay/],
  ['too little', { authorization: { ...authorization, value: 9_999n } }, /value must be/],
  ['too much', { authorization: { ...authorization, value: 10_001n } }, /value must be/],
  [
    'an amount of 0',
    { authorization: { ...authorization, value: 0n }, asked: { ...asked, amount: '0' } },
    /a payment of 0 cannot be settled/,
  ],
  [
    'an authorization that is not valid yet',
    { authorization: { ...authorization, validAfter: seconds + 1n } },
    /valid after/,
  ],
  [
    'an authorization that expires before it can be mined',
    { authorization: { ...authorization, validBefore: seconds + 20n } },
    /valid for another/,
  ],
])('error: reserves nothing for %s', async (_, change, message) => {
  const reserved = reserve(context, { ...request, ...change }, { providerId: null }, 'due')
  await expect(reserved).rejects.toThrow(message)
})
