import { openServedNetworks } from '@tollkeeper/chain/servedNetworks'
import type { Keeper } from '@tollkeeper/keeper/keeper'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { createWalletClient, encodeFunctionData, http, numberToHex, parseAbi } from 'viem'
import { describe, expect, test } from 'vitest'
import { priceFeedRuntimeCode } from '../../apps/devstack/chain/generated/predeploys.ts'
import { startChaosRpc } from '../support/chaosRpc.ts'
import { startCutProxy } from '../support/cutProxy.ts'
import {
  checksOf,
  expectUnharmed,
  mineUntil,
  queueDue,
  testClient,
  transactionsOf,
  useChaosRpc,
  whileRunning as whileAtWork,
  whileRecording,
} from '../support/keeperScenes.ts'
import { platformWallet, type QueuedPayment, useKeeperStack, walletAccount } from '../support/keeperStack.ts'
import { positionOf } from '../support/paymentPosition.ts'
import { untilInRecord } from '../support/recorder.ts'
import { until } from '../support/until.ts'
import { randomHex } from '../support/usdc.ts'

// The failures that docs/testing.md lists under "Failures of other keepers".

const stack = useKeeperStack({ rebroadcastAfterMs: 300, replaceAfterMs: 60_000 })
const behind = useChaosRpc(stack, { delayMs: 1_500 }, { timeoutMs: 1_000 })

const sending = 'eth_sendRawTransaction'

/** Runs a task while a keeper runs, and repairs its RPC afterwards. */
function whileRunning<T>(keeper: Keeper, task: () => Promise<T>): Promise<T> {
  return whileAtWork(keeper, task).finally(() => behind.rpc.heal())
}

async function isClaimed(payments: QueuedPayment[]): Promise<boolean> {
  const ids = payments.map((one) => one.paymentId)
  const rows = await stack.database`select 1 from batch_item where payment_id in ${stack.database(ids)}`
  return rows.length > 0
}

describe('failures known from keepers of other projects', () => {
  test.each(['drop-reply', 'already-known', 'duplicate'] as const)(
    'behavior: settles a payment once if the node answers its broadcast with the fault `%s`, because the keeper stores the hash before the broadcast',
    async (fault) => {
      behind.rpc.next(sending, fault)
      const payments = await queueDue(stack, 2)
      await whileRunning(stack.keeper({ networks: [behind.served] }), () =>
        until('they are settled', () => stack.isSettled(payments)),
      )
      expect(await transactionsOf(stack, payments)).toHaveLength(1)
      await expectUnharmed(stack, payments)
    },
  )

  // The buyers got their USDC in the last block, which a node that lags behind doesn't have.
  test.each(['eth_call', '*'])(
    'behavior: counts no attempt for a payment if a lagging node answers calls from an old block (methods: %s)',
    async (method) => {
      await testClient(stack).mine({ blocks: 5 })
      const payments = await queueDue(stack, 2)
      await whileRecording(stack, () => untilInRecord(stack))
      behind.rpc.always(method, 'stale-head')
      await whileRunning(stack.keeper({ networks: [behind.served] }), async () => {
        await until('they are claimed', () => isClaimed(payments))
        const from = behind.rpc.calls.length
        await until(
          'old blocks were answered several times',
          () => behind.rpc.calls.slice(from).filter((call) => call.fault === 'stale-head').length >= 4,
        )
        behind.rpc.heal()
        await until('they are settled', () => stack.isSettled(payments))
      })
      await expectUnharmed(stack, payments)
    },
  )

  test('behavior: continues with the next nonce if another program uses the wallet’s key', async () => {
    const payments = await queueDue(stack)
    const chain = testClient(stack)
    await chain.setAutomine(false)
    let offset = 0
    const keeper = stack.keeper({ now: () => new Date(Date.now() + offset) })
    await whileRunning(keeper, async () => {
      await until('it is out', async () => (await transactionsOf(stack, payments)).length === 1)
      const other = createWalletClient({ account: walletAccount(0), transport: http(stack.chain.url) })
      const [sent] = await transactionsOf(stack, payments)
      await other.sendTransaction({
        to: walletAccount(9).address,
        nonce: Number(sent?.nonce),
        gas: 21_000n,
        maxFeePerGas: 90_000_000_000n,
        maxPriorityFeePerGas: 2_000_000_000n,
        chain: null,
      })
      await chain.mine({ blocks: 1 })
      await chain.setAutomine(true)
      // The keeper considers the transaction lost after it has been missing for ten seconds by the keeper's clock.
      await until('the transaction is seen to be missing', () => false, 1_000).catch(() => {})
      offset = 11_000
      await until('it is settled', () => stack.isSettled(payments))
    })
    const [lost, settled] = await transactionsOf(stack, payments)
    expect(lost).toMatchObject({ result: 'lost', mined: null })
    expect(settled?.nonce).toBe((lost?.nonce ?? 0n) + 1n)
    await expectUnharmed(stack, payments)
  })

  test('behavior: does not treat a broadcast timeout as a failure', async () => {
    behind.rpc.always(sending, 'delay')
    const payments = await queueDue(stack)
    await whileRunning(stack.keeper({ networks: [behind.served] }), () =>
      until('it is settled', () => stack.isSettled(payments)),
    )
    expect(await transactionsOf(stack, payments)).toHaveLength(1)
    await expectUnharmed(stack, payments)
  })

  test('behavior: if the node drops a transaction, sends the same bytes again before offering a higher fee', async () => {
    const payments = await queueDue(stack)
    const chain = testClient(stack)
    await chain.setAutomine(false)
    await whileRunning(stack.keeper(), async () => {
      await until('it is out', async () => (await transactionsOf(stack, payments)).length === 1)
      const [sent] = await transactionsOf(stack, payments)
      if (!sent) throw new Error('nothing was sent')
      await until('the node has it', async () => {
        const found = await stack.served.client.getTransaction({ hash: sent.hash }).catch(() => null)
        return found !== null
      })
      await chain.dropTransaction({ hash: sent.hash })
      await until('the node has it again', async () => {
        const found = await stack.served.client.getTransaction({ hash: sent.hash }).catch(() => null)
        return found !== null
      })
      await chain.mine({ blocks: 1 })
      await chain.setAutomine(true)
      await until('it is settled', () => stack.isSettled(payments))
    })
    expect(await transactionsOf(stack, payments)).toHaveLength(1)
    await expectUnharmed(stack, payments)
  })
})

describe('unavailable dependencies', () => {
  test('behavior: if the first node returns old heads, settles through the healthy second node', async () => {
    const { network, deployment } = stack.served
    await using old = await startChaosRpc({ target: stack.chain.url, staleBlocks: 3 })
    old.always('*', 'stale-head')
    const served = await openServedNetworks([{ network, deployment, rpcUrls: [old.url, stack.chain.url] }])
    const payments = await queueDue(stack, 2)
    await whileRunning(stack.keeper({ networks: served }), () =>
      until('they are settled', () => stack.isSettled(payments)),
    )
    await expectUnharmed(stack, payments)
  })

  test('behavior: while the RPC is down, names it in /readyz and keeps payments queued; continues when the RPC is back', async () => {
    behind.rpc.always('*', 'refuse')
    const payments = await queueDue(stack)
    const keeper = stack.keeper({ networks: [behind.served] })
    await whileRunning(keeper, async () => {
      await until('/readyz names it', async () => (await checksOf(keeper))['rpc localhost'] === false)
      expect(await checksOf(keeper)).toMatchObject({ database: true })
      expect(await transactionsOf(stack, payments)).toEqual([])
      behind.rpc.heal()
      await until('it is settled', () => stack.isSettled(payments))
      await until(
        '/readyz reports it as healthy',
        async () => (await checksOf(keeper))['rpc localhost'] === true,
      )
    })
    await expectUnharmed(stack, payments)
  })

  test('behavior: if Postgres goes down in the middle of a batch, names it in /readyz, and continues without loss when Postgres is back', async () => {
    const url = new URL(stack.databaseUrl)
    const proxy = await startCutProxy(url.hostname, Number(url.port))
    url.hostname = '127.0.0.1'
    url.port = String(proxy.port)
    const database: Database = openDatabase({ url: url.href, applicationName: 'behind a proxy' })
    const payments = await queueDue(stack, 2)
    let wasCut = false
    const keeper = stack.keeper({
      database,
      checkpoint: (name) => {
        if (name !== 'before-broadcast' || wasCut) return
        wasCut = true
        proxy.cut()
      },
    })
    try {
      await whileRunning(keeper, async () => {
        await until('/readyz names it', async () => (await checksOf(keeper)).database === false)
        proxy.mend()
        await until('they are settled', () => stack.isSettled(payments))
        await until('/readyz reports it as healthy', async () => (await checksOf(keeper)).database === true)
      })
      expect(await transactionsOf(stack, payments)).toHaveLength(1)
      await expectUnharmed(stack, payments)
    } finally {
      await database.end({ timeout: 1 })
      await proxy.close()
    }
  })
})

test('behavior: detects contract wallets and settles them in a separate batch', async () => {
  const payments = await queueDue(stack, 4)
  // The code of an ERC-1271 wallet that accepts every signature.
  const alwaysYes = '0x631626ba7e60e01b60005260206000f3'
  const [first, second] = payments
  for (const payment of [first, second]) {
    if (payment) await testClient(stack).setCode({ address: payment.provider.from, bytecode: alwaysYes })
  }
  await whileRunning(stack.keeper(), () => until('all are settled', () => stack.isSettled(payments)))
  const batches = await stack.database<{ count: number }[]>`
    select count(*)::int as count from queue
    where payment_id in ${stack.database(payments.map((one) => one.paymentId))}
    group by batch_id`
  expect(batches).toEqual([{ count: 2 }, { count: 2 }])
  await expectUnharmed(stack, payments)
})

test('behavior: fails an expired payment with `authorization_expired`, and notifies its provider', async () => {
  const [buyer] = await stack.buyers(1, 50_000n)
  const payment = await stack.queue({ buyer, price: 50_000n, validFor: 5 })
  await whileRunning(stack.keeper(), async () => {
    await mineUntil(stack, 'it has expired on chain', async () => {
      const { timestamp } = await stack.served.client.getBlock()
      return timestamp > payment.provider.validBefore
    })
    await until('it failed', async () => {
      const { failureCode, failedAt } = await positionOf(stack.database, payment)
      return failureCode === 'authorization_expired' && failedAt !== null
    })
  })
  const events = await stack.database<{ event: string }[]>`
    select event from outbox where payment_id = ${payment.paymentId}`
  expect(events).toEqual([{ event: 'settlement.failed' }])
  expect(await stack.balanceOf(buyer.address)).toBe(50_000n)
})

describe('thresholds raised by expensive gas', () => {
  const oracle = '0x420000000000000000000000000000000000000F'
  const feed = '0x00000000000000000000000000000000000feed0'
  const priceFeedAbi = parseAbi(['function setAnswer(int256 answer)'])

  /** Sets what getL1Fee of the OP stack's GasPriceOracle returns. */
  async function setL1Fee(wei: bigint): Promise<void> {
    const word = numberToHex(wei, { size: 32 }).slice(2)
    await testClient(stack).setCode({ address: oracle, bytecode: `0x7f${word}60005260206000f3` })
  }

  async function setEthUsd(usd: bigint): Promise<void> {
    await testClient(stack).setCode({ address: feed, bytecode: priceFeedRuntimeCode })
    const admin = createWalletClient({ account: walletAccount(9), transport: http(stack.chain.url) })
    const data = encodeFunctionData({ abi: priceFeedAbi, functionName: 'setAnswer', args: [usd * 10n ** 8n] })
    const hash = await admin.sendTransaction({ to: feed, data, chain: null })
    await stack.served.client.waitForTransactionReceipt({ hash })
  }

  function keeperOnOpStack(): Keeper {
    const network = { ...stack.served.network, gasModel: 'op-stack', priceFeed: feed } as const
    return stack.keeper({
      networks: [{ ...stack.served, network }],
      // A high configured price, which the keeper uses if the feed is stale.
      settings: { ...stack.settings, gasTokenUsd: 1_000_000_000_000n },
    })
  }

  async function queueMany(count: number, price: bigint): Promise<QueuedPayment[]> {
    const payee = randomHex(20)
    const buyers = await stack.buyers(3, BigInt(count) * price)
    const payments: QueuedPayment[] = []
    for (let i = 0; i < count; i++) {
      const buyer = buyers[i % 3]
      if (buyer) payments.push(await stack.queue({ buyer, price, payee }))
    }
    return payments
  }

  /** Lets a keeper read the queue several times, and expects that it sends nothing. */
  async function staysQueued(payments: QueuedPayment[]): Promise<void> {
    let looks = 0
    const keeper = keeperOnOpStack()
    const seen = stack.served.client
    await whileRunning(keeper, async () => {
      await until('the queue was read several times', async () => {
        await seen.getBlockNumber({ cacheTime: 0 })
        looks += 1
        return looks > 20
      })
    })
    expect(await transactionsOf(stack, payments)).toEqual([])
  }

  async function triggerOf(payments: QueuedPayment[]): Promise<string | undefined> {
    const [row] = await stack.database<{ trigger: string }[]>`
      select trigger from batch where id in (
        select batch_id from batch_item where payment_id = ${payments[0]?.paymentId ?? ''})`
    return row?.trigger
  }

  test('behavior: holds a batch worth 1.00 USD while L1 data is expensive, and settles it once L1 data is cheap', async () => {
    await setEthUsd(500n)
    await setL1Fee(10n ** 14n) // 0.05 USD
    const payments = await queueMany(20, 60_000n)
    await staysQueued(payments)
    await setL1Fee(0n)
    await whileRunning(keeperOnOpStack(), () => until('they are settled', () => stack.isSettled(payments)))
    expect(await triggerOf(payments)).toBe('amount')
  })

  test('behavior: settles a batch worth 2.00 USD at any gas price', async () => {
    await setL1Fee(10n ** 14n)
    const payments = await queueMany(36, 60_000n)
    await whileRunning(keeperOnOpStack(), () => until('they are settled', () => stack.isSettled(payments)))
    expect(await triggerOf(payments)).toBe('amount')
  })

  test('behavior: holds 100 payments while gas is expensive, and settles 150 in one transaction', async () => {
    await setL1Fee(10n ** 14n)
    const payee = randomHex(20)
    const buyers = await stack.buyers(3, 1_000_000n)
    const add = async (count: number) => {
      const added: QueuedPayment[] = []
      for (let i = 0; i < count; i++) {
        const buyer = buyers[i % 3]
        if (buyer) added.push(await stack.queue({ buyer, price: 5_000n, payee }))
      }
      return added
    }
    const payments = await add(100)
    await staysQueued(payments)
    payments.push(...(await add(50)))
    await whileRunning(keeperOnOpStack(), () => until('they are settled', () => stack.isSettled(payments)))
    expect(await triggerOf(payments)).toBe('count')
    expect(await transactionsOf(stack, payments)).toHaveLength(1)
  })

  // This test must be the last, because it moves the chain's clock.
  test('behavior: ignores a stale feed and uses the configured price', async () => {
    // The gas costs almost nothing by the feed's price, and 10 USD by the configured price.
    await setL1Fee(10n ** 13n)
    await setEthUsd(1n)
    await testClient(stack).increaseTime({ seconds: 3 * 3_600 })
    await testClient(stack).mine({ blocks: 1 })
    const payments = await queueMany(20, 60_000n)
    await staysQueued(payments)
    await setEthUsd(1n)
    await whileRunning(keeperOnOpStack(), () => until('they are settled', () => stack.isSettled(payments)))
    expect(await stack.balanceOf(platformWallet)).toBeGreaterThan(0n)
  })
})
