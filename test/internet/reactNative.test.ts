import { join } from 'node:path'
import vm from 'node:vm'
import { build } from 'esbuild'
import type { PrivateKeyAccount } from 'viem/accounts'
import { beforeAll, expect, test } from 'vitest'
import { useSellers } from './sellers.ts'

// The client bundled as for React Native, in a realm with only the globals that sdk/README.md names.

const sellers = useSellers()
const root = join(import.meta.dirname, '../..')
let bundle: string

beforeAll(async () => {
  const { outputFiles } = await build({
    stdin: {
      contents: `
        export { createClient, wrapFetch } from '@tollkeeper/sdk'`,
      resolveDir: join(root, 'test'),
    },
    bundle: true,
    format: 'iife',
    globalName: 'tollkeeper',
    platform: 'neutral',
    mainFields: ['react-native', 'browser', 'module', 'main'],
    conditions: ['@tollkeeper/source', 'react-native', 'import'],
    target: 'es2022',
    write: false,
    logLevel: 'silent',
  })
  bundle = outputFiles[0]?.text ?? ''
})

/** Imitates React Native: its responses have no stream, and its `fetch` follows redirects automatically. */
const fetchWithoutStreams: typeof fetch = async (input, init) =>
  withoutStream(await fetch(input, { ...init, redirect: 'follow' }))

function withoutStream(response: Response): Response {
  const clone = response.clone.bind(response)
  return Object.defineProperties(response, {
    body: { value: undefined },
    clone: { value: () => withoutStream(clone()) },
  })
}

/** The class `URL` as `react-native-url-polyfill` implements it: complete, but without the newer static methods. */
class PolyfilledUrl extends URL {
  static override canParse = undefined as never
  static override parse = undefined as never
}

/** An AbortSignal without the static methods `timeout` and `any`. */
class OldSignal extends EventTarget {}

function createRealm(more: object = {}) {
  const names = ['Headers', 'Request', 'Response', 'FormData', 'Blob', 'URLSearchParams', 'AbortController']
  names.push('TextEncoder', 'TextDecoder', 'atob', 'btoa', 'console', 'setTimeout', 'clearTimeout')
  const realm = {
    ...Object.fromEntries(names.map((name) => [name, Reflect.get(globalThis, name)])),
    URL: PolyfilledUrl,
    AbortSignal: OldSignal,
    fetch: fetchWithoutStreams,
    ...more,
  }
  vm.createContext(realm)
  vm.runInContext(bundle, realm)
  return (script: string) => vm.runInContext(script, realm)
}

/** Returns the options of a client, whose account belongs to the realm. */
async function optionsFor(tabs: boolean): Promise<{ options: object; sign: PrivateKeyAccount }> {
  const sign = await sellers.gateway.buyer(10_000_000n)
  const options = {
    gatewayUrl: sellers.state.url,
    network: 'localhost',
    usdcAddress: sellers.gateway.served.token,
    limits: { perPayment: '2' },
    tabs,
  }
  return { options, sign }
}

test('default: loads and pays without ReadableStream, Buffer, process and crypto', async () => {
  const run = createRealm()
  expect(run('[typeof ReadableStream, typeof Buffer, typeof process, typeof crypto].join()')).toBe(
    Array(4).fill('undefined').join(),
  )
  const seller = await sellers.open('hono')
  const { options, sign } = await optionsFor(false)
  const { createClient } = run('tollkeeper')
  const client = createClient({ ...options, account: sign })
  const paid = await client.request(`${seller.url}/weather`, { body: { city: 'Bern' } })
  expect([paid.status, paid.data]).toEqual([200, { sunny: true }])
  expect(seller.served.map(({ body }) => body.toString())).toEqual(['{"city":"Bern"}'])
  // Without crypto.subtle the client can't verify the receipt, so the payment has no id yet.
  expect([paid.receipt.split('.').length, paid.paymentId]).toEqual([3, undefined])
})

test('behavior: wrapFetch pays for a request with a body', async () => {
  const run = createRealm()
  const seller = await sellers.open('express')
  const { options, sign } = await optionsFor(false)
  const { wrapFetch } = run('tollkeeper')
  const payingFetch = wrapFetch(fetchWithoutStreams, { ...options, account: sign })
  const response = await payingFetch(`${seller.url}/weather`, { method: 'POST', body: 'asked' })
  expect([response.status, await response.json()]).toEqual([200, { sunny: true }])
  expect(response.headers.get('service-payment-id')).toMatch(/^pay_/)
})

test('behavior: a client with time limits can abort a request without AbortSignal.timeout', async () => {
  const run = createRealm()
  const { createClient } = run('tollkeeper')
  const { options, sign } = await optionsFor(false)
  const fetch = (_: string, { signal }: { signal: AbortSignal }) =>
    new Promise((_, reject) => {
      if (signal.aborted) reject(signal.reason)
      else signal.addEventListener('abort', () => reject(signal.reason))
    })
  const client = createClient({ ...options, account: sign, fetch, timeout: 20 })
  await expect(client.request('/weather')).rejects.toMatchObject({ code: 'timeout' })
  const given = new AbortController()
  const asked = client.request('/weather', { signal: given.signal, timeout: 60_000 })
  given.abort(new Error('aborted'))
  await expect(asked).rejects.toThrow('aborted')
})

test('behavior: pays on a tab and closes it if getRandomValues exists', async () => {
  const getRandomValues = crypto.getRandomValues.bind(crypto)
  const run = createRealm({ crypto: { getRandomValues } })
  const seller = await sellers.open('hono')
  const { options, sign } = await optionsFor(true)
  const { createClient } = run('tollkeeper')
  const client = createClient({ ...options, account: sign })
  const { payment } = await client.request(`${seller.url}/weather`)
  expect(payment.tab.sequence).toBe(1)
  await client.close()
  expect(await client.tabs()).toHaveLength(0)
})
