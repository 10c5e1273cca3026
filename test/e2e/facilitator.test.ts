import { fileURLToPath } from 'node:url'
import type { Keeper } from '@tollkeeper/keeper/keeper'
import { serve } from '@tollkeeper/runtime/serve'
import { encodePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { build } from 'esbuild'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { launchBrowser } from '../support/browser.ts'
import { testClient, whileRunning } from '../support/keeperScenes.ts'
import { type QueuedPayment, signTransfer, useKeeperStack, walletAccount } from '../support/keeperStack.ts'
import { voidNow } from '../support/paymentPosition.ts'
import { countTransactions, signPair } from '../support/submit.ts'
import { until } from '../support/until.ts'
import { cancelDirectly, randomHex } from '../support/usdc.ts'
import { chooseBrowser } from './dashboard/chooseBrowser.ts'

const listening = { host: '127.0.0.1', port: 0, portVariable: 'KEEPER_PORT' }
const browserPath = chooseBrowser('settleNow')

// Transactions aren't replaced here, so each waiting batch is identified by its first transaction.
const stack = useKeeperStack({ replaceAfterMs: 600_000 }, { own: true })
let keeper: Keeper
beforeAll(async () => {
  keeper = stack.keeper()
  keeper.start()
})
afterAll(async () => {
  await keeper?.stop()
})

async function submit(body: unknown, apiKey?: string) {
  const response = await keeper.app.request('/submit', {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(apiKey && { authorization: `Bearer ${apiKey}` }) },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })
  return { status: response.status, body: (await response.json()) as Record<string, unknown> }
}

/** Bundles the client for browsers, as `globalThis.sdk`. */
async function bundleClient(): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL('../../sdk/src/client/createClient.ts', import.meta.url))],
    bundle: true,
    format: 'iife',
    globalName: 'sdk',
    platform: 'browser',
    write: false,
  })
  return outputFiles[0]?.text ?? ''
}

describe('POST /submit', () => {
  test('default: settles transfers immediately, and returns the same hash if they are submitted again', async () => {
    const buyer = await stack.buyer(50_000n)
    const transfers = (await signPair(stack, buyer)).map(encodePayload)
    const first = await submit({ network: 'localhost', transfers })
    expect(first).toMatchObject({ status: 200, body: { txHash: expect.stringMatching(/^0x[0-9a-f]{64}$/) } })
    const sent = await countTransactions(stack)
    const again = await submit({ network: 'localhost', transfers: transfers.toReversed() })
    expect(again.body.txHash).toBe(first.body.txHash)
    expect(await countTransactions(stack)).toBe(sent)

    const hash = first.body.txHash as `0x${string}`
    const receipt = await stack.served.client.waitForTransactionReceipt({ hash })
    expect(receipt.status).toBe('success')
    expect(await stack.balanceOf(buyer.address)).toBe(0n)
    const places = [hash, hash].map((txHash) => ({ status: 'settled', txHash }))
    await expect
      .poll(() => submit({ network: 'localhost', transfers }))
      .toEqual({ status: 200, body: { txHash: hash, transfers: places } })
  })

  test.skipIf(!browserPath)(
    'behavior: a page of another origin can call the facilitator through settleNow',
    async () => {
      const server = await serve(keeper.app, listening)
      const site = await serve(
        { fetch: () => new Response('', { headers: { 'content-type': 'text/html' } }) },
        listening,
      )
      const browser = await launchBrowser(browserPath ?? '')
      try {
        const page = await browser.newPage()
        const facilitatorUrl = `http://127.0.0.1:${server.port}`
        await page.goto(`http://127.0.0.1:${site.port}`)
        await page.addScriptTag({ content: await bundleClient() })
        const payloads = (await signPair(stack, await stack.buyer())).map(encodePayload)
        const settle = (presented: string[]) =>
          page.evaluate(
            async ({ facilitatorUrl, usdcAddress, payloads }) => {
              const { createClient } = (
                globalThis as unknown as { sdk: typeof import('@tollkeeper/sdk/client/createClient') }
              ).sdk
              const account = { address: usdcAddress, signTypedData: async () => '0x' as const }
              const network = 'localhost'
              const client = createClient({
                gatewayUrl: facilitatorUrl,
                facilitatorUrl,
                network,
                account,
                usdcAddress,
                limits: { perPayment: '1' },
              })
              const payment = {
                requestId: '',
                network,
                macaroon: '',
                payloads: payloads as [string, string],
                amount: 1n,
              }
              return client.settleNow(payment).then(
                ({ paymentTxHash }) => paymentTxHash,
                ({ code }: { code: string }) => code,
              )
            },
            { facilitatorUrl, usdcAddress: stack.served.token, payloads: presented },
          )
        const hash = (await settle(payloads)) as `0x${string}`
        expect((await stack.served.client.waitForTransactionReceipt({ hash })).status).toBe('success')
        // The page can read a rejection as well as a success.
        expect(await settle([payloads[0] ?? '', payloads[0] ?? ''])).toBe('nonce_reused')
      } finally {
        await browser.close()
        await Promise.all([server.close(), site.close()])
      }
    },
  )

  test('behavior: reports each transfer’s transaction if the transfers settle in several transactions', async () => {
    await keeper.stop()
    const buyers = await stack.buyers(2, 50_000n)
    const [first, second] = await Promise.all(buyers.map((buyer) => stack.queue({ buyer, price: 50_000n })))
    if (!first || !second) throw new Error('expected two queued payments')
    const pair = ({ provider, fee }: QueuedPayment) => [provider, fee].map(encodePayload)
    const chain = testClient(stack)
    await chain.setAutomine(false)
    keeper = stack.keeper({ accounts: [walletAccount(0), walletAccount(1)] })
    keeper.start()
    try {
      const one = await submit({ network: 'localhost', transfers: pair(first) })
      const both = await submit({ network: 'localhost', transfers: [...pair(second), ...pair(first)] })
      const hashes = [both.body.txHash, both.body.txHash, one.body.txHash, one.body.txHash]
      expect(one.body.txHash).not.toBe(both.body.txHash)
      expect(both.body.transfers).toEqual(hashes.map((txHash) => ({ status: 'sent', txHash })))
    } finally {
      await chain.setAutomine(true)
      await chain.mine({ blocks: 1 })
    }
    await until('both are settled', () => stack.isSettled([first, second]))
  })

  test('error: sends nothing if a transfer is cancelled after the request, and returns the reason for each transfer', async () => {
    await keeper.stop()
    const [innocent, buyer] = await stack.buyers(2, 50_000n)
    const { provider, fee } = await stack.queue({ buyer, price: 50_000n })
    const transfers = [...(await signPair(stack, innocent)), provider, fee].map(encodePayload)
    const sent = await countTransactions(stack)
    keeper = stack.keeper({ submitTimeoutMs: 200 })
    // The payment is verified and stored, but no worker has claimed it yet.
    expect((await submit({ network: 'localhost', transfers })).status).toBe(503)
    await cancelDirectly(stack, buyer, fee.nonce)
    await keeper.stop()
    keeper = stack.keeper()
    keeper.start()
    // The token reports a cancelled nonce as used, hence this code. `failures` names only the cancelled transfer.
    const code = 'authorization_used'
    expect(await submit({ network: 'localhost', transfers })).toMatchObject({
      status: 409,
      body: {
        code,
        failures: [{ transfer: 3, code }],
        // The cancelled transfer has either status, because the record may already contain the cancellation.
        transfers: transfers.map((_, index) => ({
          status: index < 3 ? 'queued' : expect.stringMatching(/^(queued|cancelled)$/),
        })),
      },
    })
    expect(await countTransactions(stack)).toBe(sent)
  })

  test('error: rejects a whole request that contains a voided payment, and settles its other transfers if they are sent without that payment', async () => {
    await keeper.stop()
    const [alone, buyer] = await stack.buyers(2, 50_000n)
    const payment = await stack.queue({ buyer, price: 50_000n })
    const pair = (await signPair(stack, alone)).map(encodePayload)
    const transfers = [...pair, ...[payment.provider, payment.fee].map(encodePayload)]
    const sent = await countTransactions(stack)
    keeper = stack.keeper({ submitTimeoutMs: 200 })
    expect((await submit({ network: 'localhost', transfers })).status).toBe(503)
    await voidNow(stack.database, payment)
    expect((await submit({ network: 'localhost', transfers })).body.code).toBe('payment_voided')
    keeper = stack.keeper()
    keeper.start()
    expect((await submit({ network: 'localhost', transfers: pair })).status).toBe(200)
    expect(await countTransactions(stack)).toBe(sent + 1)
    await until('it is paid', async () => (await stack.balanceOf(alone.address)) === 0n)
    expect(await stack.balanceOf(buyer.address)).toBe(50_000n)
  })

  test('args: accepts transfers as objects', async () => {
    const transfers = (await signPair(stack, await stack.buyer())).map((one) => ({
      ...one,
      value: `${one.value}`,
      validAfter: `${one.validAfter}`,
      validBefore: `${one.validBefore}`,
    }))
    expect((await submit({ network: 'localhost', transfers })).status).toBe(200)
  })

  test('behavior: recognizes the gateway’s own payment, and settles it with the trigger `submission`', async () => {
    const payment = await stack.queue({ buyer: await stack.buyer(), price: 50_000n })
    const transfers = [payment.provider, payment.fee].map(encodePayload)
    expect((await submit({ network: 'localhost', transfers })).status).toBe(200)
    await until('it is settled', () => stack.isSettled([payment]))
    const [batch] = await stack.database<{ trigger: string }[]>`
      select trigger from batch where id in (select batch_id from batch_item where payment_id = ${payment.paymentId})`
    expect(batch?.trigger).toBe('submission')
  })

  test('error: returns a problem document for a rejected submission and sends no transaction', async () => {
    const buyer = await stack.buyer()
    const sent = await countTransactions(stack)
    const [provider, fee] = await signPair(stack, buyer)
    const [stranger, strangerFee] = await signPair(stack, buyer, { to: randomHex(20) })
    const [expired, expiredFee] = await signPair(stack, buyer, {
      validBefore: BigInt(Math.floor(Date.now() / 1000) - 10),
    })
    const [poor, poorFee] = await signPair(stack, await stack.buyer(0n))
    if (!provider || !fee || !stranger || !strangerFee || !expired || !expiredFee || !poor || !poorFee) {
      throw new Error('expected two signed authorizations')
    }
    const forged = { ...provider, value: provider.value - 1n }
    const encode = (...transfers: SignedAuthorization[]) => ({
      network: 'localhost',
      transfers: transfers.map(encodePayload),
    })
    const cases: [string, number, unknown][] = [
      ['invalid_json', 400, '{'],
      ['invalid_request', 400, { network: 'localhost' }],
      ['invalid_request', 400, { network: 'localhost', transfers: [] }],
      ['invalid_payload', 400, { network: 'localhost', transfers: ['a,b,c'] }],
      ['unknown_network', 422, { ...encode(provider, fee), network: 'base' }],
      ['nonce_reused', 402, encode(provider, provider, fee)],
      ['authorization_expired', 402, encode(expired, expiredFee)],
      ['invalid_signature', 402, encode(forged, fee)],
      ['insufficient_balance', 402, encode(poor, poorFee)],
    ]
    for (const [code, status, body] of cases) {
      const answer = await submit(body)
      expect({ status: answer.status, code: answer.body.code }).toEqual({ status, code })
    }
    const got = await keeper.app.request('/submit')
    expect([got.status, got.headers.get('allow')]).toEqual([405, 'POST'])
    expect((await submit(encode(stranger), `tk_${'0'.repeat(32)}_${'a'.repeat(43)}`)).body.code).toBe(
      'unauthorized',
    )
    expect(await countTransactions(stack)).toBe(sent)
  })

  test('error: rejects transfers whose fees don’t cover their gas, with or without a key, for any recipient', async () => {
    const sent = await countTransactions(stack)
    const buyer = await stack.buyer()
    const [provider, fee] = await signPair(stack, buyer)
    const [second] = await signPair(stack, buyer)
    if (!provider || !fee || !second) throw new Error('expected two signed authorizations')
    const sign = (transfer: SignedAuthorization, change: Partial<SignedAuthorization>) =>
      signTransfer(stack.served, buyer, { ...transfer, ...change, nonce: randomHex(32) })
    // 170,000 units of gas cost 1,500 USDC base units.
    const { baseFeePerGas } = await stack.served.client.getBlock()
    const gasTokenUsd = (1_500n * 10n ** 18n) / (170_000n * (baseFeePerGas ?? 1n))
    const strict = stack.keeper({
      settings: { ...stack.settings, gasPerFee: 10n, gasAllowance: 0n, gasTokenUsd },
    })
    const ask = async (transfers: SignedAuthorization[], apiKey?: string) => {
      const response = await strict.app.request('/submit', {
        method: 'POST',
        headers: apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` },
        body: JSON.stringify({ network: 'localhost', transfers: transfers.map(encodePayload) }),
      })
      return [response.status, ((await response.json()) as { code?: string }).code]
    }
    const cases = [
      [provider, await sign(fee, { value: 1_400n })],
      [provider],
      [provider, second, await sign(fee, { value: 1_900n })],
    ]
    for (const transfers of cases)
      for (const apiKey of [undefined, stack.apiKey])
        expect(await ask(transfers, apiKey)).toEqual([422, 'gas_not_covered'])
    expect(await ask([provider, await sign(fee, { value: 0n })])).toEqual([402, 'amount_too_low'])
    expect(await countTransactions(stack)).toBe(sent)
    expect(await countPayments()).toBe(0)

    const stranger = await sign(provider, { to: randomHex(20) })
    await whileRunning(strict, async () => {
      expect(await ask([stranger, await sign(fee, { value: 2_000n })])).toEqual([200, undefined])
    })

    async function countPayments(): Promise<number> {
      const [row] = await stack.database<[{ count: number }]>`
        select count(*)::int as count from payment where payer = ${provider?.from ?? ''}`
      return row.count
    }
  })

  test('error: rejects a used nonce', async () => {
    const buyer = await stack.buyer()
    const [provider, fee] = await signPair(stack, buyer)
    const [, otherFee] = await signPair(stack, buyer)
    if (!provider || !fee || !otherFee) throw new Error('expected two signed authorizations')
    const first = await submit({ network: 'localhost', transfers: [provider, fee].map(encodePayload) })
    await stack.served.client.waitForTransactionReceipt({ hash: first.body.txHash as `0x${string}` })
    const again = await submit({ network: 'localhost', transfers: [provider, otherFee].map(encodePayload) })
    expect(again).toMatchObject({ status: 409, body: { code: 'authorization_used' } })
  })

  test('error: reports that the keeper’s wallet has no gas money, and settles once the wallet is funded', async () => {
    await keeper.stop()
    const empty = await stack.buyer(0n)
    keeper = stack.keeper({ accounts: [empty] })
    keeper.start()
    const transfers = (await signPair(stack, await stack.buyer())).map(encodePayload)
    expect(await submit({ network: 'localhost', transfers })).toMatchObject({
      status: 503,
      body: { code: 'insufficient_gas_funds' },
    })
    await keeper.stop()
    keeper = stack.keeper()
    keeper.start()
    expect((await submit({ network: 'localhost', transfers })).status).toBe(200)
  })
})
