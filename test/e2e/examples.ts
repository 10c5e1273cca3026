import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from '@x402/fetch'
import type { Address, Hex } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { expect, onTestFinished, test } from 'vitest'
import { registerProvider } from '../../apps/devstack/stack/registerProvider.ts'
import { launchBrowser, openTab } from '../support/browser.ts'
import { runCliHere } from '../support/cli.ts'
import { buyForecast } from '../support/mcp.ts'
import { killAll, type RunningCommand, root, runCommand } from '../support/processes.ts'
import type { TestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { chooseBrowser } from './dashboard/chooseBrowser.ts'

/** Environment variables that the examples need in the stack's processes. */
export const exampleEnv = {
  keeper: { TRIGGER_TIME_SECONDS: '1' },
  api: { WEBHOOK_ALLOW_PRIVATE: 'true', TRIGGER_TIME_SECONDS: '1' },
}

const readme = await readFile(`${root}/examples/README.md`, 'utf8')

/** Returns the words of a command in examples/README.md, by the name under which it is listed. */
function readExample(name: string): string[] {
  const [, shown] = readme.match(new RegExp(`\`\`\`sh ${name}\\n(.*)\\n\`\`\``)) ?? []
  if (shown === undefined) throw new Error(`examples/README.md has no command for ${name}`)
  return shown.split(' ')
}

/** Runs a command from examples/README.md as a terminal would. `env` supplies the variables that the command doesn't set. */
function runExample(name: string, env: Record<string, string>, args: Record<string, string> = {}) {
  const words = readExample(name)
  const open = words.flatMap((word) => word.match(/^([A-Z_\d]+)=/)?.[1] ?? [])
  expect([name, open.filter((variable) => !(variable in env))]).toEqual([name, []])
  const command = words.filter((word) => !/^[A-Z_\d]+=/.test(word)).map((word) => args[word] ?? word)
  const running = runCommand(command, env)
  onTestFinished(() => killAll(running))
  return running
}

type Seller = { name: string; url: string; providerId: string; apiKey: string; running: RunningCommand }

/**
 * Adds tests that run each example as a separate process, on the stack of the calling file. The payments are real, and are
 * settled and audited.
 */
export function addExampleTests(stackOf: () => TestStack): void {
  const account = () => privateKeyToAccount(generatePrivateKey())

  /** Registers a provider for a seller's example, and starts it. */
  async function sell(name: string, more: Record<string, string> = {}): Promise<Seller> {
    const { api, chain } = stackOf()
    const port = await reservePort()
    const url = `http://${loopback}:${port}/forecast`
    const { address } = account()
    const { providerId, apiKey } = await registerProvider({
      gatewayUrl: api.url,
      name,
      network: chain.network,
      address,
      endpoints: [{ url, usdcPerUnit: '0.01' }],
    })
    const running = runExample(name, {
      GATEWAY_URL: api.url,
      NETWORK: chain.network,
      PROVIDER_PORT: `${port}`,
      PROVIDER_ID: providerId,
      PROVIDER_API_KEY: apiKey,
      ...more,
    })
    await running.line(/^(selling|open) http/)
    return { name, url, providerId, apiKey, running }
  }

  /** Starts the webhook example, which receives a provider's webhooks. */
  async function receive({ providerId, apiKey }: Seller): Promise<RunningCommand> {
    const port = await reservePort()
    const answer = await fetch(new URL(`/providers/${providerId}/webhooks`, stackOf().api.url), {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
      body: JSON.stringify({ url: `http://${loopback}:${port}/tollkeeper` }),
    })
    const { secret } = (await answer.json()) as { secret: string }
    const running = runExample('webhook-receiver', { WEBHOOK_SECRET: secret, WEBHOOK_PORT: `${port}` })
    await running.line(/^waiting for webhooks/)
    return running
  }

  test('behavior: the README’s commands sell, buy, receive webhooks, settle without the operator and audit', async () => {
    const stack = stackOf()
    const { chain, rpc, api } = stack
    const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-examples-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const receiptFile = join(folder, 'receipts.jsonl')
    const deploymentsFile = join(folder, 'deployments.json')
    await writeFile(deploymentsFile, JSON.stringify(chain.deployments))
    const buyerKey = generatePrivateKey()
    await chain.mintUsdc([privateKeyToAccount(buyerKey).address], parseUsdc('1'))
    const buy = async ({ url, name }: Seller): Promise<string> => {
      const env = { GATEWAY_URL: api.url, NETWORK: chain.network, WALLET_PRIVATE_KEY: buyerKey }
      const buyer = runExample(
        'buyer',
        { ...env, RECEIPT_FILE: receiptFile },
        { 'http://127.0.0.1:4030/forecast': url },
      )
      expect(await buyer.exited, `${name}\n${buyer.output()}`).toBe(0)
      expect(buyer.stdout()).toContain('celsius: 19')
      return buyer.stdout().match(/pay_[0-9a-f]{32}/)?.[0] ?? ''
    }
    const transactionOf = async (paymentId: string) => {
      const { body } = await stack.get(`/payments/${paymentId}`)
      return (body.provider as { transactionHash: Hex | null }).transactionHash
    }
    const audit = () => {
      const [, , , ...shown] = readExample('auditor')
      const args = shown.map((word) =>
        word.replace('https://…', chain.url).replace('http://127.0.0.1:4020', api.url),
      )
      // The command writes the receipts in its working folder.
      return runCliHere(args, { cwd: folder, env: { DEPLOYMENTS_FILE: deploymentsFile } })
    }

    const [hono, express, fastify, plain] = await Promise.all([
      sell('hono'),
      sell('express'),
      sell('fastify'),
      sell('fetch'),
    ])
    const receiver = await receive(hono)
    const paid = [await buy(hono), await buy(express), await buy(fastify), await buy(plain)]
    await receiver.line(new RegExp(`^payment.settled .*${paid[0]}`))

    // After our keeper stops, a stranger's keeper settles the last payments.
    await stack.keeper.stop()
    const last = await buy(plain)
    const early = await audit()
    expect(early.status, early.stderr).toBe(1)
    expect(early.stdout).toMatch(new RegExp(`pending +waiting +${last}`))
    const keeperKey = generatePrivateKey()
    const keeperAddress = privateKeyToAccount(keeperKey).address
    await rpc.request({ method: 'hardhat_setBalance', params: [keeperAddress, '0xde0b6b3a7640000'] } as never)
    runExample('keeper', {
      KEEPER_GATEWAY_URL: api.url,
      KEEPER_PRIVATE_KEYS: keeperKey,
      NETWORKS: chain.network,
      RPC_URL_BASE: chain.url,
      DEPLOYMENTS_FILE: deploymentsFile,
      PRIORITY_FEE_WEI: '1000',
    })
    await until('a stranger has settled it', async () => (await transactionOf(last)) !== null)
    const { from } = await rpc.getTransaction({ hash: (await transactionOf(last)) as Hex })
    expect(from).toBe(keeperAddress.toLowerCase())
    await stack.keeper.start()

    await until('all have settled and are confirmed', async () => (await audit()).status === 0)
  })

  test('behavior: an x402 seller that changed only its facilitator sells to an x402 client and to our client', async () => {
    const { keeper, chain, api, rpc } = stackOf()
    const buyer = account()
    const key = generatePrivateKey()
    await chain.mintUsdc([buyer.address, privateKeyToAccount(key).address], parseUsdc('1'))
    const payTo: Address = account().address
    const { url, running } = await sell('x402-seller', {
      FACILITATOR_URL: keeper.url,
      PAY_TO: payTo,
      X402_NETWORK: `eip155:${networkByName(chain.network).chainId}`,
    })
    const client = new x402Client().register('eip155:*', new ExactEvmScheme(buyer))
    const bought = await wrapFetchWithPayment(fetch, client)(new URL('/weather', url))
    const asked = bought.headers.get('payment-required') ?? bought.headers.get('payment-response') ?? ''
    const why = `${Buffer.from(asked, 'base64')}\n${running.output()}\n${keeper.lastLines.join('\n')}`
    expect([bought.status, await bought.json()], why).toEqual([200, { weather: 'sunny' }])
    const { transaction } = decodePaymentResponseHeader(bought.headers.get('payment-response') ?? '')
    const ours = runExample(
      'x402-buyer',
      { GATEWAY_URL: api.url, NETWORK: chain.network, WALLET_PRIVATE_KEY: key },
      { 'http://127.0.0.1:4030/weather': new URL('/weather', url).href },
    )
    expect(await ours.exited, `${ours.output()}\n${running.output()}`).toBe(0)
    expect(ours.stdout()).toContain("weather: 'sunny'")
    const [, reported] = /transaction: '(0x[0-9a-f]{64})'/.exec(ours.stdout()) ?? []
    for (const hash of [transaction, reported]) {
      const { status } = await rpc.getTransactionReceipt({ hash: hash as Hex })
      expect(status).toBe('success')
    }
  })

  test('behavior: the MCP seller’s server sells its tool to an MCP client and to the MCP buyer', async () => {
    const { api, chain } = stackOf()
    const buyer = account()
    await chain.mintUsdc([buyer.address], parseUsdc('1'))
    const port = await reservePort()
    const { address } = account()
    const endpoints = [{ url: 'mcp://tool/forecast', method: '*' as const, usdcPerUnit: '0.01' }]
    const { providerId, apiKey } = await registerProvider({
      gatewayUrl: api.url,
      name: 'MCP',
      network: chain.network,
      address,
      endpoints,
    })
    const running = runExample('mcp-seller', {
      GATEWAY_URL: api.url,
      PROVIDER_PORT: `${port}`,
      PROVIDER_ID: providerId,
      PROVIDER_API_KEY: apiKey,
    })
    const [serverUrl = ''] = /http\S+/.exec(await running.line(/^selling http/)) ?? []
    const result = await buyForecast({
      gatewayUrl: api.url,
      network: chain.network,
      account: buyer,
      serverUrl,
    })
    expect(result).toMatchObject({
      content: [{ text: expect.stringMatching(/^Lisbon: 19 °C, clear. Paid by pay_/) }],
    })

    const key = generatePrivateKey()
    await chain.mintUsdc([privateKeyToAccount(key).address], parseUsdc('1'))
    const bought = runExample(
      'mcp-buyer',
      { GATEWAY_URL: api.url, NETWORK: chain.network, WALLET_PRIVATE_KEY: key },
      { 'http://127.0.0.1:4030/mcp': serverUrl },
    )
    expect(await bought.exited, bought.output()).toBe(0)
    expect(bought.stdout()).toMatch(/Lisbon: 19 °C, clear. Paid by pay_/)
  })

  const executable = chooseBrowser()
  test.skipIf(executable === undefined)(
    'links from the paid URL to the page that pays with the browser’s wallet, but not for URLs of another site',
    async () => {
      const buyer = account()
      await stackOf().chain.mintUsdc([buyer.address], parseUsdc('1'))
      const { url } = await sell('browser')
      const browser = await launchBrowser(executable as string)
      onTestFinished(() => browser.close())
      const { page, errors } = await openTab(browser, new URL(url).origin)
      // Like a wallet extension, this wallet never shows its key to the page.
      await page.exposeFunction('askWallet', async (method: string, params: string[]) => {
        if (method === 'eth_requestAccounts') return [buyer.address]
        if (method === 'eth_chainId') return `0x${stackOf().chain.chainId.toString(16)}`
        if (method === 'eth_signTypedData_v4') return buyer.signTypedData(JSON.parse(params[1] ?? ''))
        throw new Error(`${method} is not for a page`)
      })
      await page.addInitScript(() => {
        type Asked = { method: string; params?: string[] }
        const { askWallet } = globalThis as unknown as {
          askWallet: (method: string, params: string[]) => unknown
        }
        Object.assign(globalThis, {
          ethereum: { request: ({ method, params = [] }: Asked) => askWallet(method, params) },
        })
      })
      await page.goto(`${new URL('/', url).href}?url=${encodeURIComponent('https://other.example/forecast')}`)
      await page.getByRole('button', { name: 'Pay and show' }).click()
      await page.getByText('Not paid: https://other.example sells nothing here').waitFor()
      await page.goto(url)
      await page.getByRole('heading', { name: 'This costs 0.01 USDC' }).waitFor()
      await page.getByRole('link', { name: 'Pay at 127.0.0.1' }).click()
      await page.getByRole('button', { name: 'Pay and show' }).click()
      const answer = page.getByText(/^(Lisbon|Not paid): /)
      await answer.waitFor()
      const [paymentId] = ((await answer.textContent()) ?? '').match(/pay_[0-9a-f]{32}/) ?? []
      expect(await answer.textContent()).toBe(`Lisbon: 19 °C. Paid by ${paymentId}.`)
      // The browser itself logs each 402.
      expect(errors.filter((line) => !line.includes('402'))).toEqual([])
      await until('it has settled', async () => {
        const { body } = await stackOf().get(`/payments/${paymentId}`)
        return body.payment_status === 'settled'
      })
    },
  )
}
