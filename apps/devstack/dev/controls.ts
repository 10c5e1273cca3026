import { openDatabase } from '@tollkeeper/ledger/store/database'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import {
  type Address,
  createTestClient,
  encodeFunctionData,
  http,
  parseAbi,
  publicActions,
  walletActions,
} from 'viem'
import { adminAccountIndex, devAccount } from '../chain/accounts.ts'
import { localTimeoutMs } from '../chain/startLocalChain.ts'
import type { Stack } from '../stack/stack.ts'
import type { Reorgs } from './reorg.ts'
import type { RpcFault, RpcFaults } from './rpcFaults.ts'
import { createSettler } from './settler.ts'

/** Controls of the environment that `tollkeeper dev` starts, for tests and people. Amounts are decimal USDC. */
export type Controls = {
  /**
   * Settles all waiting payments, regardless of the triggers. Resolves with the status of each of these payments; `verified`
   * means that the payment is still in progress after `timeoutSeconds` (default 60).
   */
  settle: (options?: { timeoutSeconds?: number | undefined }) => Promise<{
    payments: Record<string, PaymentStatus>
  }>
  /**
   * Advances the chain's clock and mines a block, for example to let authorizations expire. The clocks of gateway and keeper
   * don't change, so use `settle` for payments whose trigger depends on time.
   */
  travel: (seconds: number) => Promise<{ block: number; timestamp: number }>
  mine: (blocks?: number) => Promise<{ block: number }>
  /**
   * Drops at least `depth` of the newest blocks, with the settlements in them. With `{ after }`, drops all blocks after a block that
   * `state` returned. Then mines one block more than it dropped.
   */
  reorg: Reorgs['reorg']
  /** Simulates failures of the RPC that gateway, keeper and indexer use. */
  failRpc: (fault: RpcFault) => void
  healRpc: () => void
  /** Blacklists an address, as Circle can: USDC can no longer move to or from it. */
  blacklist: (address: Address, isBlacklisted?: boolean) => Promise<void>
  /** Pauses USDC, as Circle can: no USDC can move. */
  pause: (isPaused?: boolean) => Promise<void>
  fund: (address: Address, usdc: string) => Promise<void>
  state: () => Promise<WorldState>
}

export type WorldState = {
  block: number
  /** Unix seconds, by the chain's clock. */
  timestamp: number
  /** The newest payments first. */
  payments: { paymentId: string; payment_status: PaymentStatus | null }[]
  /** Decimal USDC. */
  balances: Record<string, string>
}

const circleAbi = parseAbi([
  'function blacklist(address account)',
  'function unBlacklist(address account)',
  'function pause()',
  'function unpause()',
])
const shownPayments = 100

export function createControls(options: {
  stack: Stack
  reorgs: Reorgs
  faults: RpcFaults
  usdc: Address
  /** The wallets that `state` lists in `balances`, by name. */
  wallets: Record<string, Address>
}): { controls: Controls; close: () => Promise<void> } {
  const { stack, reorgs, faults, usdc, wallets } = options
  const sql = openDatabase({ url: stack.databaseUrl, max: 1, applicationName: 'tollkeeper-dev' })
  const client = createTestClient({
    mode: 'hardhat',
    transport: http(stack.chain.url, { timeout: localTimeoutMs }),
    cacheTime: 0,
  })
    .extend(publicActions)
    .extend(walletActions)
  const admin = devAccount(adminAccountIndex).address

  const asCircle = async (data: `0x${string}`) => {
    const hash = await client.sendTransaction({ account: admin, chain: null, to: usdc, data, gas: 200_000n })
    const { status } = await client.waitForTransactionReceipt({ hash, pollingInterval: 20 })
    if (status !== 'success') throw new Error(`USDC rejected a transaction of its administrator: ${hash}`)
  }
  const readHead = async () => {
    const { number, timestamp } = await client.getBlock()
    return { block: Number(number), timestamp: Number(timestamp) }
  }
  const { settle, readPayment } = createSettler({ stack, sql, client })

  const controls: Controls = {
    settle: ({ timeoutSeconds = 60 } = {}) => settle(timeoutSeconds),
    travel: async (seconds) => {
      await client.increaseTime({ seconds })
      await client.mine({ blocks: 1 })
      return readHead()
    },
    mine: async (blocks = 1) => {
      // Mine the blocks one by one, because blocks mined as a range have zero parent hashes.
      for (let block = 0; block < blocks; block++) await client.mine({ blocks: 1 })
      return { block: (await readHead()).block }
    },
    reorg: reorgs.reorg,
    failRpc: faults.fail,
    healRpc: faults.heal,
    blacklist: (address, isBlacklisted = true) => {
      const functionName = isBlacklisted ? 'blacklist' : 'unBlacklist'
      return asCircle(encodeFunctionData({ abi: circleAbi, functionName, args: [address] }))
    },
    pause: (isPaused = true) =>
      asCircle(encodeFunctionData({ abi: circleAbi, functionName: isPaused ? 'pause' : 'unpause' })),
    fund: (address, amount) => stack.chain.mintUsdc([address], parseUsdc(amount)),
    state: async () => {
      await reorgs.mark()
      const newest = await sql<{ id: string }[]>`
        select id from payment order by accepted_at desc limit ${shownPayments}`
      const payments = newest.map(async ({ id }) => ({
        paymentId: id,
        payment_status: (await readPayment(id))?.payment_status ?? null,
      }))
      const balances = Object.entries(wallets).map(async ([name, address]) => {
        const balance = await client.readContract({
          address: usdc,
          abi: usdcAbi,
          functionName: 'balanceOf',
          args: [address],
        })
        return [name, formatUsdc(balance)] as const
      })
      return {
        ...(await readHead()),
        payments: await Promise.all(payments),
        balances: Object.fromEntries(await Promise.all(balances)),
      }
    },
  }
  return { controls, close: () => sql.end({ timeout: 1 }) }
}
