import { once } from 'node:events'
import type { Server } from 'node:http'
import { serve } from '@hono/node-server'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { type Client, createClient } from '@tollkeeper/sdk/client/createClient'
import { signPayment } from '@tollkeeper/sdk/client/payment'
import { requirePayment } from '@tollkeeper/sdk/middleware/hono'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { encodeAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { parseChallenge } from '@tollkeeper/sdk/protocol/challenge'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { Hono } from 'hono'
import type { Page } from 'playwright-core'
import { createPublicClient, type Hash, type Hex, http, type PublicClient } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { LocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { desktop, launchBrowser, openTab, phone, seriousViolations } from '../support/browser.ts'
import { type CutProxy, startCutProxy } from '../support/cutProxy.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { randomHex } from '../support/usdc.ts'
import { chooseBrowser } from './dashboard/chooseBrowser.ts'

// The two default networks (conformance 1-22) in one gateway, keeper and index, with their real chain ids,
// USDC addresses and OP stack predeploys. One provider sells on both, and is paid to one address on both.

type Name = 'base' | 'base-sepolia'
const names = ['base', 'base-sepolia'] as const

let stack: TestStack
const proxies = {} as Record<Name, CutProxy>
const chains = {} as Record<Name, LocalChain>
const rpcs = {} as Record<Name, PublicClient>
const keeperLines: string[] = []

const wallet = randomHex(20)
let provider: { providerId: string; apiKey: string }
/** One endpoint on each network. */
const shops = {} as Record<Name, { url: string; endpointId: string }>
let shop: Server

beforeAll(async () => {
  stack = await startTestStack({
    chain: { network: 'base' },
    otherChains: [{ network: 'base-sepolia' }],
    rpcUrlOf: async ({ network, port }) => {
      const proxy = await startCutProxy(loopback, port)
      proxies[network as Name] = proxy
      return `http://${loopback}:${proxy.port}/secret-of-the-node`
    },
    env: { keeper: { TRIGGER_TIME_SECONDS: '1' } },
    onLine: (name, line) => name === 'keeper' && keeperLines.push(line),
  })
  for (const chain of [stack.chain, ...stack.otherChains]) {
    chains[chain.network as Name] = chain
    rpcs[chain.network as Name] = createPublicClient({ transport: http(chain.url), cacheTime: 0 })
  }
  await openShops()
})
afterAll(async () => {
  shop?.close()
  await stack?.close()
  for (const proxy of Object.values(proxies)) await proxy.close()
})

async function ask<Body = Record<string, unknown>>(
  method: 'GET' | 'POST',
  path: string,
  body?: unknown,
): Promise<{ status: number; body: Body }> {
  const answer = await fetch(new URL(path, stack.api.url), {
    method,
    headers: {
      'content-type': 'application/json',
      ...(provider && { authorization: `Bearer ${provider.apiKey}` }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  return { status: answer.status, body: (await answer.json()) as Body }
}

async function openShops(): Promise<void> {
  provider = (await ask<typeof provider>('POST', '/providers', { name: 'Weather' })).body
  const at = `/providers/${provider.providerId}`
  const port = await reservePort()
  const gate = requirePayment({
    gatewayUrl: stack.api.url,
    providerId: provider.providerId,
    apiKey: provider.apiKey,
    pricing: { usdcPerUnit: '0.01' },
    timeout: 20_000,
  })
  const app = new Hono()
  for (const network of names) {
    const registered = await ask<{ walletId: string }>('POST', `${at}/wallets`, { network, address: wallet })
    const url = `http://${loopback}:${port}/${network}`
    const { body } = await ask<{ endpointId: string }>('POST', `${at}/endpoints`, {
      url,
      method: 'GET',
      walletId: registered.body.walletId,
      pricing: { usdcPerUnit: '0.01' },
    })
    shops[network] = { url, endpointId: body.endpointId }
    app.get(`/${network}`, gate, (c) => c.json({ network }))
  }
  shop = serve({ fetch: app.fetch, port, hostname: loopback }) as Server
  await once(shop, 'listening')
}

/** Creates a buyer with money and a client on each network. */
async function newBuyer(): Promise<Record<Name, Client> & { privateKey: Hex }> {
  const privateKey = generatePrivateKey()
  const { address } = privateKeyToAccount(privateKey)
  await Promise.all(names.map((name) => chains[name].mintUsdc([address], parseUsdc('1'))))
  const shared = {
    gatewayUrl: stack.api.url,
    walletPrivateKey: privateKey,
    limits: { perPayment: '0.01' },
    timeout: 60_000,
    tabs: false,
  }
  const clientOn = (network: Name) => createClient({ ...shared, network })
  return { privateKey, base: clientOn('base'), 'base-sepolia': clientOn('base-sepolia') }
}

/** Signs a payment for an endpoint's challenge, on a network of choice. */
async function sign({ privateKey }: { privateKey: Hex }, challenged: Name, on: Name) {
  return signPayment(parseChallenge(await (await fetch(shops[challenged].url)).json()), {
    payer: privateKeyToAccount(privateKey),
    network: networkByName(on),
    usdc: networkByName(on).usdc as Hex,
    now: Date.now() / 1000,
  })
}

/** Sends the payment once. A client would retry until its timeout. */
function present(name: Name, payment: Awaited<ReturnType<typeof sign>>): Promise<Response> {
  return fetch(shops[name].url, { headers: { authorization: encodeAuthorizationHeader(payment) } })
}

const settled: Record<Name, Set<Hash>> = { base: new Set(), 'base-sepolia': new Set() }

/**
 * Waits until a payment is settled and its batch is indexed. The keeper may record the settlement before the index has the batch. Doesn't
 * wait for confirmations, which would take ten more blocks.
 */
async function untilSettled(paymentId: string, name: Name): Promise<Hash> {
  let hash: Hash | null = null
  await until('it is settled', async () => {
    const { body } = await ask<{
      payment_status: string
      network: Name
      provider: { transactionHash: Hash }
    }>('GET', `/payments/${paymentId}`)
    expect(body.network).toBe(name)
    hash = body.provider.transactionHash
    return body.payment_status === 'settled'
  })
  await until('its batch is indexed', async () => {
    const { body } = await ask<Batches>('GET', `/settlements/batches?tx_hash=${hash}&network=${name}`)
    return body.batches.length === 1
  })
  settled[name].add(hash as unknown as Hash)
  return hash as unknown as Hash
}

/** Pays once, and waits until the payment is settled. */
async function payAndSettle(buyer: Record<Name, Client>, name: Name): Promise<Hash> {
  const { paymentId = '', data } = await buyer[name].request(shops[name].url)
  expect(data).toEqual({ network: name })
  return untilSettled(paymentId, name)
}

const executable = chooseBrowser('two networks')

/**
 * Opens the public network page on a desktop and a phone, selects each network, and checks what the page
 * shows.
 */
async function lookAtNetworks(shows: Record<Name, string>, alsoLook?: (page: Page) => Promise<void>) {
  const browser = await launchBrowser(executable as string)
  try {
    for (const [options, colorScheme] of [
      [desktop, 'light'],
      [phone, 'dark'],
    ] as const) {
      const { page, errors } = await openTab(browser, stack.api.url, { ...options, colorScheme })
      await page.goto(`${stack.api.url}/dashboard/#/network`)
      const chooser = page.getByRole('navigation', { name: 'Networks' })
      for (const [name, title] of [
        ['base-sepolia', 'base-sepolia (testnet funds)'],
        ['base', 'base'],
      ] as const) {
        await chooser.getByRole('link', { name: title, exact: true }).click()
        await page.getByText(`Everything that settled on ${title},`).waitFor()
        await page.getByText(shows[name]).first().waitFor()
        expect(await chooser.locator('[aria-current=page]').allTextContents()).toEqual([title])
        expect(await page.getByText('Testnet funds, no real value.').count()).toBe(name === 'base' ? 0 : 1)
        const width = await page.evaluate(() => document.documentElement.scrollWidth)
        expect([name, width]).toEqual([name, options.viewport.width])
      }
      await alsoLook?.(page)
      expect(errors).toEqual([])
    }
  } finally {
    await browser.close()
  }
}

type Batches = { batches: { batch_id: number; tx_hash: Hash }[]; cursor: string | null; network: Name }
const batchesPath = (name: Name) => `/settlements/batches?wallet=${wallet}&network=${name}&limit=1`

describe('two networks', () => {
  test.skipIf(executable === undefined)(
    'default: offers both networks on the public page before anything has settled',
    () => {
      const nothing = 'Nothing settled in the last 30 days'
      return lookAtNetworks({ base: nothing, 'base-sepolia': nothing }, async (page) =>
        expect(await seriousViolations(page)).toEqual([]),
      )
    },
  )

  test('default: issues challenges and settles payments on each endpoint’s own network, on both networks at the same time', async () => {
    const buyer = await newBuyer()
    for (const name of names) {
      const challenge = parseChallenge(await (await fetch(shops[name].url)).json())
      const { usdc, eip712 } = networkByName(name)
      for (const entry of challenge.accepts)
        expect(entry).toMatchObject({ network: name, asset: usdc, extra: eip712 })
    }
    const [real, play] = await Promise.all(names.map((name) => payAndSettle(buyer, name)))
    for (const [name, hash, other] of [
      ['base', real, play],
      ['base-sepolia', play, real],
    ] as const) {
      const receipt = await rpcs[name].getTransactionReceipt({ hash: hash as Hash })
      expect(receipt).toMatchObject({ status: 'success', l1Fee: expect.anything() })
      await expect(rpcs[name].getTransactionReceipt({ hash: other as Hash })).rejects.toThrow(/not be found/)
    }
  })

  test('error: rejects a challenge request or a payment on a network other than the endpoint’s', async () => {
    const buyer = await newBuyer()
    for (const [name, other] of [names, names.toReversed()] as [Name, Name][]) {
      const { providerId } = provider
      const asked = await ask('POST', '/challenge', {
        providerId,
        endpointId: shops[name].endpointId,
        network: other,
      })
      expect(asked).toMatchObject({ status: 422, body: { code: 'network_not_accepted' } })
      await expect(buyer[other].request(shops[name].url)).rejects.toMatchObject({
        code: 'challenge_refused',
        message: expect.stringMatching(/^Payment verification failed.*the network base/),
      })
      // Both payments are signed on the other chain: the first for this endpoint, and the second for the other chain's endpoint.
      for (const [payment, code] of [
        [await sign(buyer, name, other), 'invalid_signature'],
        [await sign(buyer, other, other), 'caveat_mismatch'],
      ] as const) {
        const answer = await present(name, payment)
        expect([answer.status, ((await answer.json()) as { code: string }).code]).toEqual([402, code])
      }
    }
  })

  test('behavior: separates the views, sums and cursors of the two networks', async () => {
    const buyer = await newBuyer()
    await Promise.all(names.map((name) => payAndSettle(buyer, name)))
    const cursors: string[] = []
    for (const name of names) {
      const found: Batches['batches'] = []
      for (let cursor: string | null = ''; cursor !== null; ) {
        const path: string = `${batchesPath(name)}${cursor && `&cursor=${cursor}`}`
        const { body }: { body: Batches } = await ask<Batches>('GET', path)
        expect(body.network).toBe(name)
        found.push(...body.batches)
        cursor = body.cursor
        if (cursor) cursors.push(cursor)
      }
      expect(found.map((batch) => batch.tx_hash).toSorted()).toEqual([...settled[name]].toSorted())
      // Each network numbers its batches separately, starting at 1.
      expect(found.map((batch) => batch.batch_id).toSorted()).toEqual(found.map((_, index) => index + 1))
      const { body: status } = await ask('GET', `/settlements/status?wallet=${wallet}&network=${name}`)
      expect(status).toMatchObject({ payment_count: 0, network: name })
    }
    const [ofBase = ''] = cursors
    const strange = await ask('GET', `${batchesPath('base-sepolia')}&cursor=${ofBase}`)
    expect(strange).toMatchObject({ status: 400, body: { code: 'invalid_cursor' } })

    const at = `/providers/${provider.providerId}`
    for (const [name, testnet] of [
      ['base', false],
      ['base-sepolia', true],
    ] as const) {
      const { body } = await ask<{ revenue: unknown[] }>(
        'GET',
        `${at}/revenue?groupBy=network&interval=total&testnet=${testnet}`,
      )
      expect(body.revenue).toMatchObject([
        { network: name, payments: 2, settledPayments: 2, net_usdc: '0.019000' },
      ])
      const { body: listed } = await ask<{ payments: { network: string }[] }>(
        'GET',
        `${at}/payments?network=${name}`,
      )
      expect(listed.payments.map(({ network }) => network)).toEqual([name, name])
    }
  })
})

test.skipIf(executable === undefined)(
  'behavior: shows the batches of the selected network on the public page',
  () => {
    const batchesOf = (name: Name) => `in ${settled[name].size} batches`
    const shows = { base: batchesOf('base'), 'base-sepolia': batchesOf('base-sepolia') }
    return lookAtNetworks(shows)
  },
)

describe('one of the two nodes is down', () => {
  test('behavior: keeps selling and settling on the working network, even after a keeper restart, and settles the other network’s payments when its node is back', async () => {
    const [buyer, late] = [await newBuyer(), await newBuyer()]
    await stack.keeper.stop()
    const { paymentId = '' } = await buyer['base-sepolia'].request(shops['base-sepolia'].url)
    proxies['base-sepolia'].cut()
    await stack.keeper.start()
    expect(keeperLines.join('\n')).toContain('a network is down')
    expect(keeperLines.join('\n')).not.toContain('secret-of-the-node')

    await payAndSettle(buyer, 'base')
    for (const { url } of [stack.keeper, stack.api]) {
      const look = async () => {
        const { status, checks } = (await (await fetch(`${url}/readyz`)).json()) as {
          status: string
          checks: { name: string; ok: boolean }[]
        }
        const isOk = (name: string) => checks.find((check) => check.name === name)?.ok
        return [status, isOk('rpc base-sepolia'), isOk('rpc base')]
      }
      await expect.poll(look).toEqual(['degraded', false, true])
    }
    const refused = await present('base-sepolia', await sign(late, 'base-sepolia', 'base-sepolia'))
    expect(refused.status).toBe(503)
    expect((await ask('GET', `/payments/${paymentId}`)).body.payment_status).toBe('verified')

    proxies['base-sepolia'].mend()
    const hash = await untilSettled(paymentId, 'base-sepolia')
    expect((await rpcs['base-sepolia'].getTransactionReceipt({ hash })).status).toBe('success')
    await payAndSettle(late, 'base-sepolia')
    await until('both report ok', async () => {
      const answers = await Promise.all(
        [stack.keeper, stack.api].map(async ({ url }) => (await fetch(`${url}/readyz`)).json()),
      )
      return answers.every((answer) => (answer as { status: string }).status === 'ok')
    })
  })
})
