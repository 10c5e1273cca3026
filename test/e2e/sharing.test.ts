import { setTimeout as wait } from 'node:timers/promises'
import { mostInFlight } from '@tollkeeper/keeper/settler/advance'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import type { Address, Hex } from 'viem'
import { beforeEach, describe, expect, test } from 'vitest'
import {
  hourAgo,
  queueDue,
  raiseBaseFee,
  settleAll,
  testClient,
  whileRunning,
} from '../support/keeperScenes.ts'
import {
  platformWallet,
  type QueuedPayment,
  signTransfer,
  useKeeperStack,
  walletAccount,
} from '../support/keeperStack.ts'
import { failAll } from '../support/paymentPosition.ts'
import { until } from '../support/until.ts'
import { randomHex, validFor } from '../support/usdc.ts'

// Payments of one keeper share its wallet's transactions.

const stack = useKeeperStack()
beforeEach(async () => {
  await failAll(stack.database)
})

const nonceOf = () => stack.served.client.getTransactionCount({ address: walletAccount(0).address })

async function nonceOfSettling(payments: QueuedPayment[]): Promise<number> {
  const halves = (await Promise.all(payments.map((one) => stack.halves(one)))).flat()
  const found = await Promise.all(
    [...new Set(halves.map((half) => half.txHash))].map((hash) =>
      stack.served.client.getTransaction({ hash: hash as Hex }),
    ),
  )
  return Math.max(...found.map(({ nonce }) => nonce))
}

describe('turns', () => {
  test('behavior: ordinary payments get every second transaction, regardless of how many high-value or contract-wallet payments wait', async () => {
    const alwaysYes: Hex = '0x631626ba7e60e01b60005260206000f3'
    const buyers = await stack.buyers(8, 12_000_000n)
    for (const buyer of buyers) await stack.queue({ buyer, price: 12_000_000n, acceptedAt: hourAgo() })
    for (const payment of await queueDue(stack, 30))
      await testClient(stack).setCode({ address: payment.provider.from, bytecode: alwaysYes })
    await stack.database`update queue set has_code = true where provider_amount + fee_amount < 10000000`
    const ordinary = await queueDue(stack, 5)
    const nonce = await nonceOf()
    await settleAll(stack, ordinary)
    expect((await nonceOfSettling(ordinary)) - nonce).toBeLessThanOrEqual(1)
  })

  test('behavior: settles ordinary payments in the next transaction despite endless 10 USDC payments and submissions without a key', async () => {
    const [rich, stranger, regular] = await stack.buyers(3, 5_000_000_000n)
    const ordinary = await Promise.all(
      Array.from({ length: 200 }, () =>
        stack.queue({ buyer: regular, price: 50_000n, acceptedAt: hourAgo() }),
      ),
    )
    const keeper = stack.keeper({ submitLimits: { perCaller: 100_000 } })
    const window = validFor(3_600)
    const halfCent = async () => {
      const sign = (to: Address, value: bigint) =>
        signTransfer(stack.served, stranger, { to, value, nonce: randomHex(32), ...window })
      const transfers = [await sign(stack.payee, 4_500n), await sign(platformWallet, 500n)].map(encodePayload)
      const body = JSON.stringify({ network: 'localhost', transfers })
      await keeper.app.request('/submit', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      })
    }
    // However fast the keeper is, two payments of each kind always wait.
    let isOver = false
    const submitting = new Set<Promise<void>>()
    const submit = () => {
      const one: Promise<void> = halfCent().finally(() => submitting.delete(one))
      submitting.add(one)
    }
    const flood = async () => {
      while (!isOver) {
        while (submitting.size < 2) submit()
        const [dear] = await stack.database<[{ waiting: number }]>`
          select count(*)::int as waiting from queue
          where provider_amount + fee_amount >= 10000000 and batch_id is null`
        for (let i = dear.waiting; i < 2; i++) await stack.queue({ buyer: rich, price: 12_000_000n })
        await wait(20)
      }
      await Promise.all(submitting)
    }
    const nonce = await nonceOf()
    await whileRunning(keeper, async () => {
      const flooding = flood()
      await until('the ordinary ones are settled', () => stack.isSettled(ordinary))
      isOver = true
      await flooding
    })
    const hashes = new Set(
      (await Promise.all(ordinary.map((one) => stack.halves(one)))).flat().map((half) => half.txHash),
    )
    const last = await nonceOfSettling(ordinary)
    // The ordinary payments need two batches. Before each batch, at most as many other transactions are mined as a wallet may have in flight.
    expect(hashes.size).toBe(2)
    expect(last - nonce).toBeLessThanOrEqual(2 * mostInFlight + 1)
  })
})

test('behavior: settles an expiring payment at any cost below the maximum gas price, while other payments wait', async () => {
  await raiseBaseFee(stack)
  const waiting = await queueDue(stack, 2)
  const [buyer] = await stack.buyers(1, 50_000n)
  const expiring = await stack.queue({ buyer, price: 50_000n, validFor: 200, acceptedAt: hourAgo() })
  const nonce = await nonceOf()
  const dear = stack.keeper({
    settings: { ...stack.settings, gasPerFee: 10n, gasTokenUsd: 1_000_000_000_000n },
  })
  await whileRunning(dear, () => until('it is settled', () => stack.isSettled([expiring])))
  expect((await nonceOf()) - nonce).toBe(1)
  // The waiting payments may share the transaction, as in any batch that isn't full.
  expect(waiting).toHaveLength(2)
})

test('behavior: other keepers can claim payments while one keeper stalls in the middle of a claim', async () => {
  const [taken] = await queueDue(stack, 1)
  const others = await queueDue(stack, 2)
  if (!taken) throw new Error('nothing queued')
  let goOn = () => {}
  const frozen = new Promise<void>((resolve) => {
    goOn = resolve
  })
  let isStanding = false
  // Holds all the locks that a keeper's session holds during a claim: the advisory lock of claims, and the rows of its payments.
  // The connection has no time limits, because a busy machine might exceed them.
  const host = openDatabase({ url: stack.databaseUrl, max: 1, applicationName: 'test', limited: false })
  const standing = host.begin(async (tx) => {
    await tx`select pg_advisory_xact_lock(7402002, ${stack.served.network.chainId})`
    await tx`select 1 from payment where id = ${taken.paymentId} for update`
    await tx`select 1 from queue where payment_id = ${taken.paymentId} for update`
    isStanding = true
    await frozen
  })
  await until('it has stalled', () => isStanding)
  try {
    await settleAll(stack, others)
    expect(await stack.isSettled([taken])).toBe(false)
  } finally {
    goOn()
    await standing
    await host.end()
  }
  await settleAll(stack, [taken])
})
