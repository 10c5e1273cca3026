import { randomBytes } from 'node:crypto'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { removeWithUs } from '@tollkeeper/runtime/reaper'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { encodeSettle, type SettlementItem, triggerCodes } from '@tollkeeper/sdk/protocol/batchSettlement'
import { feeNonce } from '@tollkeeper/sdk/protocol/challenge'
import {
  eip712Domain,
  receiveWithAuthorizationTypes,
  transferWithAuthorizationTypes,
} from '@tollkeeper/sdk/protocol/eip3009'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { type TabLine, tabAuthorization } from '@tollkeeper/sdk/protocol/tab'
import { encodeSettleTabs, type SignedTab } from '@tollkeeper/sdk/protocol/tabSettlement'
import postgres from 'postgres'
import {
  type Address,
  createTestClient,
  defineChain,
  encodeFunctionData,
  type Hex,
  http,
  publicActions,
  type TransactionReceipt,
  toHex,
  walletActions,
} from 'viem'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { afterEach } from 'vitest'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import type { LocalDeployments } from '../../apps/devstack/chain/prepareChain.ts'
import {
  type LocalChain,
  type LocalChainOptions,
  startLocalChain,
} from '../../apps/devstack/chain/startLocalChain.ts'
import type { IndexerOptions } from '../config.ts'
import { type Indexer, startIndexer } from '../launch.ts'

export const platformWallet: Address = '0x00000000000000000000000000000000000fee00'
export const providerA: Address = '0x000000000000000000000000000000000000a000'
export const providerB: Address = '0x000000000000000000000000000000000000b000'

/** A local chain with functions that send the transactions of a keeper, a stranger or a wrapper contract. */
export type TestChain = Awaited<ReturnType<typeof startTestChain>>

export async function startTestChain(options: LocalChainOptions = {}) {
  const chain: LocalChain = await startLocalChain({ blockTimeMs: 0, ...options })
  const deployment = chain.deployments[chain.network]
  if (deployment === undefined) throw new Error('the chain has no deployment')
  const { batchSettlement, tabSettlement, usdc, splitterFactory } = deployment
  const sender = devAccount(1)
  const client = createTestClient({
    mode: 'hardhat',
    account: sender,
    chain: defineChain({
      id: chain.chainId,
      name: chain.network,
      nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
      rpcUrls: { default: { http: [chain.url] } },
    }),
    transport: http(chain.url),
    pollingInterval: 20,
    cacheTime: 0,
  })
    .extend(publicActions)
    .extend(walletActions)
  const domain = eip712Domain(networkByName(chain.network), usdc)

  const send = async (to: Address, data: Hex): Promise<TransactionReceipt> => {
    const hash = await client.sendTransaction({ to, data, gas: 10_000_000n })
    const receipt = await client.waitForTransactionReceipt({ hash })
    if (receipt.status !== 'success') throw new Error(`the transaction reverted: ${hash}`)
    return receipt
  }

  const sign = async (
    buyer: PrivateKeyAccount,
    to: Address,
    value: bigint,
    nonce: Hex,
  ): Promise<SignedAuthorization> => {
    const message = {
      from: buyer.address.toLowerCase() as Address,
      to,
      value,
      validAfter: 0n,
      validBefore: 4_000_000_000n,
      nonce,
    }
    const signature = await buyer.signTypedData({
      domain,
      types: transferWithAuthorizationTypes,
      primaryType: 'TransferWithAuthorization',
      message,
    })
    return { ...message, signature }
  }

  return {
    ...chain,
    client,
    usdc,
    batchSettlement,
    tabSettlement,
    splitterFactory,
    sender: sender.address.toLowerCase() as Address,
    send,
    /** Writes the contents for DEPLOYMENTS_FILE. */
    writeDeployments: () => writeDeployments(chain.deployments),
    /** Creates a buyer with 1,000 USDC. */
    createBuyer: async (): Promise<PrivateKeyAccount> => {
      const buyer = privateKeyToAccount(generatePrivateKey())
      await chain.mintUsdc([buyer.address], 1_000_000_000n)
      return buyer
    },
    signSingle: (buyer: PrivateKeyAccount, to: Address, value: bigint) =>
      sign(buyer, to, value, toHex(randomBytes(32))),
    /** Signs both authorizations of a payment, like our SDK. */
    signPayment: async (
      buyer: PrivateKeyAccount,
      payee: Address,
      amount: bigint,
      fee: bigint,
    ): Promise<Required<SettlementItem>> => {
      const nonce = toHex(randomBytes(32))
      return {
        authorization: await sign(buyer, payee, amount, nonce),
        fee: await sign(buyer, platformWallet, fee, feeNonce(nonce)),
      }
    },
    encodeSettle: (items: readonly SettlementItem[], token: Address = usdc, callGasLimit = 200_000n): Hex =>
      encodeSettle(
        {
          token,
          feeRecipient: platformWallet,
          batchId: toHex(randomBytes(32)),
          trigger: triggerCodes.count,
          callGasLimit,
        },
        items,
      ).calldata,
    settle(items: readonly SettlementItem[]): Promise<TransactionReceipt> {
      return send(batchSettlement, this.encodeSettle(items))
    },
    /** Signs a state of a tab like our SDK, with a reward of a tenth. */
    signTab: async (
      buyer: PrivateKeyAccount,
      sequence: number,
      lines: TabLine[],
      platform = platformWallet,
    ): Promise<SignedTab> => {
      const payer = buyer.address.toLowerCase() as Address
      const state = {
        sequence,
        expiry: 4_000_000_000,
        lines,
        payer,
        tabId: `tab_${randomBytes(16).toString('hex')}`,
      }
      const terms = {
        issuer: 'https://gateway.example',
        chainId: chain.chainId,
        contract: tabSettlement,
        platform,
      }
      const { primaryType, ...message } = tabAuthorization({ ...terms, rewardShare: 1_000 }, state)
      const types = receiveWithAuthorizationTypes
      const signature = await buyer.signTypedData({ domain, types, primaryType, message })
      return { ...state, nonce: message.nonce, signature }
    },
    settleTabs: (tabs: readonly SignedTab[], platform = platformWallet): Promise<TransactionReceipt> =>
      send(
        tabSettlement,
        encodeSettleTabs(
          {
            token: usdc,
            feeRecipient: platform,
            rewardShare: 1_000,
            callGasLimit: 120_000n,
            batchId: toHex(randomBytes(32)),
            trigger: triggerCodes.count,
          },
          tabs,
        ).calldata,
      ),
    encodeTransfer: ({ from, to, value, validAfter, validBefore, nonce, signature }: SignedAuthorization) =>
      encodeFunctionData({
        abi: usdcAbi,
        functionName: 'transferWithAuthorization',
        args: [from, to, value, validAfter, validBefore, nonce, signature],
      }),
    cancel: async (buyer: PrivateKeyAccount, nonce: Hex): Promise<Hex> => {
      const signature = await buyer.signTypedData({
        domain,
        types: {
          CancelAuthorization: [
            { name: 'authorizer', type: 'address' },
            { name: 'nonce', type: 'bytes32' },
          ],
        },
        primaryType: 'CancelAuthorization',
        message: { authorizer: buyer.address, nonce },
      })
      return encodeFunctionData({
        abi: usdcAbi,
        functionName: 'cancelAuthorization',
        args: [buyer.address, nonce, signature],
      })
    },
  }
}

async function writeDeployments(deployments: LocalDeployments): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-indexer-'))
  removeWithUs(folder)
  const path = join(folder, 'deployments.json')
  await writeFile(path, JSON.stringify(deployments))
  return path
}

export type TestIndex = Indexer & {
  sql: postgres.Sql<{ bigint: bigint }>
  /** Resolves once the views show the block, or a later one. */
  untilIndexed: (chainId: number, blockNumber: bigint) => Promise<void>
}

/** Starts an indexer of the given chains and waits until it is ready. */
export async function startTestIndexer(
  databaseUrl: string,
  chains: readonly TestChain[],
  options: Partial<IndexerOptions> = {},
): Promise<TestIndex> {
  const indexer = await startIndexer({
    databaseUrl,
    rpcUrls: Object.fromEntries(chains.map(({ network, url }) => [network, url])),
    platformWallets: [platformWallet],
    deploymentsFile: await writeDeployments(Object.assign({}, ...chains.map((chain) => chain.deployments))),
    ...options,
  })
  const sql = postgres(databaseUrl, {
    max: 2,
    onnotice: () => {},
    types: { bigint: { to: 20, from: [20, 1700], serialize: String, parse: BigInt } },
  })
  await indexer.ready.catch(async (error) => {
    await sql.end()
    throw error
  })
  return {
    ...indexer,
    sql,
    untilIndexed: async (chainId, blockNumber) => {
      await until(async () => (await indexedBlock(sql, chainId)) >= blockNumber)
    },
    close: async () => {
      await sql.end()
      await indexer.close()
    },
  }
}

export async function indexedBlock(sql: postgres.Sql<{ bigint: bigint }>, chainId: number): Promise<bigint> {
  const [row] = await sql<{ checkpoint: string }[]>`
    select latest_checkpoint as checkpoint from indexer._ponder_checkpoint where chain_id = ${chainId}`
  return BigInt(row?.checkpoint.slice(26, 42) ?? 0)
}

type Running = { close: () => Promise<void> }

/** Returns functions that track what a test starts. Everything is ended after the test, in reverse order. */
export function trackRunning() {
  const running: Running[] = []
  afterEach(async () => {
    for (const each of running.splice(0).reverse()) await each.close()
  })
  const forget = (each: Running) => void running.splice(running.indexOf(each), 1)
  return {
    async track<T extends Running>(starting: Promise<T>): Promise<T> {
      const started = await starting
      running.push(started)
      return started
    },
    /** Ends a process now instead of after the test. */
    async end(each: Running): Promise<void> {
      forget(each)
      await each.close()
    },
    forget,
  }
}

/** Settles one payment of a new buyer, in a separate batch. */
export async function settleOne(chain: TestChain, amount: bigint): Promise<TransactionReceipt> {
  return chain.settle([await chain.signPayment(await chain.createBuyer(), providerA, amount, 1n)])
}

/** Waits until a condition is true. Only the test's time limit ends the wait. */
export async function until(isTrue: () => Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await new Promise((resolve) => setTimeout(resolve, 20))
}
