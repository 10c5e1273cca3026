import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { generatePrivateKey, privateKeyToAccount, privateKeyToAddress } from 'viem/accounts'
import { expect, onTestFinished, test } from 'vitest'
import { registerProvider } from '../apps/devstack/stack/registerProvider.ts'
import { killAll, root, runCommand } from '../test/support/processes.ts'
import { useTestStack } from '../test/support/stack.ts'
import { until } from '../test/support/until.ts'
import { readBalance, tokenOf } from '../test/support/usdc.ts'
import { paymentResponseOf, x402Buyers } from './x402Clients.ts'

// Runs the code before and after each diff in docs/migrate.md, in separate processes. The same unmodified buyer buys from both.

const page = await readFile(join(root, 'docs/migrate.md'), 'utf8')
const price = parseUsdc('0.01')

const stack = useTestStack({
  chain: { network: 'base-sepolia' },
  env: { keeper: { TRIGGER_TIME_SECONDS: '1' }, api: { TRIGGER_TIME_SECONDS: '1' } },
})

/** Returns the code of a diff before (`-`) or after (`+`) the change. */
function sideOf(name: string, sign: '-' | '+'): string {
  const [, diff] = page.match(new RegExp(`\`\`\`diff ${name}\\n(.*?)\`\`\``, 's')) ?? []
  if (diff === undefined) throw new Error(`docs/migrate.md has no diff ${name}`)
  return diff
    .split('\n')
    .filter((line) => line.startsWith(sign) || !/^[-+]/.test(line))
    .map((line) => line.slice(1))
    .join('\n')
}

/** Starts a side of a diff at a free port, with a new wallet and provider. */
async function start(code: string) {
  const port = await reservePort()
  const url = `http://${loopback}:${port}/weather`
  const payTo = privateKeyToAddress(generatePrivateKey())
  const { providerId, apiKey } = await registerProvider({
    gatewayUrl: stack.api.url,
    name: 'Migrated',
    network: 'base-sepolia',
    address: payTo,
    endpoints: [{ url, usdcPerUnit: '0.01' }],
  })
  const here = code
    .replaceAll('https://gateway.example', stack.api.url)
    .replaceAll('https://keeper.example', stack.keeper.url)
    // Tests can't reach the public facilitator, so they use ours. Ours needs an API key, which is in the URL.
    .replaceAll('https://x402.org/facilitator', `${stack.keeper.url}/k/${apiKey}`)
    .replaceAll('4030', `${port}`)
  const seller = runCommand(
    ['node', '--conditions=@tollkeeper/source', '--input-type=module', '--eval', here],
    { PAY_TO: payTo, PROVIDER_ID: providerId, TOLLKEEPER_API_KEY: apiKey },
    { cwd: import.meta.dirname },
  )
  onTestFinished(() => killAll(seller))
  const asked = async () => (await fetch(url).catch(() => undefined))?.status
  await until('the seller asks for payment', async () => (await asked()) === 402)
  return { url, seller, balance: () => readBalance(stack.rpc, tokenOf(stack.chain), payTo) }
}

async function buy(url: string) {
  const key = generatePrivateKey()
  await stack.chain.mintUsdc([privateKeyToAddress(key)], parseUsdc('1'))
  return x402Buyers['@x402/fetch'](privateKeyToAccount(key), url)
}

test.each([
  ['facilitator', '-'],
  ['facilitator', '+'],
  ['express', '-'],
  ['hono', '-'],
] as const)(
  'behavior: with the code of the diff %s in docs/migrate.md (side %s), x402’s middleware sells, and the response names the transaction that pays the seller the whole price',
  async (name, sign) => {
    const { url, seller, balance } = await start(sideOf(name, sign))
    const bought = await buy(url)
    expect([bought.status, bought.body], seller.output()).toEqual([200, { weather: 'sunny' }])
    expect(paymentResponseOf(bought).transaction).toMatch(/^0x[0-9a-f]{64}$/)
    expect(await balance()).toBe(price)
  },
)

test.each(['express', 'hono'])(
  'behavior: our middleware for %s sells to an x402 buyer without waiting for the settlement, and pays its seller the price less the fee',
  async (name) => {
    const { url, seller } = await start(sideOf(name, '+'))
    const bought = await buy(url)
    expect([bought.status, bought.body], seller.output()).toEqual([200, { weather: 'sunny' }])
    const { transaction, extra } = paymentResponseOf(bought) as {
      transaction: string
      extra: { paymentId: string }
    }
    expect(transaction).toBe('')
    await until('the payment is settled', async () => {
      const { body } = await stack.get(`/payments/${extra.paymentId}`)
      return body.payment_status === 'settled'
    })
    const { body } = await stack.get(`/payments/${extra.paymentId}`)
    expect(body).toMatchObject({ totalUsdc: '10000', providerUsdc: '9500' })
  },
)
