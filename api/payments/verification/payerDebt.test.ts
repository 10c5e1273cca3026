import { tmpdir } from 'node:os'
import { readEvidence } from '@tollkeeper/chain/evidence'
import { recordEvents } from '@tollkeeper/ledger/facts/record'
import { isolatePayers } from '@tollkeeper/ledger/queue/isolation'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { createWalletClient, type Hex, http, parseAbi } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { describe, expect, test } from 'vitest'
import { adminAccountIndex, devAccount } from '../../../apps/devstack/chain/accounts.ts'
import { runCli } from '../../../test/support/cli.ts'
import {
  call,
  fetchChallenge,
  settleDirectly,
  signedBody,
  type VerifyBody,
} from '../../../test/support/gateway.ts'
import { positionOf } from '../../../test/support/paymentPosition.ts'
import { cancelDirectly, randomHex } from '../../../test/support/usdc.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import type { App } from '../../http/app.ts'

// Payers that are served and then don't pay. A payment that USDC would refuse is refused before the service. A payment that turns out to be unpaid
// only after the service remains a debt.

const gateway = useGateway()
const shop = useShop(gateway)
type Verified = { code?: string; paymentId: string }
const verify = (body: VerifyBody, app: App = gateway.app) =>
  call<Verified>(app, 'POST', '/verify', { json: body })
const outcome = async (body: VerifyBody, app?: App) => (await verify(body, app)).body.code ?? 'verified'
/** Starts a process that has nothing cached. */
const fresh = () => gateway.another()

const nonceOf = (body: VerifyBody, half: 0 | 1) => parsePayload(body.payloads[half]).nonce

/** Cancels a nonce on chain as the payer would, and records it. */
async function cancel(payer: PrivateKeyAccount, nonce: Hex): Promise<void> {
  const { database, served } = gateway
  const events = readEvidence(await cancelDirectly(gateway, payer, nonce), served, 1n)
  const scope = { chainId: served.network.chainId, token: served.token }
  await database.begin((tx) => recordEvents(tx, scope, events, 'index'))
  await gateway.index()
}

/** The actions of the token's administrator. */
async function administer(
  functionName: 'pause' | 'unpause' | 'blacklist' | 'unBlacklist',
  account?: Hex,
): Promise<void> {
  const admin = createWalletClient({
    account: devAccount(adminAccountIndex),
    transport: http(gateway.chain.url),
  })
  const hash = await admin.writeContract({
    address: gateway.served.token,
    abi: parseAbi([
      'function pause()',
      'function unpause()',
      'function blacklist(address)',
      'function unBlacklist(address)',
    ]),
    functionName,
    args: account === undefined ? [] : [account],
    chain: null,
  } as Parameters<typeof admin.writeContract>[0])
  await gateway.served.client.waitForTransactionReceipt({ hash })
}

describe('before the service', () => {
  test.each([
    ['bound', 0],
    ['bound', 1],
    ['random', 0],
    ['random', 1],
  ] as const)('behavior: refuses a payment with %s nonces if nonce %i was cancelled', async (kind, half) => {
    const payer = await gateway.buyer(1_000_000n)
    const random = () => (kind === 'random' ? { nonce: randomHex(32) } : {})
    const body = await signedBody(gateway, shop, payer, [random(), random()])
    await cancelDirectly(gateway, payer, nonceOf(body, half))
    const answer = await verify(body, fresh())
    expect([answer.status, answer.body]).toMatchObject([
      409,
      { code: 'authorization_used', payload: `payloads[${half}]` },
    ])
  })

  test('behavior: reads the payer’s account, the nonces and the token’s state in one call to the node', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const calls: string[] = []
    const { client } = gateway.served
    const counting = new Proxy(client, {
      get: (target, name: keyof typeof client) => {
        const value = target[name]
        if (typeof value !== 'function') return value
        return (...args: unknown[]) => {
          calls.push(name)
          return (value as (...args: unknown[]) => unknown).apply(target, args)
        }
      },
    })
    const app = gateway.withOptions({ networks: [{ ...gateway.served, client: counting }] })
    const random = await signedBody(gateway, shop, payer, [
      { nonce: randomHex(32) },
      { nonce: randomHex(32) },
    ])
    const bound = await signedBody(gateway, shop, payer)
    gateway.setNow(Date.now())
    // The challenge checks that the payee can be paid, so the verifications below need no call for that.
    await fetchChallenge(app, shop)
    calls.length = 0
    expect(await outcome(random, app)).toBe('verified')
    expect(calls).toEqual(['getBlockNumber', 'readContract'])
    // A bound nonce can't belong to another payment, so the cached state of the payer suffices.
    expect(await outcome(bound, app)).toBe('verified')
    expect(calls).toEqual(['getBlockNumber', 'readContract'])
  })

  test('behavior: refuses a payer while it is blacklisted by USDC', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const body = await signedBody(gateway, shop, payer)
    await administer('blacklist', payer.address)
    const answer = await verify(body, fresh())
    expect([answer.status, answer.body.code]).toEqual([402, 'payer_blacklisted'])
    await administer('unBlacklist', payer.address)
    expect(await outcome(body, fresh())).toBe('verified')
  })

  test('behavior: while USDC has blacklisted a provider’s wallet, refuses to register it, to issue challenges for it, and to accept payments to it', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const body = await signedBody(gateway, shop, payer)
    const { providerId, endpointId, key, wallet } = shop
    const register = (app: App) =>
      call(app, 'POST', `/providers/${providerId}/wallets`, {
        key,
        json: { network: 'localhost', address: wallet },
      })
    const challenge = (app: App) => call(app, 'POST', '/challenge', { json: { providerId, endpointId } })
    const payee_refused = [422, 'payee_refused']
    await administer('blacklist', wallet)
    try {
      for (const ask of [register, challenge, (app: App) => verify(body, app)]) {
        const { status, body: problem } = await ask(fresh())
        expect([status, problem.code]).toEqual(payee_refused)
      }
      // The buyer's payment was neither accepted nor stored.
      expect(
        await gateway.database`select from payment where payer = ${payer.address.toLowerCase()}`,
      ).toEqual([])
    } finally {
      await administer('unBlacklist', wallet)
    }
    expect((await challenge(fresh())).status).toBe(200)
    expect(await outcome(body, fresh())).toBe('verified')
  })

  test('behavior: serves no one while USDC is paused, and accepts the refused payments afterwards', async () => {
    const body = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
    const app = fresh()
    await administer('pause')
    try {
      const answer = await verify(body, app)
      expect([answer.status, answer.body.code]).toEqual([503, 'token_paused'])
    } finally {
      await administer('unpause')
    }
    // The state that caused a refusal is cached for a tenth of a second.
    await expect.poll(() => outcome(body, app), { interval: 120 }).toBe('verified')
  })
})

describe('after the service', () => {
  test('behavior: a payer that cancels every payment is served once on the same balance, not ten times', async () => {
    const payer = await gateway.buyer(50_000n)
    const outcomes: string[] = []
    for (let n = 0; n < 10; n++) {
      const body = await signedBody(gateway, shop, payer)
      outcomes.push(await outcome(body, fresh()))
      if (outcomes.at(-1) === 'verified') await cancel(payer, nonceOf(body, 0))
    }
    expect(outcomes).toEqual(['verified', ...Array(9).fill('payer_in_debt')])
  })

  test('behavior: reads a payer’s debt less often while its balance suffices, but at least every five minutes', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const cancelled = await signedBody(gateway, shop, payer)
    const began = Date.now()
    const other = openDatabase({
      url: gateway.databaseUrl,
      max: 1,
      applicationName: 'lock',
      limited: false,
    })
    try {
      gateway.setNow(began)
      expect(await outcome(cancelled)).toBe('verified')
      await cancel(payer, nonceOf(cancelled, 0))
      gateway.setNow(began + 60_000)
      await other.begin(async (sql) => {
        await sql`lock table authorization_event in access exclusive mode`
        expect(await outcome(await signedBody(gateway, shop, payer))).toBe('verified')
      })
      gateway.setNow(began + 301_000)
      expect(await outcome(await signedBody(gateway, shop, payer))).toBe('payer_in_debt')
    } finally {
      gateway.setNow(null)
      await other.end()
    }
  })

  test('behavior: a payer that signs many payments in parallel and then cancels them is served no more than the cap', async () => {
    const payer = await gateway.buyer(10_000_000n)
    const capped = () => gateway.another({ payerCaps: { payer: null, newPayer: 100_000n } })
    const bodies = await Promise.all(Array.from({ length: 10 }, () => signedBody(gateway, shop, payer)))
    const app = capped()
    const outcomes = await Promise.all(bodies.map((body) => outcome(body, app)))
    expect(outcomes.filter((each) => each === 'verified').length).toBe(2)
    for (const body of bodies) await cancel(payer, nonceOf(body, 0))
    // One process has cached the payer's state, the other reads it again.
    for (const each of [app, capped()]) {
      expect(['payer_in_debt', 'payer_limit_exceeded']).toContain(
        await outcome(await signedBody(gateway, shop, payer), each),
      )
    }
  })

  test('behavior: a payment whose nonce was used elsewhere remains a debt', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const body = await signedBody(gateway, shop, payer)
    expect(await outcome(body)).toBe('verified')
    const [diverted] = (await signedBody(gateway, shop, payer, [{ nonce: nonceOf(body, 0), value: 1n }, {}]))
      .payloads
    await settleDirectly(gateway, diverted)
    expect(await outcome(await signedBody(gateway, shop, payer), fresh())).toBe('payer_in_debt')
  })

  test('behavior: blocks a payer whose payment failed on chain although its simulation passed, until that payment is settled', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const body = await signedBody(gateway, shop, payer)
    const { paymentId } = (await verify(body)).body
    const { chainId } = gateway.served.network
    const address = payer.address.toLowerCase() as Hex
    await isolatePayers(gateway.database, { chainId, token: gateway.served.token }, [address])
    expect(await outcome(await signedBody(gateway, shop, payer), fresh())).toBe('payer_blocked')
    // Settled alone, the payment succeeds.
    for (const payload of body.payloads) await settleDirectly(gateway, payload)
    expect(await outcome(await signedBody(gateway, shop, payer), fresh())).toBe('verified')
    expect(await positionOf(gateway.database, { paymentId })).toMatchObject({ stage: 'isolated' })
  })

  test('behavior: the operator unblocks a payer whose payments failed on chain', async () => {
    const payer = await gateway.buyer(1_000_000n)
    await verify(await signedBody(gateway, shop, payer))
    const { chainId } = gateway.served.network
    const address = payer.address.toLowerCase() as Hex
    await isolatePayers(gateway.database, { chainId, token: gateway.served.token }, [address])
    const env = { cwd: tmpdir(), env: { DATABASE_URL: gateway.databaseUrl } }
    const unblock = (...flags: string[]) => runCli(['payer', 'unblock', ...flags], env)
    const elsewhere = await unblock(payer.address, '--network', 'base')
    expect([elsewhere.status, elsewhere.stderr]).toEqual([
      2,
      expect.stringContaining(
        `${address} has never paid on base. Check the address and the network (unknown_payer)`,
      ),
    ])
    const stranger = `0x${'ee'.repeat(20)}`
    expect((await unblock(stranger)).stderr).toContain(
      `${stranger} has never paid. Check the address (unknown_payer)`,
    )
    expect(await outcome(await signedBody(gateway, shop, payer), fresh())).toBe('payer_blocked')
    const unblocked = await unblock(payer.address, '--network', 'localhost')
    expect([unblocked.status, unblocked.stdout.split(/\s{2,}|\n/)]).toEqual([
      0,
      [
        'payer',
        'network',
        'failures before',
        'now',
        'payments released',
        address,
        'localhost',
        '1',
        '0',
        '1',
        '',
      ],
    ])
    expect(await outcome(await signedBody(gateway, shop, payer), fresh())).toBe('verified')
    const again = await unblock(payer.address, '--json')
    expect([again.status, JSON.parse(again.stdout)]).toEqual([
      0,
      [{ payer: address, network: 'localhost', failuresBefore: 0, failuresNow: 0, released: 0 }],
    ])
  })

  test('behavior: debts are per payer and token; voided payments are not debts', async () => {
    const [debtor, other] = [await gateway.buyer(1_000_000n), await gateway.buyer(1_000_000n)]
    const body = await signedBody(gateway, shop, debtor)
    const { paymentId } = (await verify(body)).body
    await call(gateway.app, 'POST', `/payments/${paymentId}/void`, { key: shop.key })
    await cancel(debtor, nonceOf(body, 0))
    expect(await outcome(await signedBody(gateway, shop, debtor), fresh())).toBe('verified')
    expect(await outcome(await signedBody(gateway, shop, other), fresh())).toBe('verified')
  })

  test('behavior: the operator sees a debt and can forgive it, which is recorded', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const body = await signedBody(gateway, shop, payer)
    const { paymentId } = (await verify(body)).body
    await cancel(payer, nonceOf(body, 0))
    const env = { cwd: tmpdir(), env: { DATABASE_URL: gateway.databaseUrl } }
    const debt = {
      payer: payer.address.toLowerCase(),
      paymentId,
      amount_usdc: '0.047500',
      network: 'localhost',
    }
    const listed = await runCli(['payer', 'debts', payer.address, '--json'], env)
    expect(JSON.parse(listed.stdout)).toMatchObject([{ ...debt, code: 'authorization_cancelled' }])
    const refused = await runCli(['payer', 'forgive', payer.address], env)
    expect(refused.status).not.toBe(0)
    const elsewhere = ['payer', 'forgive', payer.address, '--reason', 'a test', '--network', 'base']
    expect((await runCli(elsewhere, env)).stderr).toContain('owes nothing')
    const forgiven = await runCli(['payer', 'forgive', payer.address, '--reason', 'a test'], env)
    expect([forgiven.status, forgiven.stdout]).toEqual([0, expect.stringContaining(paymentId)])
    expect((await runCli(['payer', 'debts', payer.address, '--json'], env)).stdout).toBe('[]\n')
    const [row] = await gateway.database`select reason from forgiven_debt where payment_id = ${paymentId}`
    expect(row).toEqual({ reason: 'a test' })
    expect(await outcome(await signedBody(gateway, shop, payer), fresh())).toBe('verified')
  })

  test('behavior: the operator sees the platform’s debt to providers, and can record its payment only for the whole amount', async () => {
    const payee = shop.wallet.toLowerCase()
    const cover = { provider_id: shop.providerId, payee, chain_id: 31_337, payer: `0x${'aa'.repeat(20)}` }
    await gateway.database`insert into covered_default ${gateway.database([
      { ...cover, payment_id: `pay_${'01'.repeat(16)}`, amount: 47_500 },
      { ...cover, payment_id: `pay_${'02'.repeat(16)}`, amount: 2_500 },
    ])}`
    const env = { cwd: tmpdir(), env: { DATABASE_URL: gateway.databaseUrl } }
    const covers = (...flags: string[]) => runCli(['payer', 'covers', '--json', ...flags], env)
    const listed = await covers('--payee', payee)
    expect(JSON.parse(listed.stdout)).toMatchObject([
      { payee, network: 'localhost', amount_usdc: '0.050000', tabs: 2 },
    ])
    const hash = `0x${'cd'.repeat(32)}`
    expect((await covers('--paid', hash)).stderr).toContain('--paid: requires')
    const paid = ['--network', 'localhost', '--payee', payee, '--paid', hash]
    expect((await covers(...paid, '--usdc', '0.04')).stderr).toContain('owes 0.050000 USDC')
    expect((await covers(...paid, '--usdc', '0.05')).stdout).toBe('[]\n')
    const rows = await gateway.database`select paid_tx from covered_default where payee = ${payee}`
    expect(rows).toEqual([{ paid_tx: hash }, { paid_tx: hash }])
  })

  test('behavior: the operator can grant a payer credit, see it, and reset it', async () => {
    const payer = `0x${'bb'.repeat(20)}`
    const env = { cwd: tmpdir(), env: { DATABASE_URL: gateway.databaseUrl } }
    const credit = (...flags: string[]) => runCli(['payer', 'credit', ...flags, '--json'], env)
    const of = [payer, '--network', 'localhost']
    expect((await credit(...of, '--usdc', '50')).stderr).toContain('--reason')
    const granted = await credit(...of, '--usdc', '50', '--reason', 'a contract')
    expect(JSON.parse(granted.stdout)).toMatchObject([
      { payer, network: 'localhost', amount_usdc: '50.000000', reason: 'a contract' },
    ])
    expect((await credit(...of, '--reset')).stdout).toBe('[]\n')
  })
})
