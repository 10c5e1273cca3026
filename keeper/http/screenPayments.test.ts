import { newId } from '@tollkeeper/ledger/store/identifiers'
import { createLogger } from '@tollkeeper/runtime/log'
import { createRateLimiter } from '@tollkeeper/runtime/rateLimiter'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import type { Address } from 'viem'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { useDatabase } from '../../test/support/database.ts'
import { startHook } from '../../test/support/hookReceiver.ts'
import { keeperDefaults } from '../../test/support/keeperDefaults.ts'
import { seedPlatform } from '../../test/support/seedPayments.ts'
import { shareServedChain } from '../../test/support/servedChain.ts'
import { randomHex, signAuthorization, validFor } from '../../test/support/usdc.ts'
import { signPayment } from '../../test/support/x402.ts'
import { createHttpContext } from './context.ts'
import { parseRequest } from './facilitator/request.ts'
import { verify } from './facilitator/reserve.ts'
import { createFacilitator } from './facilitator/routes.ts'
import { submitTransfers } from './submit.ts'

// No route of the keeper lets a payer bypass a seller's hook.

const sql = await useDatabase()
const { chain, served } = await shareServedChain()
const { chainId } = served.network
let hook: Awaited<ReturnType<typeof startHook>>
beforeAll(async () => {
  hook = await startHook()
})
beforeEach(() => {
  hook.clear()
  hook.state.decide = () => ({ accept: true })
})
afterAll(() => hook?.close())

/** Returns the context of a new process, whose caches are empty. */
function openDoors() {
  return createHttpContext({
    ...keeperDefaults,
    webhookAllowPrivate: true,
    facilitator: { ...keeperDefaults.facilitator, isOpen: true },
    settings: { ...keeperDefaults.settings, gasAllowance: 1_000_000_000n },
    database: sql,
    networks: [served],
    accounts: [devAccount(15)],
    platformWallets: [seedPlatform],
    submitTimeoutMs: 1,
    submitLimits: { perCaller: 1_000 },
    rateLimiter: createRateLimiter({ sql: null, log: createLogger('test', 'silent'), now: Date.now }),
    log: createLogger('test', 'silent'),
    now: () => new Date(),
    wake: () => {},
  })
}

let seconds = 0
/** Creates a provider with a wallet. Each call registers its wallet one second later than the call before. */
async function register({ wallet = randomHex(20), hasHook = true } = {}) {
  const providerId = newId('prov')
  await sql`insert into provider (id, name) values (${providerId}, 'Weather')`
  await sql`
    insert into wallet (id, provider_id, chain_id, address, created_at)
    values (${newId('wal')}, ${providerId}, ${chainId}, ${wallet}, now() + ${`${++seconds} seconds`}::interval)`
  if (hasHook)
    await sql`
      insert into accept_hook (provider_id, url, secret) values (${providerId}, ${hook.url}, 'whsec_c2VjcmV0')`
  return { providerId, wallet }
}

async function openBuyer(): Promise<PrivateKeyAccount> {
  const buyer = privateKeyToAccount(generatePrivateKey())
  await chain.mintUsdc([buyer.address], 1_000_000n)
  return buyer
}

async function submit(
  buyer: PrivateKeyAccount,
  recipients: Address[],
  context = openDoors(),
): Promise<string> {
  const transfers = await Promise.all(
    recipients.map(async (to) => {
      const from = buyer.address.toLowerCase() as Address
      const terms = { from, to, value: 100_000n, ...validFor(3_600), nonce: randomHex(32) }
      return encodePayload(await signAuthorization(served, buyer, terms))
    }),
  )
  const connection = { isClosed: () => false, delivered: Promise.resolve(true) }
  const caller = { apiKey: null, address: '192.0.2.1' }
  return submitTransfers(context, { transfers }, caller, connection).then(
    () => 'settled',
    ({ code, message }: { code?: string; message: string }) =>
      message.startsWith('Not sent yet') ? 'accepted' : (code ?? message),
  )
}

const storedOf = async ({ address }: PrivateKeyAccount) =>
  (await sql`select id from payment where payer = ${address.toLowerCase()}`).length

test('asks the hook of a wallet’s owner about each new transfer to the wallet, but not about transfers to other recipients', async () => {
  const [{ providerId, wallet }, buyer] = [await register(), await openBuyer()]
  expect(await submit(buyer, [wallet, randomHex(20)])).toBe('accepted')
  expect(hook.asked()).toMatchObject([
    {
      providerId,
      source: 'submission',
      moment: 'payment',
      payer: buyer.address.toLowerCase(),
      endpointId: null,
    },
  ])
})

test('refuses a whole submission if one of its transfers is refused', async () => {
  const [{ wallet }, buyer] = [await register(), await openBuyer()]
  hook.state.decide = () => ({ refuse: 'On a list' })
  expect(await submit(buyer, [randomHex(20), wallet])).toBe('payment_declined')
  expect(await storedOf(buyer)).toBe(0)
  hook.state.decide = (_, response) => void response.destroy()
  expect(await submit(buyer, [wallet])).toBe('decision_unavailable')
  expect(await storedOf(buyer)).toBe(0)
})

test('asks the hook of the paid wallet’s owner about a facilitator payment, or the hook of the API key’s provider if no provider owns the wallet', async () => {
  const [{ providerId, wallet }, buyer] = [await register(), await openBuyer()]
  const doors = openDoors()
  const app = createFacilitator(doors)
  const send = (payment: { body: object }) =>
    app.request('/verify', { method: 'POST', body: JSON.stringify(payment.body) })
  expect(await (await send(await signPayment(served, buyer, { payTo: wallet }))).json()).toMatchObject({
    isValid: true,
  })
  hook.state.decide = () => ({ refuse: 'On a list' })
  const payment = await signPayment(served, buyer, { payTo: wallet })
  const refused = await send(payment)
  expect([refused.status, await refused.json()]).toMatchObject([
    200,
    { isValid: false, invalidMessage: 'On a list' },
  ])
  const settled = await app.request('/settle', { method: 'POST', body: JSON.stringify(payment.body) })
  expect(await settled.json()).toMatchObject({ success: false, errorMessage: 'On a list' })
  const elsewhere = await signPayment(served, buyer, { payTo: randomHex(20) })
  await expect(verify(doors, parseRequest([served], elsewhere.body), { providerId })).rejects.toMatchObject({
    code: 'payment_declined',
  })
  expect(hook.asked().map(({ source }) => source)).toEqual(Array(4).fill('facilitator'))
  expect(await storedOf(buyer)).toBe(1)
})

test('asks the hook of the provider who registered a wallet first, even if other providers register the wallet later', async () => {
  const [seller, buyer] = [await register(), await openBuyer()]
  await register({ wallet: seller.wallet, hasHook: false })
  await register({ wallet: seller.wallet })
  expect(await submit(buyer, [seller.wallet])).toBe('accepted')
  expect(hook.asked().map(({ providerId }) => providerId)).toEqual([seller.providerId])
  const open = await register({ hasHook: false })
  await register({ wallet: open.wallet })
  hook.clear()
  expect(await submit(buyer, [open.wallet])).toBe('accepted')
  expect(hook.asked()).toEqual([])
})
