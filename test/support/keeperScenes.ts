import { openServedNetworks, type ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Keeper } from '@tollkeeper/keeper/keeper'
import { createKeeperRecorder } from '@tollkeeper/keeper/loops/recorder'
import { readRecordState } from '@tollkeeper/keeper/loops/recordState'
import { readIndexedHead } from '@tollkeeper/ledger/facts/indexedHead'
import { type Loop, repeat } from '@tollkeeper/runtime/repeat'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { createTestClient, createWalletClient, type Hex, http, publicActions } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { afterAll, beforeAll, expect } from 'vitest'
import { type ChaosRpc, type ChaosRpcOptions, startChaosRpc } from './chaosRpc.ts'
import { createKeeperContext } from './keeperContext.ts'
import {
  type KeeperOverrides,
  type KeeperStack,
  type Many,
  platformWallet,
  type QueuedPayment,
} from './keeperStack.ts'
import { positionsOf } from './paymentPosition.ts'
import { until } from './until.ts'

// Steps that tests of keepers share.

export const hourAgo = () => new Date(Date.now() - 3_600_000)

/** Queues a due payment for each of `count` new buyers. */
export async function queueDue<N extends number = 1>(
  stack: KeeperStack,
  count = 1 as N,
  price = 50_000n,
): Promise<Many<QueuedPayment, N>> {
  return (await queueFor(stack, await stack.buyers(count, price), price)) as Many<QueuedPayment, N>
}

/** Queues payments for buyers who already have USDC, because new buyers couldn't get any while nothing is mined. */
export async function queueFor(
  stack: KeeperStack,
  buyers: readonly PrivateKeyAccount[],
  price = 50_000n,
): Promise<QueuedPayment[]> {
  return Promise.all(buyers.map((buyer) => stack.queue({ buyer, price, acceptedAt: hourAgo() })))
}

export async function queueOneDue(stack: KeeperStack, price = 50_000n): Promise<QueuedPayment> {
  return (await queueDue(stack, 1, price))[0]
}

export async function whileRunning<T>(keepers: Keeper | Keeper[], task: () => Promise<T>): Promise<T> {
  const running = [keepers].flat()
  for (const keeper of running) keeper.start()
  try {
    return await task()
  } finally {
    await Promise.all(running.map((keeper) => keeper.stop()))
  }
}

/** Runs a keeper until all of the payments are settled. */
export async function settleAll(
  stack: KeeperStack,
  payments: readonly Pick<QueuedPayment, 'paymentId'>[],
  overrides?: KeeperOverrides,
): Promise<void> {
  await whileRunning(stack.keeper(overrides), () =>
    until('all are settled', () => stack.isSettled([...payments])),
  )
}

/** Keeps the record up to date while a task runs, as any keeper does, without settling or finalizing payments. */
export async function whileRecording<T>(stack: KeeperStack, task: () => Promise<T>): Promise<T> {
  const recording = startRecording(stack)
  try {
    return await task()
  } finally {
    await recording.stop()
  }
}

export function startRecording(stack: KeeperStack): Loop {
  const context = createKeeperContext(stack)
  const recorder = createKeeperRecorder(context)
  return repeat({
    name: 'record',
    everyMs: stack.settings.pollMs,
    async step() {
      if ((await recorder.followReorgs(await readRecordState(context))) !== null) await recorder.record()
    },
    onError: () => {},
  })
}

/** Opens the chain behind a proxy that counts and disturbs the keepers' calls, for the tests of a file. */
export function useChaosRpc(
  stack: KeeperStack,
  options: Partial<ChaosRpcOptions> = {},
  limits?: Parameters<typeof openServedNetworks>[1],
): { rpc: ChaosRpc; served: ServedNetwork } {
  const behind = {} as { rpc: ChaosRpc; served: ServedNetwork }
  beforeAll(async () => {
    behind.rpc = await startChaosRpc({ target: stack.chain.url, ...options })
    const { network, deployment } = stack.served
    const [served] = await openServedNetworks([{ network, deployment, rpcUrls: [behind.rpc.url] }], limits)
    if (!served) throw new Error('not served')
    behind.served = served
  })
  afterAll(() => behind.rpc?.close())
  return behind
}

/** Opens a client that controls the local chain. */
export function testClient({ chain }: Pick<KeeperStack, 'chain'>) {
  return createTestClient({ mode: 'hardhat', transport: http(chain.url) }).extend(publicActions)
}

/** Mines blocks one by one, because blocks mined in bulk have no parent hash. */
export async function mine(stack: Pick<KeeperStack, 'chain'>, blocks: number): Promise<void> {
  for (let i = 0; i < blocks; i++) await testClient(stack).mine({ blocks: 1 })
}

/** Replaces all blocks since a snapshot with empty blocks, and adds more empty blocks. */
export async function reorg(stack: Pick<KeeperStack, 'chain'>, snapshot: Hex): Promise<void> {
  const chain = testClient(stack)
  const height = () => chain.getBlockNumber({ cacheTime: 0 })
  const head = await height()
  await chain.revert({ id: snapshot })
  while ((await height()) < head + 3n) await chain.mine({ blocks: 1 })
}

/** Moves a payer's USDC away with a separate transaction, which comes before ours in the next block. */
export async function moveMoney(
  { chain, served }: KeeperStack,
  account: PrivateKeyAccount,
  amount: bigint,
): Promise<void> {
  await createWalletClient({ account, transport: http(chain.url) }).writeContract({
    address: served.token,
    abi: usdcAbi,
    functionName: 'transfer',
    args: [platformWallet, amount],
    gas: 100_000n,
    chain: null,
    maxFeePerGas: 50_000_000_000n,
    maxPriorityFeePerGas: 2_000_000_000n,
  })
}

/**
 * Mines a block with a base fee of one gwei, because a local chain's base fee falls with every nearly empty block.
 */
export async function raiseBaseFee(stack: Pick<KeeperStack, 'chain'>): Promise<void> {
  await testClient(stack).setNextBlockBaseFeePerGas({ baseFeePerGas: 1_000_000_000n })
  await mine(stack, 1)
}

/** Returns whether the index has read the last block. */
export async function isIndexed({ database, served }: KeeperStack): Promise<boolean> {
  const head = await served.client.getBlockNumber({ cacheTime: 0 })
  const indexed = await readIndexedHead(database, served.network.chainId)
  return indexed?.blockNumber === head
}

/** Waits until the index has read the last block. */
export async function untilIndexed(stack: KeeperStack): Promise<void> {
  await until('the index is at the end of the chain', () => isIndexed(stack))
}

/**
 * Waits until every sent transaction is recorded as mined. The record may show a payment as settled before the payment's keeper
 * has noticed.
 */
export async function untilRecorded({ database }: Pick<KeeperStack, 'database'>): Promise<void> {
  await until('no batch is in flight', async () => {
    return (await database`select from batch where state in ('claimed', 'broadcast')`).length === 0
  })
}

/**
 * Polls until the condition holds, and mines a block each time the index has read the previous one. On a busy machine, faster
 * blocks would keep the index behind, and a keeper whose index is behind claims nothing.
 */
export async function mineUntil(
  stack: KeeperStack,
  what: string,
  holds: () => Promise<boolean>,
): Promise<void> {
  await until(what, async () => {
    if (await holds()) return true
    if (await isIndexed(stack)) await mine(stack, 1)
    return false
  })
}

/** Returns every transaction that was signed for any of these payments, oldest first. */
export async function transactionsOf({ database }: KeeperStack, payments: QueuedPayment[]) {
  return database<
    {
      hash: Hex
      kind: string
      nonce: bigint
      wallet: string
      maxFee: bigint
      priority: bigint
      mined: bigint | null
      state: string
      result: string | null
      /** Whether a node has confirmed that it has the transaction. */
      isOut: boolean
      ageMs: number
    }[]
  >`
    select t.hash, t.kind, t.nonce, t.wallet, t.mined_block as mined, b.state, b.result,
      t.max_fee_per_gas as "maxFee", t.max_priority_fee_per_gas as priority, t.broadcast_at is not null as "isOut",
      (extract(epoch from clock_timestamp() - t.created_at) * 1000)::float8 as "ageMs"
    from transaction t join batch b on b.id = t.batch_id
    where b.id in (select batch_id from batch_item
      where payment_id in ${database(payments.map((one) => one.paymentId))})
    order by t.created_at`
}

/** Returns how many failed attempts the payments have: one number if all payments have the same number of attempts. */
export async function attemptsOf(
  { database }: KeeperStack,
  payments: Pick<QueuedPayment, 'paymentId'>[],
): Promise<number[]> {
  return [...new Set((await positionsOf(database, payments)).map(({ attempts }) => attempts))]
}

/** Expects that the payments are settled, without a failed attempt, and that no one is charged twice. */
export async function expectUnharmed(stack: KeeperStack, payments: QueuedPayment[]): Promise<void> {
  expect(await stack.isSettled(payments)).toBe(true)
  expect(await attemptsOf(stack, payments)).toEqual([0])
  for (const { provider } of payments) expect(await stack.balanceOf(provider.from)).toBe(0n)
}

/**
 * Returns whether the payments are settled in blocks of the current chain. Right after a reorg the record may
 * still show removed blocks, because it is compared with the chain only at intervals.
 */
export async function isSettledOnChain(
  stack: KeeperStack,
  payments: Pick<QueuedPayment, 'paymentId'>[],
): Promise<boolean> {
  const { client } = stack.served
  for (const { state, blockNumber, blockHash } of (await Promise.all(payments.map(stack.halves))).flat()) {
    if (state !== 'settled' || blockNumber === null) return false
    const block = await client.getBlock({ blockNumber }).catch(() => null)
    if (block?.hash !== blockHash) return false
  }
  return true
}

/** Returns the state of each dependency in `/readyz`. */
export async function checksOf(keeper: Keeper): Promise<Record<string, boolean>> {
  const { checks } = (await (await keeper.app.request('/readyz')).json()) as {
    checks: { name: string; ok: boolean }[]
  }
  return Object.fromEntries(checks.map(({ name, ok }) => [name, ok]))
}
