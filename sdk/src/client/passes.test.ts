import { recoverTypedDataAddress } from 'viem'
import { expect, test, vi } from 'vitest'
import { account } from '../../test/playProvider.ts'
import { encodeBase64url, encodeUtf8 } from '../protocol/bytes.ts'
import { type PassClaims, parsePassHeader, passProofData, passType } from '../protocol/pass.ts'
import { createHeldPasses } from './passes.ts'
import type { PassStore, SavedPass } from './passStore.ts'
import type { PaymentHeader } from './signedPayment.ts'
import { type Answer, startDeadline } from './transport.ts'

const start = 1_800_000_000
const url = 'https://api.example/feed?city=7'
const asked = { method: 'GET', url }
const jti = `pay_${'0'.repeat(32)}`

function passOf(change: Partial<PassClaims> = {}): string {
  const claims: PassClaims = {
    iss: 'https://gateway.example',
    jti,
    aud: 'https://api.example',
    iat: start,
    exp: start + 3_600,
    providerId: 'prov_1',
    endpointId: 'ep_1',
    boundTo: 'payer',
    payer: account.address.toLowerCase() as `0x${string}`,
    ...change,
  }
  const part = (json: object) => encodeBase64url(encodeUtf8(JSON.stringify(json)))
  return `${part({ alg: 'ES256', typ: passType })}.${part(claims)}.${'c'.repeat(86)}`
}

const answerOf = (
  headers: Record<string, string> = {},
  status = 200,
  body: unknown = null,
  from = url,
): Answer => ({
  url: from,
  status,
  headers: new Headers(headers),
  body,
})

const scope = { payer: account.address, network: 'base', gatewayUrl: 'https://gateway.example' }

function setUp(options: Partial<Parameters<typeof createHeldPasses>[0]> = {}) {
  let now = start
  const sent: PaymentHeader[] = []
  const signTypedData = vi.fn(account.signTypedData)
  const passes = createHeldPasses({
    payer: { ...account, signTypedData } as never,
    scope,
    log: () => {},
    now: () => now,
    ...options,
  })
  const present = (answer = answerOf(), at: { method: string; url: string } = asked, endpointId?: string) => {
    const send = async (header: PaymentHeader) => {
      sent.push(header)
      return answer
    }
    return passes.present({ asked: at, send, deadline: startDeadline() }, endpointId)
  }
  return {
    passes,
    present,
    sent,
    signTypedData,
    wait: (seconds: number) => {
      now += seconds
    },
  }
}

test('presents a pass at its route until the pass expires, and signs a new proof every ten minutes', async () => {
  const { passes, present, sent, signTypedData, wait } = setUp()
  expect(await present()).toBeUndefined()
  await passes.keep(asked, answerOf({ 'service-pass': passOf() }))
  await Promise.all([present(), present()])
  wait(500)
  await present()
  expect(signTypedData).toHaveBeenCalledTimes(1)
  const { jws, proof } = parsePassHeader(sent[0]?.value ?? '')
  expect([sent[0]?.name, jws]).toEqual(['service-pass', passOf()])
  const proven = { origin: 'https://api.example', pass: jti, expiresAt: start + 600 }
  const data = { ...passProofData(proven), signature: proof?.signature }
  expect(await recoverTypedDataAddress(data as never)).toBe(account.address)
  wait(100)
  await present()
  expect(signTypedData).toHaveBeenCalledTimes(2)
  wait(3_000)
  expect(await present()).toBeUndefined()
})

test('presents a pass only to its endpoint at its origin', async () => {
  const { passes, present, sent } = setUp()
  await passes.keep(
    asked,
    answerOf({ 'service-pass': passOf({ boundTo: 'bearer', payer: undefined as never }) }),
  )
  for (const [method, other] of [
    ['POST', url],
    ['GET', 'https://api.example/other'],
    ['GET', 'https://evil.example/feed'],
    ['GET', 'http://api.example/feed'],
  ] as const)
    expect(await present(answerOf(), { method, url: other })).toBeUndefined()
  expect(
    await present(answerOf(), { method: 'GET', url: 'https://evil.example/feed' }, 'ep_1'),
  ).toBeUndefined()
  expect(sent).toEqual([])
  // A 402 shows that another path belongs to the pass's endpoint. From then on, the client presents the pass at that path without asking for the
  // price first.
  const path = { method: 'GET', url: 'https://api.example/feed/2' }
  expect(await present(answerOf(), path, 'ep_1')).toMatchObject({ isOver: false })
  expect(await present(answerOf(), path)).toMatchObject({ isOver: false })
})

test.each<[string, Answer, boolean, boolean]>([
  ['keeps the pass after a successful response', answerOf(), false, true],
  ['keeps the pass after an error of the handler', answerOf({}, 500), false, true],
  ['forgets the pass after its last request', answerOf({ 'service-pass-left': '0' }), false, false],
  ['forgets a pass that was rejected as expired', answerOf({}, 402, { code: 'pass_expired' }), true, false],
  ['forgets a pass that was rejected as ended', answerOf({}, 402, { code: 'pass_ended' }), true, false],
  [
    'keeps a pass whose proof was rejected, because another pass would be rejected as well',
    answerOf({}, 402, { code: 'pass_proof_invalid' }),
    false,
    true,
  ],
])('%s', async (_, answer, isOver, isHeld) => {
  const { passes, present } = setUp()
  await passes.keep(asked, answerOf({ 'service-pass': passOf() }))
  expect(await present(answer)).toEqual({ answer, isOver })
  expect((await present()) !== undefined).toBe(isHeld)
})

test('ignores a value that is not a pass, and a pass from another origin than the requested origin', async () => {
  const { passes, present } = setUp()
  for (const text of ['junk', 'a.b.c', passOf({ exp: Number.MAX_SAFE_INTEGER })])
    await passes.keep(asked, answerOf({ 'service-pass': text }))
  await passes.keep(asked, answerOf({ 'service-pass': passOf() }, 200, null, 'https://evil.example/feed'))
  expect(await present()).toBeUndefined()
})

test('pays for the request if the payer does not sign the proof', async () => {
  const { passes, present, signTypedData } = setUp()
  await passes.keep(asked, answerOf({ 'service-pass': passOf() }))
  signTypedData.mockRejectedValueOnce(new Error('declined'))
  expect(await present()).toBeUndefined()
})

/** Creates a store in memory. Exposes its records by id. */
function memoryStore(change: Partial<PassStore> = {}) {
  const saved = new Map<string, SavedPass>()
  const store: PassStore = {
    load: async () => [...saved.values()].map((pass) => structuredClone(pass)),
    save: async (pass) => void saved.set(pass.id, structuredClone(pass)),
    remove: async (id) => void saved.delete(id),
    ...change,
  }
  return { store, saved }
}

const bearer = passOf({ boundTo: 'bearer', payer: undefined as never })

test('presents the stored pass at its route after a restart, with a new proof', async () => {
  const { store, saved } = memoryStore()
  const first = setUp({ store })
  await first.passes.keep(asked, answerOf({ 'service-pass': passOf() }))
  await first.present()
  const [record] = saved.values()
  expect(record).toMatchObject({ origin: 'https://api.example', route: 'GET https://api.example/feed' })
  expect(JSON.stringify(record)).not.toMatch(/proof|signature|city/)

  const again = setUp({ store })
  expect(await again.present()).toMatchObject({ isOver: false })
  const { jws, proof } = parsePassHeader(again.sent[0]?.value ?? '')
  expect([jws, proof !== undefined]).toEqual([passOf(), true])
  expect(again.signTypedData).toHaveBeenCalledTimes(1)
})

test.each<[string, (made: ReturnType<typeof setUp>) => unknown]>([
  [
    'has expired',
    async ({ present, wait }) => {
      wait(3_600)
      await present()
    },
  ],
  ['is used up', ({ present }) => present(answerOf({ 'service-pass-left': '0' }))],
  ['is refused as used up', ({ present }) => present(answerOf({}, 402, { code: 'pass_used_up' }))],
  ['has ended', ({ present }) => present(answerOf({}, 402, { code: 'pass_ended' }))],
])('a pass that %s is removed from the store', async (_, use) => {
  const { store, saved } = memoryStore()
  const made = setUp({ store })
  await made.passes.keep(asked, answerOf({ 'service-pass': bearer }))
  expect(saved.size).toBe(1)
  await use(made)
  expect(saved.size).toBe(0)
})

test('removes a pass from the store at startup if it expired while no client ran', async () => {
  const { store, saved } = memoryStore()
  await setUp({ store }).passes.keep(asked, answerOf({ 'service-pass': bearer }))
  const later = setUp({ store, now: () => start + 3_600 })
  expect(await later.present()).toBeUndefined()
  expect(saved.size).toBe(0)
})

test('replaces an endpoint’s pass in the store when the endpoint sells another pass', async () => {
  const { store, saved } = memoryStore()
  const { passes } = setUp({ store })
  const next = passOf({ jti: `pay_${'1'.repeat(32)}`, exp: start + 7_200 })
  for (const jws of [passOf(), next]) await passes.keep(asked, answerOf({ 'service-pass': jws }))
  expect([...saved.values()].map(({ jws }) => jws)).toEqual([next])
})

test('keeps a seller’s pass when another seller sends a copy of that pass', async () => {
  const { store, saved } = memoryStore()
  const { passes, present } = setUp({ store })
  await passes.keep(asked, answerOf({ 'service-pass': bearer }))
  const evil = { method: 'GET', url: 'https://evil.example/feed' }
  await passes.keep(evil, answerOf({ 'service-pass': bearer }, 200, null, evil.url))
  await present(answerOf({}, 402, { code: 'pass_ended' }), evil)
  expect([...saved.values()].map(({ origin }) => origin)).toEqual(['https://api.example'])
  expect(await setUp({ store }).present()).toMatchObject({ isOver: false })
})

test.each([
  ['wallet', { payer: `0x${'2'.repeat(40)}` as const }],
  ['network', { network: 'base-sepolia' }],
  ['gateway', { gatewayUrl: 'https://other.example' }],
])('a stored pass of another %s is neither presented nor removed', async (_, change) => {
  const { store, saved } = memoryStore()
  await setUp({ store }).passes.keep(asked, answerOf({ 'service-pass': bearer }))
  expect(await setUp({ store, scope: { ...scope, ...change } }).present()).toBeUndefined()
  expect(saved.size).toBe(1)
})

test.each<[string, (saved: SavedPass) => unknown]>([
  ['the value null', () => null],
  ['a string instead of an object', () => 'pass'],
  ['an empty object', () => ({})],
  ['a jws that is not a pass', (saved) => ({ ...saved, jws: 'a.b.c' })],
  ['an expiry that differs from its pass', (saved) => ({ ...saved, expiresAt: saved.expiresAt + 1 })],
  ['an origin that is not a URL', (saved) => ({ ...saved, origin: 'api' })],
  ['no scope', (saved) => ({ ...saved, scope: null })],
  ['a number as the route', (saved) => ({ ...saved, route: 7 })],
])('reports and ignores a stored record with %s, and uses the other records', async (_, corrupt) => {
  const { store, saved } = memoryStore()
  await setUp({ store }).passes.keep(asked, answerOf({ 'service-pass': bearer }))
  const [whole] = saved.values()
  saved.set('0', corrupt(whole as SavedPass) as SavedPass)
  const inOrder = { ...store, load: async () => [saved.get('0') as SavedPass, whole as SavedPass] }
  const warn = vi.fn()
  const { present } = setUp({ store: inOrder, warn })
  expect(await present()).toMatchObject({ isOver: false })
  expect(warn.mock.calls).toEqual([[expect.stringMatching(/store of passes is not a pass/)]])
  expect(saved.size).toBe(2)
})

test('keeps the pass in memory and warns if the store fails to save', async () => {
  const { store } = memoryStore({ save: () => Promise.reject(new Error('the disk is full')) })
  const warn = vi.fn()
  const { passes, present } = setUp({ store, warn })
  await passes.keep(asked, answerOf({ 'service-pass': bearer }))
  expect(warn.mock.calls).toEqual([[expect.stringMatching(/was not stored.*the disk is full/)]])
  expect(await present()).toMatchObject({ isOver: false })
})

test('buys no pass while the store can’t be read', async () => {
  const load = vi.fn(() => Promise.reject(new Error('unreadable')))
  const { store, saved } = memoryStore()
  await setUp({ store }).passes.keep(asked, answerOf({ 'service-pass': bearer }))
  const broken = { ...store, load: load as PassStore['load'] }
  const { present } = setUp({ store: broken })
  // Without a challenge, the client sends the request unpaid.
  expect(await present()).toBeUndefined()
  await expect(present(answerOf(), asked, 'ep_1')).rejects.toMatchObject({ code: 'payment_store_failed' })
  broken.load = async () => [...saved.values()]
  expect(await present(answerOf(), asked, 'ep_1')).toMatchObject({ isOver: false })
})
