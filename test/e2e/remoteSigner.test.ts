import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createRemoteAccount, createRemoteSigner } from '@tollkeeper/chain/remoteSigner'
import type { Keeper, KeeperOptions } from '@tollkeeper/keeper/keeper'
import { serve } from '@tollkeeper/runtime/serve'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import type { Address } from 'viem'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { createStackGateway } from '../support/keeperGateway.ts'
import {
  attemptsOf,
  expectUnharmed,
  queueOneDue,
  startRecording,
  testClient,
  transactionsOf,
  whileRunning,
} from '../support/keeperScenes.ts'
import { type QueuedPayment, useKeeperStack, walletAccount, walletKey } from '../support/keeperStack.ts'
import { findBreaches } from '../support/ledger.ts'
import { killAll, type RunningCommand, root, runCommand } from '../support/processes.ts'
import { type SignerMood, startSigner, type TestSigner } from '../support/signer.ts'
import { signPair } from '../support/submit.ts'
import { until } from '../support/until.ts'

// Keepers whose wallet key is held by another process, which may be slow, down, misconfigured, or a
// stranger's.

const stack = useKeeperStack({ rebroadcastAfterMs: 300, replaceAfterMs: 1_500, leaseMs: 3_000 })
const keys = [walletKey(3), walletKey(4)]
const [address, other] = [walletAccount(3).address, walletAccount(4).address].map(
  (one) => one.toLowerCase() as Address,
) as [Address, Address]
const chainId = 31_337

let signer: TestSigner
let offset = 0
beforeAll(async () => {
  signer = await startSigner({ keys, chainId })
})
afterEach(() => signer.set({}))
afterAll(() => signer?.kill())

const remoteAccount = (of: Address, url = signer.url, timeoutMs = 1_000) => {
  const one = createRemoteSigner({ url, timeoutMs })
  return createRemoteAccount(of, () => one)
}
const keeperOf = (more: Partial<KeeperOptions> = {}) =>
  stack.keeper({ accounts: [remoteAccount(address)], now: () => new Date(Date.now() + offset), ...more })

const nonceOf = (of: Address) => stack.served.client.getTransactionCount({ address: of })

async function failuresOf(keeper: Keeper, code: string): Promise<number> {
  const text = await (await keeper.app.request('/metrics')).text()
  const line = new RegExp(`^tollkeeper_signer_failures_total\\{.*code="${code}"\\} (\\d+)$`, 'm')
  return Number(line.exec(text)?.[1] ?? 0)
}

async function readinessOf(keeper: Keeper) {
  const { status, checks } = (await (await keeper.app.request('/readyz')).json()) as {
    status: string
    checks: { name: string; ok: boolean; optional?: true; detail?: string }[]
  }
  return { status, signer: checks.find(({ name }) => name === `signer localhost ${address}`) }
}

describe('a signer that signs something else, or nothing', () => {
  const moods: [string, SignerMood, string, RegExp][] = [
    ['for another chain', { changes: { chainId: 8453 } }, 'signer_mismatch', /for chain 8453, not 31337/],
    ['with another key', { withKey: walletKey(5) }, 'signer_mismatch', /not signed by the key/],
    ['to another receiver', { changes: { to: other } }, 'signer_mismatch', /differs in to/],
    ['nothing and answers with garbage', { text: '{"result":' }, 'signer_mismatch', /not a transaction/],
    ['nothing within its time limit', { holds: true }, 'signer_unavailable', /no response in time/],
    ['nothing because it fails', { status: 500 }, 'signer_unavailable', /HTTP status 500/],
  ]

  test.each(moods)(
    'error: if the signer signs %s, the keeper stores and sends nothing, and reports the fault in /readyz and a metric',
    async (_, mood, code, message) => {
      const nonce = await nonceOf(address)
      signer.set(mood)
      const payment = await queueOneDue(stack)
      const keeper = keeperOf()
      await whileRunning(keeper, async () => {
        await until('it is counted', async () => (await failuresOf(keeper, code)) > 0)
        expect(await readinessOf(keeper)).toMatchObject({
          status: 'unavailable',
          signer: { ok: false, detail: expect.stringMatching(message) },
        })
        await until('its batch is released', async () => (await openBatches()) === 0)
        expect(await transactionsOf(stack, [payment])).toEqual([])
        expect([await nonceOf(address), await attemptsOf(stack, [payment])]).toEqual([nonce, [0]])

        // After a pause, the keeper tries the signer again and finds it healthy.
        signer.set({})
        offset += 16_000
        await until('it is settled', () => stack.isSettled([payment]))
        expect(await readinessOf(keeper)).toMatchObject({ signer: { ok: true } })
      })
      await expectUnharmed(stack, [payment])
      expect(await findBreaches(stack.database)).toEqual([])
    },
  )
})

async function openBatches(): Promise<number> {
  const rows = await stack.database`select from batch where state in ('claimed', 'broadcast')`
  return rows.length
}

/** Queues one payment after another until the signer gets a request. */
async function queueUntilAsked(): Promise<QueuedPayment> {
  const before = signer.asked.length
  for (;;) {
    const payment = await queueOneDue(stack)
    await until('it is settled, or the signer is asked', async () => {
      return signer.asked.length > before || (await stack.isSettled([payment]))
    })
    if (!(await stack.isSettled([payment]))) return payment
  }
}

test('behavior: while a wallet’s signer is slow, the keeper settles from another wallet; once the signer fails, the other wallet also settles the waiting payment', async () => {
  signer.set({ holds: true })
  const slow = remoteAccount(address, signer.url, 200_000)
  const keeper = keeperOf({ accounts: [slow, walletAccount(1)] })
  await whileRunning(keeper, async () => {
    const held = await queueUntilAsked()
    const later = await queueOneDue(stack)
    await until('another wallet settles', () => stack.isSettled([later]))
    expect(await failuresOf(keeper, 'signer_unavailable')).toBe(0)
    signer.set({ status: 503 })
    await until('the other wallet has its batch', () => stack.isSettled([held]))
    // The keeper is ready, because other wallets can settle, and reports the problem.
    expect(await readinessOf(keeper)).toMatchObject({
      status: 'degraded',
      signer: { ok: false, optional: true },
    })
    await expectUnharmed(stack, [held, later])
  })
})

test('behavior: the keeper tracks a sent transaction until it is mined even if its signer fails', async () => {
  const chain = testClient(stack)
  const payment = await queueOneDue(stack)
  let out: { hash: string }[] = []
  await chain.setAutomine(false)
  const keeper = keeperOf()
  await whileRunning(keeper, async () => {
    await until('it is out', async () => (await transactionsOf(stack, [payment])).length > 0)
    signer.set({ status: 503 })
    await until('a replacement is refused', async () => (await failuresOf(keeper, 'signer_unavailable')) > 0)
    out = await transactionsOf(stack, [payment])
    await chain.setAutomine(true)
    await chain.mine({ blocks: 1 })
    await until('it is settled', () => stack.isSettled([payment]))
  })
  const hashes = (all: typeof out) => all.map(({ hash }) => hash)
  expect(hashes(await transactionsOf(stack, [payment]))).toEqual(hashes(out))
  offset += 16_000
})

test('behavior: if a keeper dies after storing a transaction, the next keeper sends the stored bytes without asking the signer', async () => {
  const mortal = await startSigner({ keys, chainId })
  const account = () => remoteAccount(address, mortal.url)
  let isStored = false
  const first = keeperOf({
    accounts: [account()],
    checkpoint(name) {
      if (name !== 'after-write-ahead' && !isStored) return
      isStored = true
      throw new Error('dead')
    },
  })
  const payment = await queueOneDue(stack)
  await whileRunning(first, () => until('it is stored', () => isStored))
  const [stored] = await transactionsOf(stack, [payment])
  await mortal.kill()
  await whileRunning(keeperOf({ accounts: [account()] }), () =>
    until('it is settled', () => stack.isSettled([payment])),
  )
  expect(await transactionsOf(stack, [payment])).toMatchObject([{ hash: stored?.hash }])
  await expectUnharmed(stack, [payment])
  offset += 16_000
})

test('error: a submission gets an immediate error if nothing can be signed', async () => {
  signer.set({ status: 503 })
  const [buyer] = await stack.buyers(1, 50_000n)
  const transfers = (await signPair(stack, buyer)).map(encodePayload)
  const keeper = keeperOf()
  await whileRunning(keeper, async () => {
    const response = await keeper.app.request('/submit', {
      method: 'POST',
      headers: { authorization: `Bearer ${stack.grantedKey}` },
      body: JSON.stringify({ network: 'localhost', transfers }),
    })
    expect([response.status, await response.json()]).toMatchObject([503, { code: 'dependency_unavailable' }])
  })
  offset += 16_000
})

describe('keepers and signers as processes, over TLS', () => {
  const file = (name: string) => join(root, 'test/support/tls', name)
  const { fingerprint256 } = new X509Certificate(readFileSync(file('server.pem')))
  const tls = { certFile: file('server.pem'), keyFile: file('server.key'), clients: [fingerprint256] }
  let closed: TestSigner
  const running = new Set<RunningCommand>()
  beforeAll(async () => {
    closed = await startSigner({ keys, chainId, tls })
  })
  afterEach(async () => {
    await Promise.all([...running].map(killAll))
    running.clear()
  })
  afterAll(() => closed?.kill())

  function start(change: Record<string, string> = {}): RunningCommand {
    const keeper = runCommand([process.execPath, 'keeper/main.ts'], {
      ...stack.env,
      KEEPER_SIGNER_URL: closed.url.replace('//', '//keeper:secret@'),
      KEEPER_SIGNER_ADDRESSES: other,
      KEEPER_SIGNER_CA_FILE: file('ca.pem'),
      KEEPER_SIGNER_CERT_FILE: file('server.pem'),
      KEEPER_SIGNER_KEY_FILE: file('server.key'),
      KEEPER_PORT: '0',
      KEEPER_POLL_MS: '100',
      KEEPER_LEASE_MS: '3000',
      PRIORITY_FEE_WEI: '0',
      TRIGGER_MIN_AGE_SECONDS: '0',
      ...change,
    })
    running.add(keeper)
    return keeper
  }

  test('behavior: if a keeper is killed while the signer holds its request, the next keeper asks the signer again and pays once', async () => {
    const nonce = await nonceOf(other)
    closed.set({ holds: true })
    const asked = closed.nextAsked()
    const payment = await queueOneDue(stack)
    const first = start()
    await asked
    await killAll(first)
    expect(await transactionsOf(stack, [payment])).toEqual([])
    // The signer now answers the earlier request. No one waits for that signature, and nothing uses it.
    closed.set({})
    const second = start()
    await until('it is settled', () => stack.isSettled([payment]))
    expect(await nonceOf(other)).toBe(nonce + 1)
    expect((await transactionsOf(stack, [payment])).map((one) => Number(one.nonce))).toEqual([nonce])
    await expectUnharmed(stack, [payment])
    second.child.kill('SIGTERM')
    expect(await second.exited).toBe(0)
    expect(second.output()).toContain('batch signed')
    const basic = `Basic ${Buffer.from('keeper:secret').toString('base64')}`
    expect(new Set(closed.asked.map(({ authorization }) => authorization))).toEqual(new Set([basic]))
    expect(second.output()).not.toContain('secret')
  })

  test('error: if the signer’s certificate is from an unknown authority, the keeper keeps running but signs nothing, and names the reason', async () => {
    const before = closed.asked.length
    const payment = await queueOneDue(stack)
    const keeper = start({ KEEPER_SIGNER_CA_FILE: '' })
    const line = await keeper.line(/the signer returned no usable signature/)
    expect(JSON.parse(line)).toMatchObject({ code: 'signer_unavailable', wallet: other })
    expect(line).toMatch(/UNABLE_TO_(GET_ISSUER_CERT_LOCALLY|VERIFY_LEAF_SIGNATURE)/)
    const { port } = JSON.parse(await keeper.line(/listening/)) as { port: number }
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`)
    expect(ready.status).toBe(503)
    expect(await ready.text()).toMatch(/signer localhost.*UNABLE_TO_/)
    expect(closed.asked).toHaveLength(before)
    await killAll(keeper)
    await stack.database`update wallet_lease set paused_until = null, paused_reason = null`
    start()
    await until('it is settled', () => stack.isSettled([payment]))
  })

  test('behavior: supports a remote signer for a keeper without a database', async () => {
    const recording = startRecording(stack)
    const gateway = await serve(createStackGateway(stack), {
      host: '127.0.0.1',
      port: 0,
      portVariable: 'API_PORT',
    })
    const nonce = await nonceOf(other)
    const payment = await queueOneDue(stack)
    const url = `http://127.0.0.1:${gateway.port}`
    const keeper = start({ KEEPER_GATEWAY_URL: url, DATABASE_URL: '', KEEPER_PORT: '' })
    await until('it is settled', () => stack.isSettled([payment]))
    expect(await nonceOf(other)).toBe(nonce + 1)
    expect(keeper.output()).not.toContain('secret')
    await killAll(keeper)
    await gateway.close()
    await recording.stop()
  })
})
