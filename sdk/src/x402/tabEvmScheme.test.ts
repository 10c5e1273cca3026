import { x402Client } from '@x402/core/client'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { wrapFetchWithPayment } from '@x402/fetch'
import { expect, test } from 'vitest'
import { account, gatewayUrl } from '../../test/playProvider.ts'
import { type PlayedTabs, playTabs } from '../../test/playTabs.ts'
import { parseTabPayload } from '../protocol/tab.ts'
import { keepTabs, TabEvmScheme, type TabSchemeOptions } from './index.ts'

// Uses the actual client of `@x402/core`, and `@x402/fetch`, which is built on it.

function open(played: PlayedTabs, options: TabSchemeOptions = { gatewayUrl }, client = new x402Client()) {
  client.register('eip155:*', new ExactEvmScheme(account))
  const tabs = keepTabs(client, account, { fetch: played.fetch, ...options })
  const payingFetch = wrapFetchWithPayment(played.fetch, client)
  return { tabs, client, get: (path: string) => payingFetch(`${played.url}${path}`) }
}

/** Returns for each payment the number and amounts of its tab, or `exact`. */
const ways = ({ seen }: PlayedTabs) =>
  seen.flatMap(({ tab, isExact }) =>
    tab ? `${tab.sequence} ${parseTabPayload(tab).amounts.join(' ')}` : isExact ? 'exact' : [],
  )

test('default: pays on one tab although the client also has the exact scheme, and closes the tab with what was bought', async () => {
  const played = await playTabs({ fault: ({ attempt }) => (attempt === 2 ? { charge: 5n } : undefined) })
  const { tabs, get } = open(played)
  for (const path of ['/50000/b/weather', '/7/d/quote', '/7/d/quote']) {
    expect((await get(path)).status).toBe(200)
  }
  expect(ways(played)).toEqual(['1 50000', '2 50000 7', '3 50000 12'])
  // The client doesn't repeat splits that the gateway has confirmed.
  expect(played.seen.flatMap(({ tab }) => tab?.splits.length ?? [])).toEqual([1, 1, 0])
  expect(await tabs.tabs()).toMatchObject([{ gateway: gatewayUrl, network: 'base', sequence: 3 }])
  await tabs.close()
  expect(played.closed).toMatchObject([{ total: 50_012n }])
  expect(await tabs.tabs()).toEqual([])
})

test('behavior: close() calls no gateway if none is configured', async () => {
  const played = await playTabs()
  const { tabs, get } = open(played, {})
  await get('/1000/b/weather')
  await tabs.close()
  expect([ways(played), played.closed, await tabs.tabs()]).toEqual([['1 1000'], [], []])
})

test.each(['tab_closed', 'tab_behind'])(
  'behavior: opens another tab and repeats the request if the seller refuses the request with %s',
  async (refuse) => {
    const played = await playTabs({ fault: ({ attempt }) => (attempt === 2 ? { refuse } : undefined) })
    const { get } = open(played)
    await get('/1000/b/weather')
    expect((await get('/1000/b/weather')).status).toBe(200)
    expect(ways(played)).toEqual(['1 1000', '2 2000', '1 1000'])
  },
)

test.each(['tab_closed', 'tabs_off'])(
  'behavior: signs nothing else if the gateway has accepted the state that the seller refuses (code: %s)',
  async (lie) => {
    const played = await playTabs({ fault: () => ({ lie }) })
    expect((await open(played).get('/50000/b/weather')).status).toBe(402)
    expect(ways(played)).toEqual(['1 50000'])
  },
)

test.each(['tabs_off', 'tab_limit_exceeded'])(
  'behavior: after a refusal with %s, pays the refused request and later requests with single payments',
  async (refuse) => {
    const played = await playTabs({ fault: () => ({ refuse }) })
    const { get } = open(played)
    expect((await get('/50000/b/weather')).status).toBe(200)
    expect((await get('/50000/b/weather')).status).toBe(200)
    expect(ways(played)).toEqual(['1 50000', 'exact', 'exact'])
    // This endpoint accepts only tabs, so it can't be paid with a single payment.
    expect((await get('/1000/b/weather')).status).toBe(402)
  },
)

test('behavior: does not count or repeat a request that is refused for another reason', async () => {
  const played = await playTabs({
    fault: ({ attempt }) => (attempt === 1 ? { refuse: 'insufficient_balance' } : undefined),
  })
  const { get } = open(played)
  expect((await get('/1000/b/weather')).status).toBe(402)
  await get('/1000/b/weather')
  expect(ways(played)).toEqual(['1 1000', '2 1000'])
})

test('behavior: applies spendControls to payments on tabs', async () => {
  const played = await playTabs()
  const client = new x402Client().setSpendControls({ maxAmountPerPayment: '$0.0005' })
  await expect(open(played, {}, client).get('/1000/b/weather')).rejects.toThrow(/spendControls/)
  expect(ways(played)).toEqual([])
})

test.each([
  ['another gateway', { gatewayUrl: 'https://another.example' }, {}],
  ['an invalid split', {}, { split: `0x${'b'.repeat(40)}000000000001000000000001` }],
  ['a reward of more than the whole fee', {}, { rewardShare: 10_001 }],
])('behavior: does not use a tab offer with %s', async (_, options, tab) => {
  const played = await playTabs({
    change: (challenge) =>
      challenge.tab ? { ...challenge, tab: { ...challenge.tab, ...(tab as object) } } : challenge,
  })
  const { get } = open(played, options)
  expect((await get('/50000/b/weather')).status).toBe(200)
  expect(ways(played)).toEqual(['exact'])
})

test.each([
  ['another contract', { payTo: `0x${'9'.repeat(40)}` }],
  ['another token', { asset: `0x${'9'.repeat(40)}` }],
  ['a network that isn’t in the table', { network: 'eip155:999999' }],
  ['an amount of 0', { amount: '0' }],
  ['a timeout of 0', { maxTimeoutSeconds: 0 }],
  ['no macaroon', { extra: {} }],
  ['another scheme', { scheme: 'upto' }],
])('error: refuses to sign for an offer with %s', async (_, change) => {
  const played = await playTabs()
  const asked = await fetch(`${played.url}/1000/b/weather`)
  const { accepts } = JSON.parse(atob(asked.headers.get('payment-required') ?? ''))
  const scheme = new TabEvmScheme(account)
  expect(scheme.preferTabs(2, accepts)).toEqual(accepts)
  expect((await scheme.createPaymentPayload(2, accepts[0])).payload).toMatchObject({ sequence: 1 })
  const refused = scheme.createPaymentPayload(2, { ...accepts[0], ...change })
  await expect(refused).rejects.toMatchObject({ code: 'challenge_refused' })
  await expect(scheme.createPaymentPayload(1, accepts[0])).rejects.toMatchObject({
    code: 'challenge_refused',
  })
})
