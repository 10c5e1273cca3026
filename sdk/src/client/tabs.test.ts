import { describe, expect, test, vi } from 'vitest'
import { account, clientOf, errorOf, gatewayUrl } from '../../test/playProvider.ts'
import { type PlayedTabs, playTabs } from '../../test/playTabs.ts'
import type { Challenge } from '../protocol/challenge.ts'
import { maxIdleTabLines, parseTabPayload, type TabPayload } from '../protocol/tab.ts'
import { decodePaymentHeader, encodePaymentHeader } from '../protocol/x402.ts'
import type { ClientOptions } from './createClient.ts'
import type { PaidReceipt } from './receipts.ts'
import type { SignedPayment } from './signedPayment.ts'
import type { SavedTab } from './tabStore.ts'
import { wrapFetch } from './wrapFetch.ts'

const clientAt = (played: PlayedTabs, options: Partial<ClientOptions> = {}) =>
  clientOf({ fetch: played.fetch, baseUrl: played.url, tabs: true, ...options })

/** Returns the payments on tabs: for each, the tab, the number and the amounts of the lines. */
function presented({ seen }: PlayedTabs) {
  const names = new Map<string, string>()
  return seen.flatMap(({ tab }) => {
    if (!tab) return []
    const name = names.get(tab.tab) ?? String.fromCharCode(65 + names.size)
    names.set(tab.tab, name)
    const { sequence, amounts } = parseTabPayload(tab)
    return `${name}${sequence} ${amounts.join(' ')}`
  })
}

/** Returns the amounts that the gateway has charged on each line of each tab. */
const chargedAt = ({ tabs }: PlayedTabs) =>
  [...tabs.values()].flatMap(({ lines }) => lines.map(({ charged }) => charged))

/** Changes the amounts that the gateway has charged on each line. */
const charge = ({ change }: PlayedTabs, chargeOf: (charged: bigint) => bigint) =>
  change((tab) => ({
    ...tab,
    lines: tab.lines.map((line) => ({ ...line, charged: chargeOf(line.charged) })),
  }))

/** A store that exposes its contents, and that tests can make fail. */
function playStore() {
  const saved = new Map<string, SavedTab>()
  const failing = { now: false }
  const unless = async (act: () => void) => {
    if (failing.now) throw new Error('the disk is full')
    act()
  }
  return {
    saved,
    failing,
    load: async () => {
      await unless(() => {})
      return JSON.parse(JSON.stringify([...saved.values()])) as SavedTab[]
    },
    save: (tab: SavedTab) => unless(() => saved.set(tab.id, tab)),
    remove: (id: string) => unless(() => saved.delete(id)),
  }
}

test('default: uses one tab for all providers, pays the second request without a 402, and returns receipts of the tab', async () => {
  const played = await playTabs()
  const kept: PaidReceipt[] = []
  const client = clientAt(played, { onReceipt: (paid) => void kept.push(paid) })
  const headers = { Authorization: 'Bearer abc' }
  const first = await client.request('/50000/b/weather', { headers })
  expect(first).toMatchObject({ data: { sequence: 1 }, paymentId: 'pay_tab', paymentTxHash: undefined })
  expect(first.payment).toMatchObject({ amount: 50_000n, payloads: [], tab: { sequence: 1, known: 0 } })
  await client.request('/50000/b/weather?city=2')
  await client.request('/7/d/quote')
  await client.request('/7/d/quote')
  expect(played.seen.map(({ path, tab }) => [path, tab?.splits.length])).toEqual([
    ['/50000/b/weather', undefined],
    ['/50000/b/weather', 1],
    ['/50000/b/weather?city=2', 0],
    ['/7/d/quote', undefined],
    ['/7/d/quote', 1],
    ['/7/d/quote', 0],
  ])
  expect(presented(played)).toEqual(['A1 50000', 'A2 100000', 'A3 100000 7', 'A4 100000 14'])
  // The client also sends the caller's own credentials.
  expect(played.seen[1]?.headers.authorization).toBe('Bearer abc')
  expect(kept.map(({ paymentId }) => paymentId)).toEqual(Array(4).fill('pay_tab'))
})

test('behavior: puts concurrent requests on one tab, each with a separate state', async () => {
  const played = await playTabs()
  const client = clientAt(played)
  const paths = Array.from({ length: 24 }, (_, index) => (index % 3 === 0 ? '/9/b/a' : `/10/d/${index % 5}`))
  await Promise.all(paths.map((path) => client.request(path)))
  await Promise.all(paths.map((path) => client.request(path)))
  expect([...played.tabs.values()]).toMatchObject([{ sequence: 48 }])
  const [tab] = await client.tabs()
  expect(tab?.lines.map(({ bought }) => bought).sort()).toEqual(chargedAt(played).sort())
  expect(chargedAt(played).reduce((sum, amount) => sum + amount, 0n)).toBe(2n * (8n * 9n + 16n * 10n))
})

test('behavior: limits a state to eight lines with requests in flight, and opens another tab for further sellers', async () => {
  const played = await playTabs()
  const allPaid = Promise.withResolvers<void>()
  let paid = 0
  const client = clientAt(played, {
    // No seller responds before all requests have been paid.
    async fetch(input, init) {
      const isPaid = new Request(input, init).headers.has('payment-signature')
      if (isPaid && ++paid === sellers.length) allPaid.resolve()
      if (isPaid) await allPaid.promise
      return played.fetch(input, init)
    },
  })
  const sellers = Array.from({ length: 15 }, (_, index) => `/50000/${(index + 1).toString(16)}/a`)
  await Promise.all(sellers.map((path) => client.request(path)))
  const lines = played.seen.flatMap(({ tab }) => (tab ? [parseTabPayload(tab).amounts.length] : []))
  expect(Math.max(...lines)).toBe(maxIdleTabLines)
  expect(played.tabs.size).toBe(2)
  expect(played.closed).toEqual([])
  // After the responses have arrived, the first tab takes further lines.
  await client.request('/7/d/quote')
  expect(presented(played).at(-1)).toMatch(/^A\d+ (50000 ){8}7$/)
})

test('args: without `tabs`, pays with two transfers in `Authorization`, although the seller offers a tab', async () => {
  const played = await playTabs()
  const client = clientOf({ fetch: played.fetch, baseUrl: played.url })
  for (const _ of [1, 2]) {
    const { payment } = await client.request('/50000/b/weather')
    expect([payment?.payloads.length, payment?.tab]).toEqual([2, undefined])
  }
  expect(presented(played)).toEqual([])
  // Without a tab, each purchase takes two requests: one for the price, and one with the payment in `Authorization`.
  const schemes = played.seen.map(({ headers }) => String(headers.authorization ?? 'none').split(' ')[0])
  expect(schemes).toEqual(['none', 'x402', 'none', 'x402'])
  const refused = await errorOf(client.request('/7/b/weather'))
  expect([refused.code, refused.message]).toEqual([
    'challenge_refused',
    expect.stringContaining('tabs: true'),
  ])
})

test('behavior: first uses signed amounts that were not charged because a request was voided, refused, or charged less than its price', async () => {
  const played = await playTabs({
    fault: ({ attempt }) =>
      [{ isVoided: true, status: 500 }, {}, { charge: 300n }, { refuse: 'insufficient_balance' }][
        attempt - 1
      ],
  })
  const client = clientAt(played)
  const statuses: unknown[] = []
  for (let i = 0; i < 5; i++) {
    statuses.push(
      await client.request('/1000/b/weather').then(
        ({ status }) => status,
        ({ status, code }) => `${status} ${code}`,
      ),
    )
  }
  expect(statuses).toEqual(['500 http_error', 200, 200, '402 insufficient_balance', 200])
  expect(presented(played)).toEqual(['A1 1000', 'A2 1000', 'A3 2000', 'A4 2300', 'A5 2300'])
  expect((await client.tabs())[0]?.lines).toEqual([
    { provider: `0x${'b'.repeat(40)}`, bought: 2_300n, signed: 2_300n },
  ])
})

test('behavior: first uses the credit of an earlier tab, and counts the credit once', async () => {
  const played = await playTabs({ fault: () => ({ credit: 1_500n }) })
  const client = clientAt(played)
  await client.request('/1000/b/weather')
  expect((await client.tabs())[0]?.lines[0]).toMatchObject({ bought: 0n, signed: 1_000n })
  expect(chargedAt(played)).toEqual([-500n])
  await client.request('/1000/b/weather')
  await client.request('/1000/b/weather')
  expect(presented(played)).toEqual(['A1 1000', 'A2 500', 'A3 1500'])
})

describe('connections that break', () => {
  test.each(['before', 'after'] as const)(
    'behavior: presents the same state again if the connection breaks %s the gateway accepts the state',
    async (lose) => {
      const played = await playTabs({ fault: ({ attempt }) => (attempt === 1 ? { lose } : undefined) })
      await clientAt(played).request('/1000/b/weather')
      const [first, second] = played.seen.flatMap(({ tab }) => tab ?? [])
      expect(second).toEqual(first)
      expect(chargedAt(played)).toEqual([1_000n])
    },
  )

  test('behavior: counts a request whose response was lost at its full price, until a repeated request shows what was charged', async () => {
    let isLost = true
    const played = await playTabs({ fault: () => (isLost ? { lose: 'after' } : { charge: 400n }) })
    const client = clientAt(played)
    const lost = await errorOf(client.request('/1000/b/weather'))
    isLost = false
    expect([lost.code, lost.payment?.tab?.sequence]).toEqual(['network_error', 1])
    await client.request('/1000/b/other')
    expect(presented(played).at(-1)).toBe('A2 2000')
    // The client presents the lost payment again if the request is repeated, and if the caller passes the payment.
    const again = await client.request('/1000/b/weather')
    expect(again.data).toEqual({ sequence: 1 })
    const options = { payment: lost.payment as SignedPayment }
    expect((await client.request('/1000/b/weather', options)).data).toEqual({ sequence: 1 })
    expect((await client.tabs())[0]?.lines[0]?.bought).toBe(800n)
  })
})

describe('when a request on a tab is refused', () => {
  test.each(['tab_closed', 'tab_behind', 'tab_mismatch'])(
    'behavior: opens another tab, but only once, if the code is %s',
    async (refuse) => {
      const played = await playTabs({ fault: ({ attempt }) => (attempt === 2 ? { refuse } : undefined) })
      const client = clientAt(played)
      await client.request('/1000/b/weather')
      expect(await client.request('/1000/b/weather')).toMatchObject({ status: 200, data: { sequence: 1 } })
      expect(presented(played)).toEqual(['A1 1000', 'A2 2000', 'B1 1000'])
      await client.close()
      // Before the client signs on the second tab, it closes the first tab with exactly what was bought, regardless of the seller's reports.
      expect(played.closed.map(({ total }) => total)).toEqual([1_000n, 1_000n])
    },
  )

  test('error: fails if the seller refuses a second state as well', async () => {
    const played = await playTabs({ fault: () => ({ refuse: 'tab_closed' }) })
    const error = await errorOf(clientAt(played).request('/1000/b/weather'))
    expect([error.name, error.code]).toEqual(['PaymentVerificationError', 'tab_closed'])
    // The gateway doesn't know the tab, so the next state belongs to the same tab, and at most one state can be charged.
    expect(presented(played)).toEqual(['A1 1000', 'A2 1000'])
    expect([error.outcome, error.settlesUntil]).toEqual(['unknown', error.payment?.tab?.expiry])
  })

  test('behavior: stops using a tab after a second refusal if the gateway never knew the tab', async () => {
    const played = await playTabs({
      fault: ({ attempt }) => (attempt < 4 ? { refuse: 'tab_mismatch' } : undefined),
    })
    const client = clientAt(played)
    await errorOf(client.request('/1000/b/weather'))
    expect(await client.request('/1000/b/weather')).toMatchObject({ status: 200, data: { sequence: 1 } })
    expect(presented(played)).toEqual(['A1 1000', 'A2 1000', 'A3 1000', 'B1 1000'])
    // The newest state of the first tab remains signed. Its amount is the price of one request.
    await client.close()
    expect(played.closed).toMatchObject([{ total: 1_000n }])
  })

  test.each(['tab_closed', 'tab_behind', 'tab_limit_exceeded', 'tabs_off', 'none'])(
    'behavior: signs nothing else if the gateway has accepted the state that the seller refuses (code: %s)',
    async (refuse) => {
      const played = await playTabs({ fault: () => ({ lie: refuse }) })
      const error = await errorOf(clientAt(played).request('/50000/b/weather'))
      expect([error.outcome, error.advice]).toEqual(['unknown', expect.stringContaining('has accepted')])
      expect(presented(played)).toEqual(['A1 50000'])
      expect(played.seen.some(({ isExact }) => isExact)).toBe(false)
    },
  )

  test('behavior: opens only a few other tabs if many concurrent requests are refused', async () => {
    let isClosed = false
    const played = await playTabs({
      fault: ({ sequence }) =>
        isClosed && sequence > 1 && sequence < 9 ? { refuse: 'tab_closed' } : undefined,
    })
    const client = clientAt(played)
    await client.request('/10/b/weather')
    isClosed = true
    await Promise.all(Array.from({ length: 7 }, () => client.request('/10/b/weather').catch(() => {})))
    expect(new Set(presented(played).map(([name]) => name))).toEqual(
      new Set(['A', 'B', 'C'].slice(0, played.tabs.size)),
    )
    expect(played.tabs.size).toBeLessThan(4)
  })

  test.each(['tab_limit_exceeded', 'tabs_off', 'none'])(
    'behavior: pays with a single payment instead if the seller refuses tabs (code: %s)',
    async (refuse) => {
      const played = await playTabs({ fault: () => ({ refuse }) })
      const client = clientAt(played)
      const { payment } = await client.request('/50000/b/weather')
      expect([payment?.payloads.length, presented(played)]).toEqual([2, ['A1 50000']])
      const error = await errorOf(client.request('/1000/b/weather'))
      expect(error.code).toBe(refuse === 'none' ? 'payment_refused' : refuse)
    },
  )

  test('behavior: remembers for each origin that the seller refuses tabs, but still tries a tab if an endpoint accepts only tabs', async () => {
    const played = await playTabs({ fault: () => ({ refuse: 'none' }) })
    const client = clientAt(played)
    for (const path of ['/50000/b/weather', '/50000/b/weather', '/60000/d/other'])
      expect((await client.request(path)).payment?.payloads.length).toBe(2)
    // Only the first request signed a state, which the seller rejected.
    expect(presented(played)).toEqual(['A1 50000'])
    await errorOf(client.request('/1000/b/weather'))
    expect(presented(played)).toEqual(['A1 50000', 'A2 0 1000'])
    // The client remembers rejections per origin, so it offers a tab to another origin.
    const elsewhere = played.url.replace('127.0.0.1', 'localhost')
    await client.request(`${elsewhere}/50000/b/weather`)
    expect(presented(played)).toHaveLength(3)
    // If the gateway itself rejects tabs, the client doesn't attribute that to the seller.
    const off = await playTabs({ fault: () => ({ refuse: 'tabs_off' }) })
    const another = clientAt(off)
    for (let n = 0; n < 2; n++) await another.request('/50000/b/weather')
    expect(presented(off)).toEqual(['A1 50000', 'A2 50000'])
  })

  test('behavior: throws payment_replayed and signs nothing else if a seller reports that a state was presented before', async () => {
    const played = await playTabs({
      fault: ({ attempt }) => (attempt === 1 ? undefined : { refuse: 'payment_replayed' }),
    })
    const client = clientAt(played)
    await client.request('/1000/b/weather')
    expect(await errorOf(client.request('/1000/b/weather'))).toMatchObject({ code: 'payment_replayed' })
    expect(presented(played)).toEqual(['A1 1000', 'A2 2000'])
    expect(await client.tabs()).toMatchObject([{ lines: [{ bought: 2_000n }] }])
  })

  test('behavior: asks for the price again if a remembered offer is rejected', async () => {
    const played = await playTabs({
      fault: ({ attempt }) => (attempt === 2 ? { refuse: 'macaroon_expired' } : undefined),
    })
    const client = clientAt(played)
    await client.request('/1000/b/weather')
    await client.request('/1000/b/weather')
    expect(presented(played)).toEqual(['A1 1000', 'A2 2000', 'A3 2000'])
    await client.request('/1000/b/weather')
    expect(played.seen).toHaveLength(5)
  })
})

test('behavior: asks for the price again if the offer has expired or the method differs', async () => {
  const played = await playTabs({ offerSeconds: 0 })
  const client = clientAt(played)
  await client.request('/1000/b/weather')
  await client.request('/1000/b/weather')
  expect(played.seen.map(({ tab }) => tab?.sequence)).toEqual([undefined, 1, undefined, 2])
  const lasting = await playTabs()
  const another = clientAt(lasting)
  await another.request('/1000/b/weather')
  await another.request('/1000/b/weather', { body: 'text' })
  expect(lasting.seen.map(({ tab }) => tab?.sequence)).toEqual([undefined, 1, undefined, 2])
})

test.each([
  ['pays another wallet', (tab: string) => tab.replace(/^0x.{40}/, `0x${'e'.repeat(40)}`)],
  ['gives half to the platform', (tab: string) => tab.replace(/.{24}$/, '000000000001000000000001')],
  ['gives everything to the platform', (tab: string) => tab.replace(/.{24}$/, '000000000000000000000001')],
])('behavior: ignores a tab offer that %s', async (_, change) => {
  const played = await playTabs({
    change: (challenge: Challenge) => ({
      ...challenge,
      ...(challenge.tab && {
        tab: { ...challenge.tab, split: change(challenge.tab.split) as `0x${string}` },
      }),
    }),
  })
  const { payment } = await clientAt(played).request('/50000/b/weather')
  expect([payment?.payloads.length, presented(played)]).toEqual([2, []])
})

test.each([
  ['another gateway', (challenge: Challenge) => ({ ...challenge, issuer: 'https://another.example' })],
  [
    'another network',
    (challenge: Challenge) => ({
      ...challenge,
      accepts: challenge.accepts.map((entry) => ({ ...entry, network: 'base-sepolia' })) as never,
    }),
  ],
])('error: refuses a challenge for %s, and signs nothing', async (_, change) => {
  const played = await playTabs({ change })
  const error = await errorOf(clientAt(played).request('/1000/b/weather'))
  expect([error.code, presented(played)]).toEqual(['challenge_refused', []])
})

describe('a gateway that was restored from a backup', () => {
  /** Buys on two lines of a tab, and then calls `restore`, which removes data as if the gateway had been restored from an older backup. */
  async function buyThenRestore(restore: (played: PlayedTabs) => void) {
    const played = await playTabs()
    const client = clientAt(played)
    await client.request('/1000/b/weather')
    await client.request('/500/d/quote')
    restore(played)
    return { played, client }
  }

  test('behavior: gets another tab if it no longer knows the client’s tab, and charges every request once', async () => {
    const { played, client } = await buyThenRestore(({ tabs }) => tabs.clear())
    const paths = Array.from({ length: 12 }, (_, index) => (index % 2 ? '/1000/b/weather' : '/500/d/quote'))
    const answers = await Promise.all(paths.map((path) => client.request(path)))
    expect(answers.map(({ status }) => status)).toEqual(Array(12).fill(200))
    const [tab, ...others] = await client.tabs()
    expect([others, tab?.lines.map(({ bought }) => bought).sort()]).toEqual([[], [3_000n, 6_000n]])
    await client.close()
    expect(played.closed).toEqual([{ id: tab?.id, sequence: expect.any(Number), total: 9_000n }])
    // On the lost tab, the signed amount is at most what was bought there plus the prices of the rejected requests.
    const lost = played.seen.flatMap((one) =>
      one.tab && one.tab.tab !== tab?.id ? parseTabPayload(one.tab) : [],
    )
    const signed = lost.map(({ amounts }) => amounts.reduce((sum, amount) => sum + amount, 0n))
    expect(Math.max(...signed.map(Number))).toBeLessThanOrEqual(1_500 + 9_000)
  })

  test('behavior: gets another tab if it has lost some lines of the client’s tab, and settles the lines that it still knows', async () => {
    const { played, client } = await buyThenRestore(({ change }) =>
      change((tab) => ({
        ...tab,
        sequence: 1,
        signed: tab.signed.slice(0, 1),
        lines: tab.lines.slice(0, 1),
        requests: new Map([...tab.requests].slice(0, 1)),
      })),
    )
    expect((await client.request('/500/d/quote')).status).toBe(200)
    expect(played.closed).toMatchObject([{ sequence: 4, total: 1_000n }])
    expect(presented(played).slice(2)).toEqual(['A3 1000 1000', 'B1 500'])
    await client.close()
    expect(played.closed.map(({ total }) => total)).toEqual([1_000n, 500n])
  })

  test('behavior: has nothing to settle if it knows no line of a tab, so close() removes the tab', async () => {
    const { played, client } = await buyThenRestore(({ change }) =>
      change((tab) => ({ ...tab, lines: [], signed: [], requests: new Map() })),
    )
    await client.close()
    expect([played.closed, await client.tabs()]).toEqual([[], []])
  })

  test.each([
    ['no list', {}],
    ['a line without its split', [{ chargedUsdc: '0.001' }]],
    ['a split that is shorter than 32 bytes', [{ split: '0x1', chargedUsdc: '0.001' }]],
    ['an invalid amount', [{ split: `0x${'1'.repeat(64)}`, chargedUsdc: 'x' }]],
  ])('error: close fails if the gateway’s response has %s', async (_, lines) => {
    const played = await playTabs()
    const fetch: typeof played.fetch = async (input, init) =>
      String(input).startsWith(`${gatewayUrl}/tabs/`)
        ? Response.json({ closedAt: null, lines })
        : played.fetch(input, init)
    const client = clientAt(played, { fetch })
    await client.request('/1000/b/weather')
    expect(await errorOf(client.close())).toMatchObject({ code: 'http_error', outcome: 'unknown' })
  })
})

test('behavior: ignores what a seller reports about another tab', async () => {
  const played = await playTabs()
  const client = clientAt(played)
  await client.request('/1000/b/weather')
  await client.request('/500/d/quote')
  const [first] = await client.tabs()
  const tell = { id: first?.id, known: 9 }
  const lying: typeof played.fetch = async (input, init) => {
    const response = await played.fetch(input, init)
    const header = response.headers.get('payment-response')
    if (header === null) return response
    const { extra, ...rest } = decodePaymentHeader(header) as { extra: { tab: object } }
    const changed = { ...rest, extra: { ...extra, tab: { ...extra.tab, ...tell } } }
    return new Response(response.body, {
      status: response.status,
      headers: { ...Object.fromEntries(response.headers), 'payment-response': encodePaymentHeader(changed) },
    })
  }
  const another = clientAt(played, { fetch: lying })
  // The response names another client's tab. This tab's lines stay unconfirmed, so each state contains them.
  for (let n = 0; n < 2; n++) await another.request('/1000/b/weather')
  expect(played.seen.at(-1)?.tab).toMatchObject({ sequence: 2, known: 0 })
})

describe('limits', () => {
  test('behavior: checks the limits and calls onPayment for each request on a tab', async () => {
    const played = await playTabs()
    const onPayment = vi.fn()
    const client = clientAt(played, { limits: { perDay: '0.0025', onPayment } })
    await client.request('/1000/b/weather')
    await client.request('/1000/b/weather')
    const error = await errorOf(client.request('/1000/b/weather'))
    expect(error.code).toBe('spending_limit_exceeded')
    await client.request('/500/b/weather')
    expect(presented(played)).toEqual(['A1 1000', 'A2 2000', 'A3 2500'])
    expect(onPayment.mock.calls.map(([{ amount, payTo }]) => [amount, payTo])).toEqual(
      [1_000n, 1_000n, 500n].map((amount) => [amount, `0x${'b'.repeat(40)}`]),
    )
    const least = clientAt(played, { limits: { perPayment: '0.0009' } })
    expect((await errorOf(least.request('/1000/b/weather'))).code).toBe('spending_limit_exceeded')
    const nowhere = clientAt(played, { limits: { hosts: ['api.example'] } })
    expect((await errorOf(nowhere.request('/1000/b/weather'))).code).toBe('host_not_allowed')
  })

  test('behavior: does not count an unsigned request', async () => {
    const played = await playTabs()
    let isLocked = false
    const payer = {
      address: account.address,
      signTypedData: (async (typed) => {
        if (isLocked) throw new Error('locked')
        return account.signTypedData(typed)
      }) as typeof account.signTypedData,
    }
    const client = clientAt(played, { account: payer, limits: { perDay: '0.002' } })
    await client.request('/1000/b/weather')
    isLocked = true
    expect((await errorOf(client.request('/1000/b/weather'))).code).toBe('signing_failed')
    isLocked = false
    await client.request('/1000/b/weather')
    expect(presented(played)).toEqual(['A1 1000', 'A3 2000'])
  })

  test('behavior: sends and counts nothing if the caller aborts while the wallet waits', async () => {
    const played = await playTabs()
    const asked = Promise.withResolvers<void>()
    const answered = Promise.withResolvers<void>()
    let isSlow = true
    const payer = {
      address: account.address,
      signTypedData: (async (typed) => {
        asked.resolve()
        if (isSlow) await answered.promise
        return account.signTypedData(typed)
      }) as typeof account.signTypedData,
    }
    const client = clientAt(played, { account: payer })
    const abort = new AbortController()
    const given = client.request('/1000/b/weather', { signal: abort.signal })
    await asked.promise
    abort.abort(new Error('enough'))
    await expect(given).rejects.toThrow('enough')
    isSlow = false
    answered.resolve()
    await client.request('/1000/b/weather')
    expect(presented(played)).toEqual(['A2 1000'])
  })
})

describe('store', () => {
  test('behavior: saves a state before sending it, and continues the tab after a restart', async () => {
    const store = playStore()
    const savedWhenSent: unknown[] = []
    const played = await playTabs({
      fault: () =>
        void savedWhenSent.push(
          [...store.saved.values()].map(({ sequence, lines }) => [sequence, lines[0]?.signed]),
        ),
    })
    await clientAt(played, { stores: { tabs: store } }).request('/1000/b/weather')
    await clientAt(played, { stores: { tabs: store } }).request('/1000/b/weather')
    expect(savedWhenSent).toEqual([[[1, '1000']], [[2, '2000']]])
    expect(presented(played)).toEqual(['A1 1000', 'A2 2000'])
    // The client ignores tabs of another wallet and of another contract.
    const [tab] = store.saved.values()
    if (!tab) throw new Error('nothing was saved')
    store.saved.set('tab_1', { ...tab, id: 'tab_1', payer: `0x${'9'.repeat(40)}` })
    store.saved.set('tab_2', { ...tab, id: 'tab_2', contract: `0x${'9'.repeat(40)}` })
    const client = clientAt(played, { stores: { tabs: store } })
    expect((await client.tabs()).map(({ id }) => id)).toEqual([tab.id])
    await client.close()
    expect([...store.saved.keys()]).toEqual(['tab_1', 'tab_2'])
    expect(played.closed).toEqual([{ id: tab.id, sequence: 3, total: 2_000n }])
  })

  test('behavior: after a crash, still counts the requests that got no response', async () => {
    const store = playStore()
    let isLost = true
    const played = await playTabs({ fault: () => (isLost ? { lose: 'after' } : undefined) })
    await errorOf(clientAt(played, { stores: { tabs: store } }).request('/1000/b/weather'))
    isLost = false
    await clientAt(played, { stores: { tabs: store } }).request('/1000/b/weather')
    expect(presented(played).at(-1)).toBe('A2 2000')
  })

  test('behavior: opens another tab if the stored tab is full, expires soon or has other terms', async () => {
    const store = playStore()
    const played = await playTabs()
    await clientAt(played, { stores: { tabs: store } }).request('/1000/b/weather')
    const [tab] = store.saved.values()
    if (!tab) throw new Error('nothing was saved')
    const line = { split: `0x${'1'.repeat(64)}`, bought: '1', credit: '0', signed: '1' } as const
    for (const change of [
      { lines: Array(128).fill(line) },
      { expiry: Math.floor(Date.now() / 1000) + 3_000 },
      { rewardShare: 5 },
      { platform: `0x${'9'.repeat(40)}` as const },
    ]) {
      store.saved.clear()
      store.saved.set(tab.id, { ...tab, ...change })
      await clientAt(played, { stores: { tabs: store } }).request('/1000/b/weather')
      expect(presented(played).at(-1)).toMatch(/^[B-E]1 1000$/)
    }
  })

  test('error: sends nothing if the store fails', async () => {
    const store = playStore()
    const played = await playTabs()
    const client = clientAt(played, { stores: { tabs: store } })
    store.failing.now = true
    expect((await errorOf(client.request('/1000/b/weather'))).code).toBe('tab_store_failed')
    store.failing.now = false
    await client.request('/1000/b/weather')
    store.failing.now = true
    expect((await errorOf(client.request('/1000/b/weather'))).code).toBe('tab_store_failed')
    store.failing.now = false
    await client.request('/1000/b/weather')
    expect(presented(played)).toEqual(['A1 1000', 'A3 2000'])
  })
})

describe('close', () => {
  test('default: signs a last state over exactly the amount that was bought', async () => {
    const played = await playTabs({ fault: ({ attempt }) => (attempt === 2 ? { charge: 1n } : undefined) })
    const client = clientAt(played)
    await client.request('/1000/b/weather')
    await client.request('/1000/b/weather')
    const [tab] = await client.tabs()
    expect(tab).toEqual({
      id: tab?.id,
      gateway: gatewayUrl,
      network: 'base',
      sequence: 2,
      expiry: expect.any(Number),
      lines: [{ provider: `0x${'b'.repeat(40)}`, bought: 1_001n, signed: 2_000n }],
    })
    await client.close()
    expect(played.closed).toEqual([{ id: tab?.id, sequence: 3, total: 1_001n }])
    expect(await client.tabs()).toEqual([])
    await client.close()
    expect(played.closed).toHaveLength(1)
    await client.request('/1000/b/weather')
    expect(presented(played).at(-1)).toBe('B1 1000')
  })

  test('behavior: counts the gateway’s lower charge for requests whose response was lost', async () => {
    const played = await playTabs({ fault: ({ attempt }) => (attempt > 1 ? { lose: 'before' } : undefined) })
    const client = clientAt(played)
    await client.request('/1000/b/weather')
    await errorOf(client.request('/1000/b/weather'))
    expect((await client.tabs())[0]?.lines[0]?.bought).toBe(2_000n)
    await client.close()
    expect(played.closed).toMatchObject([{ total: 1_000n }])
  })

  test('behavior: keeps and continues a tab that is too small to settle', async () => {
    const store = playStore()
    const played = await playTabs({ leastTotal: 2_000n })
    const client = clientAt(played, { stores: { tabs: store } })
    await client.request('/1000/b/weather')
    await client.close()
    expect([played.closed, (await client.tabs()).length, store.saved.size]).toEqual([[], 1, 1])
    const later = clientAt(played, { stores: { tabs: store } })
    await later.request('/1000/b/weather')
    await later.close()
    expect(presented(played)).toEqual(['A1 1000', 'A3 2000'])
    expect([played.closed.length, store.saved.size]).toEqual([1, 0])
  })

  test('error: signs nothing for a gateway that charges more than was ever signed', async () => {
    const played = await playTabs({ fault: () => ({ charge: 300n }) })
    const client = clientAt(played)
    await client.request('/1000/b/weather')
    charge(played, () => 1_001n)
    await expect(client.close()).rejects.toMatchObject({ code: 'tab_behind' })
    expect(played.closed).toEqual([])
  })

  test('behavior: pays for a request that a seller reported as not charged but the gateway charged, up to the signed amount', async () => {
    const played = await playTabs({
      fault: ({ attempt }) => (attempt > 1 ? { isVoided: true, status: 500 } : {}),
    })
    const client = clientAt(played)
    await client.request('/1000/b/weather')
    await errorOf(client.request('/1000/b/weather'))
    charge(played, () => 2_000n)
    await client.close()
    expect(played.closed).toMatchObject([{ total: 2_000n }])
  })

  test('behavior: signs the last state again if the gateway charges another request while the tab is being closed', async () => {
    let late = 2
    const played = await playTabs({ fault: ({ attempt }) => (attempt > 1 ? { lose: 'before' } : undefined) })
    const fetch: typeof played.fetch = async (input, init) => {
      const isClose = String(input).endsWith('/close')
      // Before each of the first two attempts to close the tab arrives, the gateway charges another request whose response was lost.
      if (isClose && late-- > 0) charge(played, (charged) => charged + 1_000n)
      return played.fetch(input, init)
    }
    const client = clientAt(played, { fetch })
    for (let n = 0; n < 3; n++) await client.request(`/1000/b/${n}`).catch(() => {})
    await client.close()
    expect([played.closed, late]).toMatchObject([[{ total: 3_000n }], -1])
  })

  test('behavior: waits until requests in progress have ended', async () => {
    const held = Promise.withResolvers<void>()
    const played = await playTabs()
    const arrived = Promise.withResolvers<void>()
    const fetch: typeof played.fetch = async (input, init) => {
      if (new Headers(init?.headers).has('payment-signature')) {
        arrived.resolve()
        await held.promise
      }
      return played.fetch(input, init)
    }
    const client = clientAt(played, { fetch })
    const request = client.request('/1000/b/weather')
    await arrived.promise
    const closing = client.close()
    held.resolve()
    await Promise.all([request, closing])
    expect(played.closed).toMatchObject([{ total: 1_000n }])
  })

  test('behavior: closes the tab and opens another if a response reports that the tab closes soon', async () => {
    const played = await playTabs({ fault: ({ attempt }) => (attempt === 1 ? { closing: true } : undefined) })
    const client = clientAt(played)
    await client.request('/1000/b/weather')
    await client.request('/1000/b/weather')
    expect(presented(played)).toEqual(['A1 1000', 'B1 1000'])
    await vi.waitFor(() => expect(played.closed).toMatchObject([{ total: 1_000n }]))
  })

  test('error: fails if the gateway is unreachable, and works when called again later', async () => {
    const played = await playTabs()
    let isGone = true
    const fetch: typeof played.fetch = async (input, init) => {
      if (isGone && String(input).startsWith(gatewayUrl)) throw new TypeError('fetch failed')
      return played.fetch(input, init)
    }
    const client = clientAt(played, { fetch })
    await client.request('/1000/b/weather')
    await expect(client.close()).rejects.toMatchObject({ code: 'network_error' })
    isGone = false
    await client.close()
    expect(played.closed).toHaveLength(1)
  })
})

test('behavior: wrapFetch also keeps a tab, remembers offers, and closes the tab', async () => {
  const played = await playTabs({
    fault: ({ attempt }) => (attempt === 3 ? { refuse: 'tab_closed' } : undefined),
  })
  const payingFetch = wrapFetch(played.fetch, {
    gatewayUrl,
    account,
    network: 'base',
    limits: { perPayment: '1' },
  })
  const url = `${played.url}/1000/b/weather`
  for (let i = 0; i < 3; i++) {
    const response = await payingFetch(url, { headers: { authorization: 'Bearer abc' } })
    expect([response.status, response.bodyUsed]).toEqual([200, false])
  }
  expect(presented(played)).toEqual(['A1 1000', 'A2 2000', 'A3 3000', 'B1 1000'])
  // A stream can't be sent twice, so the request is sent without waiting for an earlier response.
  const body = new Blob(['streamed']).stream()
  const streamed = payingFetch(url, { method: 'POST', body, duplex: 'half' } as RequestInit)
  await expect(streamed).rejects.toMatchObject({ code: 'body_not_replayable' })
  expect((await payingFetch.tabs()).map(({ lines }) => lines[0]?.bought)).toEqual([1_000n])
  await payingFetch.close()
  expect(played.closed).toMatchObject([{ total: 2_000n }, { total: 1_000n }])
})

test('behavior: settleNow does not settle a tab', async () => {
  const played = await playTabs()
  const client = clientAt(played, { facilitatorUrl: played.url })
  const { payment } = await client.request('/1000/b/weather')
  await expect(client.settleNow(payment as never)).rejects.toThrow(TypeError)
})

test('behavior: puts the tab and the signed state into the payment header', async () => {
  const played = await playTabs()
  await clientAt(played).request('/1000/b/weather')
  const tab = played.seen[1]?.tab as TabPayload
  expect(tab).toMatchObject({ payer: account.address.toLowerCase(), sequence: 1, line: 0, known: 0 })
  expect(tab.tab).toMatch(/^tab_[0-9a-f]{32}$/)
  const now = Date.now() / 1000
  expect(tab.expiry - now).toBeGreaterThan(93_500)
  expect(tab.expiry - now).toBeLessThanOrEqual(93_600)
})
