import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { App } from '@tollkeeper/api/http/app'
import { type Claim, claimPayments } from '@tollkeeper/ledger/batches/claims'
import { acquireLease } from '@tollkeeper/ledger/batches/leases'
import { holdPayments } from '@tollkeeper/ledger/queue/stages'
import type { Loop } from '@tollkeeper/runtime/repeat'
import { serve } from '@tollkeeper/runtime/serve'
import { encodeSettle, type SettlementItem } from '@tollkeeper/sdk/protocol/batchSettlement'
import { encodePayload, parsePayload } from '@tollkeeper/sdk/protocol/payload'
import {
  type Address,
  createWalletClient,
  encodeFunctionData,
  type Hash,
  type Hex,
  http,
  multicall3Abi,
} from 'viem'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { multicall3Address } from '../../apps/devstack/chain/prepareChain.ts'
import { backdate } from '../support/backdate.ts'
import { cliPath } from '../support/cli.ts'
import { call, fetchChallenge, openShop, type Shop, sign } from '../support/gateway.ts'
import { createStackGateway } from '../support/keeperGateway.ts'
import {
  attemptsOf,
  hourAgo,
  queueDue,
  settleAll,
  testClient,
  whileRunning,
} from '../support/keeperScenes.ts'
import {
  type KeeperStack,
  platformWallet,
  type QueuedPayment,
  startKeeperStack,
  useKeeperStack,
  walletAccount,
  walletKey,
} from '../support/keeperStack.ts'
import { failPayments } from '../support/paymentPosition.ts'
import { type RunningCommand, runCommand } from '../support/processes.ts'
import { startRecorder } from '../support/recorder.ts'
import { until } from '../support/until.ts'
import { randomHex } from '../support/usdc.ts'

const stack = useKeeperStack()
let app: App
let server: Awaited<ReturnType<typeof serve>>
let folder: string
let shop: Shop
let recorder: Loop
beforeAll(async () => {
  app = createStackGateway(stack)
  server = await serve(app, { host: '127.0.0.1', port: 0, portVariable: 'API_PORT' })
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-stranger-'))
  shop = await openShop(app)
  recorder = startRecorder(stack)
})
afterAll(async () => {
  await recorder?.stop()
  await server?.close()
  await rm(folder, { recursive: true, force: true })
})

/** Buys through the gateway, and makes the payment an hour old. */
async function buy(): Promise<string> {
  const [buyer] = await stack.buyers(1, 1_000_000n)
  const challenge = await fetchChallenge(app, shop)
  const payloads = await Promise.all(
    ([0, 1] as const).map(async (half) => encodePayload(await sign(stack.served, buyer, challenge, half))),
  )
  const { body } = await call<{ paymentId: string }>(app, 'POST', '/verify', {
    json: {
      macaroon: challenge.macaroon,
      payloads,
      providerId: shop.providerId,
      endpointId: shop.endpointId,
    },
  })
  await backdate(stack.database, body, 3_600_000)
  return body.paymentId
}

type Pending = { batches: { trigger: string; feeRecipient: string; payments: string[][] }[] }

async function readPending(query = ''): Promise<Pending> {
  const { status, body } = await call<Pending>(app, 'GET', `/settlements/pending?network=localhost${query}`)
  expect(status).toBe(200)
  return body
}

describe('GET /settlements/pending', () => {
  test('default: lists due payments with their signed authorizations, which can’t be voided afterwards', async () => {
    expect((await readPending()).batches).toEqual([])
    const [young] = await stack.buyers(1, 50_000n)
    if (young) await stack.queue({ buyer: young, price: 50_000n })
    expect((await readPending()).batches).toEqual([])

    const paymentId = await buy()
    const [batch, ...others] = (await readPending()).batches
    expect(others).toEqual([])
    // Payments that aren't due yet join the batch, as they do in the keeper's own batches.
    expect(batch).toMatchObject({ trigger: 'time', feeRecipient: platformWallet })
    expect(batch?.payments).toHaveLength(2)
    const [provider, fee] = batch?.payments[0]?.map(parsePayload) ?? []
    expect(provider).toMatchObject({ to: shop.wallet, value: 47_500n })
    expect(fee).toMatchObject({ to: platformWallet, value: 2_500n })

    const [row] = await stack.database<{ publishedAt: Date | null }[]>`
      select published_at as "publishedAt" from publication where payment_id = ${paymentId}`
    expect(row?.publishedAt).toBeInstanceOf(Date)
    const voided = await call(app, 'POST', `/payments/${paymentId}/void`, { key: shop.key, json: {} })
    expect(voided.status).toBe(409)
  })

  test('behavior: publishes payments that are too expensive for the operator’s keeper', async () => {
    const [held] = await queueDue(stack, 1)
    const now = new Date()
    const times = { now, until: new Date(now.getTime() + 60_000) }
    await holdPayments(stack.database, [{ paymentId: held.paymentId, reason: 'gas_cost' }], times)
    const published = (await readPending()).batches.flatMap(({ payments }) => payments)
    expect(published).toContainEqual([held.provider, held.fee].map(encodePayload))
    await failPayments(stack.database, [held.paymentId])
  })

  test('behavior: does not publish a voided payment', async () => {
    const before = (await readPending()).batches.flatMap((batch) => batch.payments).length
    const paymentId = await buy()
    expect((await call(app, 'POST', `/payments/${paymentId}/void`, { key: shop.key, json: {} })).status).toBe(
      200,
    )
    expect((await readPending()).batches.flatMap((batch) => batch.payments)).toHaveLength(before)
  })

  test('args: returns an empty second page if the queue fits on the first page', async () => {
    expect((await readPending('&page=3')).batches).toEqual([])
  })

  test('error: returns 404 if PUBLIC_QUEUE is false', async () => {
    const answer = await call(
      createStackGateway(stack, { publicQueue: false }),
      'GET',
      '/settlements/pending',
    )
    expect(answer).toMatchObject({ status: 404, body: { code: 'not_found' } })
  })
})

describe('a keeper without a database', () => {
  async function startStranger(change: Record<string, string> = {}): Promise<RunningCommand> {
    const keyFile = join(folder, 'keeper.key')
    await writeFile(keyFile, walletKey(5))
    return runCommand(
      [
        ...[process.execPath, cliPath, 'keeper', '--gateway', `http://127.0.0.1:${server.port}`],
        ...['--rpc', stack.chain.url, '--network', 'localhost', '--key-file', keyFile],
      ],
      {
        DATABASE_URL: undefined,
        DEPLOYMENTS_FILE: stack.deploymentsFile,
        PRIORITY_FEE_WEI: '0',
        KEEPER_POLL_MS: '100',
        ...change,
      },
    )
  }

  test('behavior: sends nothing without a budget', async () => {
    const nonce = await nonceOf(walletAccount(5).address)
    const stranger = await startStranger({ KEEPER_DAILY_BUDGET_USD: '0.000001' })
    await stranger.line(/gas budget is used up/)
    stranger.child.kill('SIGTERM')
    expect(await stranger.exited).toBe(0)
    expect(await nonceOf(walletAccount(5).address)).toBe(nonce)
  })

  test('default: settles everything while the operator’s keeper is stopped; that keeper repeats nothing after its restart', async () => {
    const payments = await queueDue(stack, 5)
    const paymentId = await buy()
    const stranger = await startStranger({ KEEPER_PORT: '0', METRICS_TOKEN: 'scraper' })
    const [, url = ''] = /(http:\/\/[\d.:]+)/.exec(await stranger.line(/health and metrics on/)) ?? []
    await until('all are settled', () => stack.isSettled(payments))
    expect(await (await fetch(`${url}/healthz`)).json()).toEqual({ status: 'ok' })
    const names = [`rpc localhost`, `gas localhost`, expect.stringMatching(/^loop wallet 0x\w+ localhost$/)]
    const checks = names.map((name) => ({ name, network: 'localhost', ok: true }))
    await expect.poll(async () => (await fetch(`${url}/readyz`)).json()).toEqual({ status: 'ok', checks })
    expect((await fetch(`${url}/metrics`)).status).toBe(401)
    const scraped = await fetch(`${url}/metrics`, { headers: { authorization: 'Bearer scraper' } })
    expect(await scraped.text()).toMatch(/^tollkeeper_broadcasts_total\{.*kind="settle".*\} [1-9]/m)
    expect((await fetch(`${url}/submit`, { method: 'POST' })).status).toBe(404)
    await until('the gateway shows it as settled', async () => {
      const { body } = await call(app, 'GET', `/payments/${paymentId}`)
      return body.payment_status === 'settled'
    })
    stranger.child.kill('SIGTERM')
    expect(await stranger.exited).toBe(0)
    expect(await stranger.survivors()).toEqual([])
    expect(stranger.output()).not.toContain(walletKey(5).slice(2))

    // The receipt names the stranger's transaction once that is confirmed.
    await testClient(stack).mine({ blocks: 1 })
    const [half] = await stack.halves(payments[0] as QueuedPayment)
    await until('the receipt has the hash', async () => {
      const { body } = await call<{ receipt: string }>(app, 'GET', `/receipts/${paymentId}`)
      const claims = JSON.parse(Buffer.from(body.receipt.split('.')[1] ?? '', 'base64url').toString('utf8'))
      return claims.transactionHash === half?.txHash
    })
    const { body: listed } = await call<{ batches: { tx_hash: string; payment_count: number }[] }>(
      app,
      'GET',
      `/settlements/batches?wallet=${shop.wallet}`,
    )
    expect(listed.batches).toContainEqual(expect.objectContaining({ tx_hash: half?.txHash }))

    const nonce = await nonceOf(walletAccount(0).address)
    const later = await queueDue(stack, 1)
    await settleAll(stack, later)
    // One transaction is sent, for the payment that was made later.
    expect(await nonceOf(walletAccount(0).address)).toBe(nonce + 1)
    expect(await attemptsOf(stack, payments)).toEqual([0])
  })

  test('behavior: settles the payments in a dead keeper’s batch once they are published after a minute', async () => {
    const payments = await queueDue(stack, 2)
    // Creates the state that a keeper leaves if it claims a batch and dies. No other keeper has the key of its wallet.
    const { chainId } = stack.served.network
    const address = randomHex(20)
    const lease = await acquireLease(stack.database, { chainId, address, holder: 'gone', ttlMs: 3_000 })
    if (!lease) throw new Error('no lease')
    const claim: Claim = {
      batchId: randomHex(32),
      token: stack.served.token,
      feeRecipient: platformWallet,
      trigger: 'time',
      lane: 'shared',
      paymentIds: payments.map(({ paymentId }) => paymentId),
    }
    const { batch } = await claimPayments(stack.database, lease, claim, new Date())
    if (!batch) throw new Error('nothing claimed')
    expect((await readPending()).batches).toEqual([])
    await stack.database`update batch set created_at = created_at - interval '61 seconds' where id = ${batch.id}`
    const stranger = await startStranger()
    await until('all are settled', () => stack.isSettled(payments))
    stranger.child.kill('SIGTERM')
    await stranger.exited
    await whileRunning(stack.keeper(), () =>
      until('the batch is finalized', async () => {
        const [row] = await stack.database<{ result: string | null }[]>`
          select result from batch where id = ${batch.id}`
        return row?.result === 'released'
      }),
    )
    expect(await attemptsOf(stack, payments)).toEqual([0])
  })
})

describe('strangers can change only their own gas bill', () => {
  test('behavior: a forged AuthorizationFailed event doesn’t fail the payment', async () => {
    const [victim, own] = await queueDue(stack, 2)
    // A wrong signature for the victim's nonce, next to a payment that settles, makes the contract report
    // that the victim's payment failed.
    const forged = { ...victim.provider, signature: own.provider.signature }
    const { status } = await settleAsStranger([{ authorization: forged }, pairOf(own)])
    expect(status).toBe('success')
    await expectSettledByOperator([victim, own])
  })

  test('behavior: if a stranger’s batch has too little gas for all of its payments, the operator’s keeper settles the remaining payments', async () => {
    const payments = await queueDue(stack, 3)
    const { status } = await settleAsStranger(payments.map(pairOf), { gas: 330_000n })
    expect(status).toBe('success')
    await until('one is settled', async () => {
      const settled = await Promise.all(payments.map((payment) => stack.isSettled([payment])))
      return settled.filter(Boolean).length > 0
    })
    expect(await stack.isSettled(payments)).toBe(false)
    await expectSettledByOperator(payments)
  })

  test('behavior: a copied batchId that is mined before the operator’s batch doesn’t delay payments', async () => {
    const payments = await queueDue(stack, 3)
    const [first] = payments
    if (!first) throw new Error('nothing queued')
    const chain = testClient(stack)
    await chain.setAutomine(false)
    await whileRunning(stack.keeper(), async () => {
      const find = () => stack.database<{ batchId: Hex }[]>`
        select b.batch_id as "batchId" from batch b join transaction t on t.batch_id = b.id
        where b.state = 'broadcast' and t.broadcast_at is not null`
      await until('the batch is out', async () => (await find()).length > 0)
      const [batch] = await find()
      await sendAsStranger([pairOf(first)], batch ? { batchId: batch.batchId } : {})
      await chain.mine({ blocks: 1 })
      await chain.setAutomine(true)
      await until('all are settled', () => stack.isSettled(payments))
    })
    await expectSettledByOperator(payments)
  })

  test('behavior: records both calls of `settle` that a wrapper makes in one transaction', async () => {
    const payments = await queueDue(stack, 2)
    const calls = payments.map((payment) => ({
      target: stack.served.deployment.batchSettlement,
      allowFailure: false,
      callData: encode([pairOf(payment)], `0x${'77'.repeat(32)}`),
    }))
    const data = encodeFunctionData({ abi: multicall3Abi, functionName: 'aggregate3', args: [calls] })
    const hash = await stranger().sendTransaction({
      to: multicall3Address,
      data,
      gas: 1_000_000n,
      chain: null,
    })
    await stack.served.client.waitForTransactionReceipt({ hash })
    await until('both are settled', () => stack.isSettled(payments))
    const nonce = await nonceOf(walletAccount(0).address)
    const keeper = stack.keeper()
    await whileRunning(keeper, async () => {
      const later = await queueDue(stack, 1)
      await until('the next one is settled', () => stack.isSettled(later))
    })
    expect(await nonceOf(walletAccount(0).address)).toBe(nonce + 1)
    await expectSettledByOperator(payments)
  })

  async function expectSettledByOperator(payments: QueuedPayment[]): Promise<void> {
    await settleAll(stack, payments)
    expect(await attemptsOf(stack, payments)).toEqual([0])
    for (const { provider } of payments) expect(await stack.balanceOf(provider.from)).toBe(0n)
  }
})

test('behavior: moves the money once if two operators with separate databases have the same payments', async () => {
  const payments = await queueDue(stack, 4)
  const other = await startKeeperStack({}, { chain: stack.chain })
  try {
    await copyPayments(other, payments)
    const keepers = [
      stack.keeper({ accounts: [walletAccount(1)] }),
      other.keeper({ accounts: [walletAccount(2)] }),
    ]
    const before = await stack.balanceOf(platformWallet)
    for (const keeper of keepers) keeper.start()
    await until('all are settled for this operator', () => stack.isSettled(payments))
    await until('all are settled for the other operator', () => other.isSettled(payments))
    await until('no transaction is in flight', async () => {
      const open = await Promise.all(
        [stack, other].map(
          ({ database }) => database`select from batch where state in ('claimed', 'broadcast')`,
        ),
      )
      return open.flat().length === 0
    })
    await Promise.all(keepers.map((keeper) => keeper.stop()))
    expect((await stack.balanceOf(platformWallet)) - before).toBe(4n * 2_500n)
    for (const { provider } of payments) expect(await stack.balanceOf(provider.from)).toBe(0n)
    expect(await attemptsOf(stack, payments)).toEqual([0])
    expect(await attemptsOf(other, payments)).toEqual([0])
  } finally {
    await other.close()
  }
})

/** Copies payments, as if another gateway had accepted them as well. */
async function copyPayments(other: KeeperStack, payments: QueuedPayment[]): Promise<void> {
  const buyer = walletAccount(0) // `copyOf` brings the signatures, so this account signs nothing.
  for (const copyOf of payments) {
    const { paymentId } = copyOf
    await other.queue({ buyer, price: 50_000n, acceptedAt: hourAgo(), copyOf, paymentId })
  }
}

function stranger() {
  return createWalletClient({ account: walletAccount(8), transport: http(stack.chain.url) })
}

function pairOf({ provider, fee }: QueuedPayment): SettlementItem {
  return { authorization: provider, fee }
}

function encode(items: SettlementItem[], batchId: Hex): Hex {
  const { token } = stack.served
  return encodeSettle(
    { token, feeRecipient: platformWallet, batchId, trigger: 2, callGasLimit: 120_000n },
    items,
  ).calldata
}

async function sendAsStranger(
  items: SettlementItem[],
  { gas = 1_000_000n, batchId = randomHex(32) }: { gas?: bigint; batchId?: Hex } = {},
): Promise<Hash> {
  const to = stack.served.deployment.batchSettlement
  const fees = { maxFeePerGas: 50_000_000_000n, maxPriorityFeePerGas: 2_000_000_000n }
  return stranger().sendTransaction({ to, data: encode(items, batchId), gas, ...fees, chain: null })
}

async function settleAsStranger(...args: Parameters<typeof sendAsStranger>) {
  return stack.served.client.waitForTransactionReceipt({ hash: await sendAsStranger(...args) })
}

async function nonceOf(address: Address): Promise<number> {
  return stack.served.client.getTransactionCount({ address })
}
