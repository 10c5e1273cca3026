/**
 * The published attacks on 402 systems (test/support/attacks.ts), against our middleware and gateway, against the reference's
 * middlewares with the reference facilitator, and against those middlewares with ours.
 */
import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { parseArgs } from 'node:util'
import { serve } from '@hono/node-server'
import { type FacilitatorClient, HTTPFacilitatorClient } from '@x402/core/server'
import { ExactEvmScheme } from '@x402/evm/exact/server'
import { paymentMiddleware as expressMiddleware } from '@x402/express'
import { paymentMiddleware, x402ResourceServer } from '@x402/hono'
import express from 'express'
import { Hono } from 'hono'
import type { Address } from 'viem'
import { loopback } from '#process/port'
import { networks } from '#protocol/networks'
import { startPostgres } from '../scripts/stack/postgres.ts'
import { registerProvider } from '../scripts/stack/registerProvider.ts'
import { type Stack, startStack } from '../scripts/stack/stack.ts'
import { attacks, type Outcome, type Target } from '../test/support/attacks.ts'
import { openAttackedShops } from '../test/support/shop.ts'
import { tokenOf } from '../test/support/usdc.ts'
import { createReferenceFacilitator } from './gateway/referenceFacilitator.ts'

const systems = ['reference', 'withOurFacilitator', 'ours'] as const
type System = (typeof systems)[number]

/** How often a handler ran for which nobody pays. */
type Row = { kind: string; attack: string; because?: string } & Record<System, number>

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { json: { type: 'boolean', default: false } } })
  const closers: (() => unknown)[] = []
  // The reference's middlewares print a stack for each header that is no payment.
  console.warn = () => {}
  try {
    const targets = await openTargets(closers)
    const rows: Row[] = []
    for (const { kind, name, run: mount, ourLeak } of attacks) {
      const row: Row = { kind, attack: name, reference: 0, withOurFacilitator: 0, ours: 0 }
      for (const system of systems) row[system] = leakOf(await mount(targets[system]))
      if (row.ours > 0 && ourLeak) row.because = ourLeak.because
      rows.push(row)
      console.error(`${kind}: ${name}: ${systems.map((system) => `${system} ${row[system]}`).join(', ')}`)
    }
    if (values.json) console.log(JSON.stringify(rows))
    else console.table(rows)
  } finally {
    for (const close of closers.reverse()) await close()
  }
}

const leakOf = ({ served, due }: Outcome) => Math.max(0, served - due)

async function openTargets(closers: (() => unknown)[]): Promise<Record<System, Target>> {
  const postgres = await startPostgres()
  closers.push(postgres.close)
  const stack = await startStack({
    databaseUrl: await postgres.createDatabase('attacks'),
    chain: { blockTimeMs: 1_000, atOnce: true },
    env: {
      api: { RATE_LIMITS: 'off', SETTLE_BEFORE_SERVE_USDC: '10', SETTLE_BEFORE_SERVE_TIMEOUT_MS: '9000' },
      keeper: { KEEPER_POLL_MS: '100', GAS_ALLOWANCE_USD: '1000000' },
    },
  })
  closers.push(() => stack.close())
  const { chain } = stack
  const ours = await openAttackedShops(stack)
  closers.push(() => Promise.all([ours.cheap, ours.dear, ours.dearest].map((shop) => shop.close())))

  const reference = createReferenceFacilitator(chain.url, true)
  const client = {
    verify: (payload, requirements) => reference.verify(payload, requirements),
    settle: (payload, requirements) => reference.settle(payload, requirements),
    getSupported: async () => reference.getSupported(),
  } as FacilitatorClient
  const headers = { Authorization: `Bearer ${await apiKeyOf(stack)}` }
  const withKey = new HTTPFacilitatorClient({
    url: stack.keeper.url,
    createAuthHeaders: async () => ({ verify: headers, settle: headers, supported: headers }),
  })
  return {
    ours: { chain, ...ours },
    reference: { chain, ...(await openReferenceShops(stack, client, closers)) },
    withOurFacilitator: { chain, ...(await openReferenceShops(stack, withKey, closers)) },
  }
}

const seller: Address = '0x0000000000000000000000000000000000005e11'

async function apiKeyOf({ api, chain }: Stack): Promise<string> {
  const { apiKey } = await registerProvider({
    gatewayUrl: api.url,
    name: 'Reference seller',
    network: chain.network,
    address: seller,
    endpoints: [],
  })
  return apiKey
}

/** The shops of `openAttackedShops`, behind the reference's middlewares as their documentation has them. */
async function openReferenceShops(stack: Stack, facilitator: FacilitatorClient, closers: (() => unknown)[]) {
  const { caip2, eip712 } = networks[stack.chain.network]
  const resourceServer = new x402ResourceServer(facilitator).register(caip2, new ExactEvmScheme())

  async function open(amount: string, framework: 'hono' | 'express') {
    let served = 0
    let task: () => Promise<unknown> = async () => {}
    const price = { amount, asset: tokenOf(stack.chain), extra: eip712 }
    const accepts = { scheme: 'exact', price, network: caip2, payTo: seller } as const
    const routes = { 'GET /data': { accepts }, 'GET /other': { accepts } }
    let server: Server
    if (framework === 'hono') {
      const app = new Hono()
      app.use(paymentMiddleware(routes, resourceServer))
      app.on('GET', ['/data', '/other'], async (c) => {
        served++
        await task()
        return c.json({ weather: 'sunny' })
      })
      server = serve({ fetch: app.fetch, port: 0, hostname: loopback }) as Server
    } else {
      const app = express()
      app.use(expressMiddleware(routes, resourceServer))
      app.get('/data', (_, response) => {
        served++
        response.json({ weather: 'sunny' })
      })
      server = app.listen(0, loopback)
    }
    await once(server, 'listening')
    closers.push(() => server.close())
    const url = `http://${loopback}:${(server.address() as AddressInfo).port}/data`
    return {
      url,
      otherUrl: new URL('/other', url).href,
      served: () => served,
      whileServing: (next: typeof task) => {
        task = next
      },
    }
  }
  return {
    cheap: await open('10000', 'hono'),
    dear: await open('500000', 'express'),
    dearest: await open('12000000', 'hono'),
  }
}
