import { createServer } from 'node:http'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { encodePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { encodeSplit, splitterAddress } from '@tollkeeper/sdk/protocol/splitter'
import { toWord } from '@tollkeeper/sdk/protocol/tab'
import { describe, expect, test } from 'vitest'
import { listen, urlOf } from '../../sdk/test/serve.ts'
import { fetchPending } from './pendingQueue.ts'

const address = (digit: string) => `0x${digit.repeat(40)}` as const
const now = new Date('2026-11-23T12:00:00Z')
const seconds = BigInt(now.getTime() / 1000)
const platform = address('f')
const served = {
  network: networkByName('base'),
  token: address('c'),
  deployment: {
    batchSettlement: address('5'),
    splitterFactory: address('6'),
    tabSettlement: address('7'),
  },
} as unknown as ServedNetwork

const authorization = {
  from: address('1'),
  to: address('2'),
  value: 10_000n,
  validAfter: 0n,
  validBefore: seconds + 3_600n,
  nonce: `0x${'3'.repeat(64)}`,
  signature: `0x${'4'.repeat(130)}`,
} as const

/** Returns the items that a keeper reads from a gateway that publishes this batch. */
async function fetchItems(batch: object, change: object = {}) {
  const answer = {
    batches: [{ feeRecipient: platform, trigger: 'count', payments: [], ...batch }],
    batchSettlement: address('5'),
    tabSettlement: address('7'),
    token: address('c'),
    ...change,
  }
  const server = createServer((_, response) => response.end(JSON.stringify(answer)))
  await listen(server)
  const [pending] = await fetchPending(urlOf(server), served, 0, now)
  return pending?.items ?? []
}

describe('payments', () => {
  const items = (...payloads: Partial<SignedAuthorization>[]) =>
    fetchItems({ payments: [payloads.map((change) => encodePayload({ ...authorization, ...change }))] })

  test('default: become items with one or two open authorizations', async () => {
    expect(await items({})).toEqual([
      { position: 0, paymentId: null, provider: { authorization, state: 'open' }, fee: null },
    ])
    const [pair] = await items({}, { to: platform, value: 500n })
    expect(pair?.fee).toMatchObject({ authorization: { to: platform, value: 500n }, state: 'open' })
  })

  test.each([
    [15n, 0],
    [16n, 1],
  ])(
    'behavior: become items only if they are valid long enough to be mined (valid for another %d s)',
    async (left, count) => {
      const validBefore = seconds + left
      expect(await items({ validBefore })).toHaveLength(count)
      expect(await items({}, { to: platform, validBefore })).toHaveLength(count)
    },
  )

  test.each([
    [-1n, 1],
    [0n, 0],
  ])(
    'behavior: become items only once they are valid (`validAfter` is now plus %d s)',
    async (offset, count) => {
      const validAfter = seconds + offset
      expect(await items({ validAfter })).toHaveLength(count)
      expect(await items({}, { to: platform, validAfter })).toHaveLength(count)
    },
  )

  test('error: are left out if their two authorizations have different payers', async () => {
    expect(await items({}, { from: address('9') })).toEqual([])
  })

  test('behavior: name the terms of a splitter only if the splitter’s address results from these terms', async () => {
    const terms = { provider: address('2'), platform, providerShare: 19n, platformShare: 1n }
    const to = splitterAddress({ ...terms, factory: address('6') })
    const payments = [[encodePayload({ ...authorization, to })]]
    const named = (shares: [string, string]) => ({
      payments,
      splitters: [{ address: to, provider: address('2'), shares }],
    })
    expect((await fetchItems(named(['19', '1'])))[0]?.splitter).toEqual(terms)
    expect((await fetchItems(named(['1', '19'])))[0]?.splitter).toBeUndefined()
  })
})

describe('tabs', () => {
  const split = encodeSplit({ provider: address('2'), providerShare: 9n, platformShare: 1n })
  const tabOf = (sequence: number, amount: string, to = address('7') as string) => ({
    payload: encodePayload({ ...authorization, to: to as typeof authorization.to }),
    sequence,
    rewardShare: 2_000,
    lines: [[toWord(split), amount]],
  })

  test('default: become items with their newest state, in whatever order the gateway lists the states', async () => {
    const states = [tabOf(1, '100'), tabOf(2, '200')]
    for (const tabs of [states, states.toReversed()]) {
      const items = await fetchItems({ tabs })
      expect(items).toMatchObject([{ tab: { sequence: 2, rewardShare: 2_000 } }])
    }
  })

  test('error: are left out if they don’t pay TabSettlement, or if their gateway uses a different TabSettlement', async () => {
    expect(await fetchItems({ tabs: [tabOf(1, '100', address('8'))] })).toEqual([])
    expect(await fetchItems({ tabs: [tabOf(1, '100')] }, { tabSettlement: address('8') })).toEqual([])
  })
})

test.each([
  ['token', { token: address('d') }],
  ['contract', { batchSettlement: address('d') }],
])('error: refuses a gateway with another %s', async (_, change) => {
  await expect(fetchItems({}, change)).rejects.toThrow('but this keeper settles')
})
