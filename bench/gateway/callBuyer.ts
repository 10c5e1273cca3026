/**
 * Runs buyers in one process, each with a separate wallet and client. `POST /run` makes calls with some of them at once. Each
 * buyer makes its next call after the answer to the previous one. The response has the duration of each call.
 *
 * Reads BUYERS: a JSON object, {@link BuyerSettings}.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { serve } from '@hono/node-server'
import { createClient } from '@tollkeeper/sdk'
import { ExactEvmScheme } from '@x402/evm'
import { wrapFetchWithPaymentFromConfig } from '@x402/fetch'
import { Hono } from 'hono'
import type { Address } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

export type BuyerSettings = { gatewayUrl: string; usdc: Address; keys: `0x${string}`[] }
/** `free`: calls without payment. `ours`, `tab`: our client, without and with tabs. `x402`: `@x402/fetch`. */
export type BuyerKind = 'free' | 'ours' | 'tab' | 'x402'
export type BuyerRun = {
  kind: BuyerKind
  /** The URL of all calls, or several URLs that are used in turn. */
  url: string | readonly string[]
  callers: number
  calls: number
  /** If set, each call has a separate buyer. A buyer starts this many ms after the previous buyer, even if the previous call isn't answered yet. */
  everyMs?: number
}
/** `failures` are messages of calls that weren't served. */
export type BuyerAnswer = {
  ms: number[]
  failures: string[]
  /** The start of each call in Unix ms, in the order of the buyers; only with `everyMs`. */
  begunAt: number[]
}

type Call = (url: string) => Promise<void>

const { gatewayUrl, usdc, keys } = JSON.parse(process.env.BUYERS ?? '') as BuyerSettings
const made = new Map<string, Call>()

/** Returns a function that makes all its calls with one client, as a real program does, so that the client's caches are part of the measurement. */
function callerOf(kind: BuyerKind, index: number): Call {
  const key = `${kind} ${index}`
  const call = made.get(key) ?? createCaller(kind, keys[index] as `0x${string}`)
  made.set(key, call)
  return call
}

function createCaller(kind: BuyerKind, walletPrivateKey: `0x${string}`): Call {
  if (kind === 'free') return (url) => fetch(url).then(requireServed)
  if (kind === 'x402') {
    const client = new ExactEvmScheme(privateKeyToAccount(walletPrivateKey))
    const pay = wrapFetchWithPaymentFromConfig(fetch, {
      schemes: [{ network: 'eip155:31337', client }],
      // Switch off x402's limits on spending, because their list of known tokens lacks the local chain's token.
      spendControls: false,
    })
    return (url) => pay(url).then(requireServed)
  }
  const client = createClient({
    gatewayUrl,
    walletPrivateKey,
    network: 'localhost',
    usdcAddress: usdc,
    tabs: kind === 'tab',
    limits: { perPayment: '100', perDay: '1000000' },
    timeout: 120_000,
  })
  return async (url) => {
    await client.request(url)
  }
}

async function requireServed(response: Response): Promise<void> {
  const text = await response.text()
  if (response.status !== 200) throw new Error(`${response.status}: ${text.slice(0, 200)}`)
}

async function run({ kind, url, callers, calls, everyMs }: BuyerRun): Promise<BuyerAnswer> {
  const urlOf = (index: number) => (typeof url === 'string' ? url : (url[index % url.length] as string))
  const begunAt: number[] = []
  const ms: number[] = []
  const failures: string[] = []
  const make = async (call: Call, at: number) => {
    const since = performance.now()
    try {
      await call(urlOf(at))
      ms.push(performance.now() - since)
    } catch (error) {
      failures.push(error instanceof Error ? error.message : String(error))
    }
  }
  if (everyMs !== undefined) {
    const begun: Promise<void>[] = []
    for (let index = 0; index < calls; index++) {
      if (index > 0) await delay(everyMs)
      begunAt.push(Date.now())
      begun.push(make(callerOf(kind, index), index))
    }
    await Promise.all(begun)
    return { ms, failures, begunAt }
  }
  let count = 0
  const work = async (index: number) => {
    const call = callerOf(kind, index)
    while (count < calls) await make(call, count++)
  }
  await Promise.all(Array.from({ length: callers }, (_, index) => work(index)))
  return { ms, failures, begunAt }
}

const app = new Hono()
app.get('/healthz', (c) => c.text('ok'))
app.post('/run', async (c) => c.json(await run(await c.req.json<BuyerRun>())))
serve({ fetch: app.fetch, port: Number(process.env.PORT), hostname: '127.0.0.1' })
