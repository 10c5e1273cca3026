import { setTimeout as wait } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type CutProxy, startCutProxy } from '../support/cutProxy.ts'
import { mine, queueDue, queueFor, testClient, transactionsOf } from '../support/keeperScenes.ts'
import { useKeeperStack, walletAccount, walletKey } from '../support/keeperStack.ts'
import { findBlamed, findBreaches, findMisplaced, findUnknownTransactions } from '../support/ledger.ts'
import { type RunningCommand, runCommand } from '../support/processes.ts'
import { until } from '../support/until.ts'

// A keeper process, configured as in production, loses its database or its RPC for a while. `npm test` runs a short outage, and `npm run
// test:chaos -- outages --seconds 30` a long one.

const seconds = Number(process.env.OUTAGE_SECONDS ?? 4)

const stack = useKeeperStack({}, { own: true })
let postgres: CutProxy
let rpc: CutProxy
let running: RunningCommand | null = null
beforeAll(async () => {
  const [database, chain] = [new URL(stack.databaseUrl), new URL(stack.chain.url)]
  postgres = await startCutProxy(database.hostname, Number(database.port))
  rpc = await startCutProxy(chain.hostname, Number(chain.port))
})
afterEach(async () => {
  postgres.mend()
  rpc.mend()
  await testClient(stack).setAutomine(true)
  running?.child.kill('SIGKILL')
  await running?.exited
  running = null
})
afterAll(async () => {
  await postgres?.close()
  await rpc?.close()
})

async function startKeeper(): Promise<{ keeper: RunningCommand; url: string }> {
  const database = new URL(stack.databaseUrl)
  database.hostname = '127.0.0.1'
  database.port = String(postgres.port)
  const keeper = runCommand([process.execPath, 'keeper/main.ts'], {
    ...stack.env,
    DATABASE_URL: database.href,
    RPC_URL_LOCALHOST: `http://127.0.0.1:${rpc.port}`,
    KEEPER_PRIVATE_KEYS: walletKey(0),
    KEEPER_PORT: '0',
    KEEPER_LEASE_MS: '3000',
    REPLACE_AFTER_MS: '5000',
    PRIORITY_FEE_WEI: '0',
    TRIGGER_MIN_AGE_SECONDS: '0',
  })
  running = keeper
  const { port } = JSON.parse(await keeper.line(/listening/)) as { port: number }
  return { keeper, url: `http://127.0.0.1:${port}` }
}

type Ready = { status: number; failing: string[] }

async function readReady(url: string): Promise<Ready> {
  const response = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(60_000) }).catch((cause) => {
    // The output of a keeper that has ended shows why.
    const { exitCode, signalCode } = running?.child ?? {}
    throw new Error(`no answer (ended: ${signalCode ?? exitCode ?? 'no'}):\n${running?.output()}`, { cause })
  })
  const { checks } = (await response.json()) as { checks: { name: string; ok: boolean }[] }
  return { status: response.status, failing: checks.filter(({ ok }) => !ok).map(({ name }) => name) }
}

async function countRows(): Promise<{ payments: number; authorizations: number }> {
  const [row] = await stack.database<[{ payments: number; authorizations: number }]>`
    select (select count(*)::int from payment) as payments,
      (select count(*)::int from signed_authorization) as authorizations`
  return row
}

/** Starts a keeper whose first batch is broadcast but not mined. */
async function beginBatch() {
  const { keeper, url } = await startKeeper()
  const { pid } = keeper.child
  const startBlock = (await stack.served.client.getBlockNumber({ cacheTime: 0 })) + 1n
  await until('it is ready', async () => (await readReady(url)).status === 200)
  const buyers = await stack.buyers(3, 50_000n)
  await testClient(stack).setAutomine(false)
  const payments = await queueFor(stack, buyers)
  await until('their batch is broadcast', async () => {
    return (await transactionsOf(stack, payments)).some(({ isOut }) => isOut)
  })
  let rows: Awaited<ReturnType<typeof countRows>>
  return {
    url,
    startBlock,
    payments,
    /** Lets chain and gateway continue: the batch is mined, and more payments are accepted. */
    async goOn() {
      await testClient(stack).setAutomine(true)
      await mine(stack, 1)
      payments.push(...(await queueDue(stack, 2)))
      rows = await countRows()
    },
    /** Checks that the same process settled everything in two transactions, and that no rows were lost or added. */
    async expectAllSettled() {
      await until('all are settled', () => stack.isSettled(payments))
      await until('/readyz reports success', async () => (await readReady(url)).status === 200)
      expect(keeper.child).toMatchObject({ pid, exitCode: null, signalCode: null })
      expect(await countRows()).toEqual(rows)
      expect(await findMisplaced(stack, payments, startBlock)).toEqual([])
      expect(await findBreaches(stack.database)).toEqual([])
      expect(new Set((await transactionsOf(stack, payments)).map(({ nonce }) => nonce)).size).toBe(2)
    },
  }
}

describe.each([
  { what: 'Postgres', proxy: () => postgres, named: 'database' },
  { what: 'the RPC', proxy: () => rpc, named: 'rpc localhost' },
])('$what is down', ({ proxy, named }) => {
  test.each(['cut', 'stall'] as const)(
    `behavior: during a %s of ${seconds} s in the middle of a batch, /readyz names the outage, and afterwards the keeper settles everything`,
    async (how) => {
      const { url, startBlock, goOn, expectAllSettled } = await beginBatch()

      proxy()[how]()
      const goneAt = Date.now()
      await goOn()
      await until('/readyz names it', async () => (await readReady(url)).failing.includes(named))
      while (Date.now() - goneAt < seconds * 1_000) {
        expect(await readReady(url)).toMatchObject({ status: 503, failing: expect.arrayContaining([named]) })
        expect((await fetch(`${url}/healthz`)).status).toBe(200)
        await wait(100)
      }
      proxy().mend()

      await expectAllSettled()
      const wallets = [walletAccount(0).address]
      const { database, served } = stack
      expect(await findUnknownTransactions({ database, client: served.client }, wallets, startBlock)).toEqual(
        [],
      )
      expect(await findBlamed(database)).toEqual([])
    },
  )
})

test('behavior: the keeper replaces Postgres connections that stop responding in the middle of a batch, and settles everything', async () => {
  const { goOn, expectAllSettled } = await beginBatch()

  // New connections work. Only the keeper can notice that the existing ones are silent, and only it can end them.
  postgres.abandon()
  await goOn()

  await expectAllSettled()
})
