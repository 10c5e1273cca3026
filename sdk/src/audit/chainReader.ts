import {
  type Address,
  encodeFunctionData,
  type Hash,
  type Hex,
  numberToHex,
  type PublicClient,
  type RpcLog,
  type RpcTransactionReceipt,
  toEventSelector,
} from 'viem'
import { usdcAbi } from '../protocol/abi/usdc.ts'
import {
  committedDeployments,
  type Deployments,
  splitterFactory,
  tabSettlement,
} from '../protocol/deployments.ts'
import { ProtocolError } from '../protocol/errors.ts'
import { type Network, networkByChainId } from '../protocol/networks.ts'
import { largest, smallest } from './bigints.ts'
import { mapLimited } from './concurrency.ts'
import { createLogSearch, type LogSearch } from './logSearch.ts'

/** A block as the node returned it. A later reorg may have replaced the block. */
type BlockSeen = {
  number: bigint
  hash: Hash
  /** Unix seconds. */
  time: bigint
}

export const topics = {
  used: toEventSelector('AuthorizationUsed(address,bytes32)'),
  cancelled: toEventSelector('AuthorizationCanceled(address,bytes32)'),
  transfer: toEventSelector('Transfer(address,address,uint256)'),
}

/** A chain that is read up to `head`. The head stays the same for the whole audit. */
export type ChainReader = {
  network: Network
  /** USDC's address from our table or from `deployments`, never from a receipt. */
  token: Address
  head: BlockSeen
  splitterFactory: Address
  tabSettlement: Address
  /** The first block that is read. */
  fromBlock: bigint
  searchLogs: LogSearch
  /**
   * Returns the logs of USDC and TabSettlement by transaction hash. Leaves out transactions that failed, or that aren't in a block up to the head.
   */
  getLogs: (hashes: readonly Hash[]) => Promise<Map<Hash, RpcLog[]>>
  getBlocks: (numbers: readonly bigint[]) => Promise<Map<bigint, BlockSeen>>
  /** Returns for each (payer, nonce) whether USDC's storage at the head marks it as used or cancelled. */
  getAuthorizationStates: (pairs: readonly { payer: Address; nonce: Hex }[]) => Promise<boolean[]>
  /** Finds a block whose time is at most the given time (Unix seconds), and at most about two hours earlier. */
  findBlockBefore: (time: bigint) => Promise<bigint>
}

export type ChainReaderOptions = {
  deployments?: Deployments
  /** Default: the block in which BatchSettlement was deployed. */
  fromBlock?: bigint
}

/** Maximum number of concurrent calls. A transport with JSON-RPC batching sends them as one request. */
const callsAtOnce = 100
/** Maximum number of receipts that are read at once. The receipt of a full batch contains about 600 logs. */
const receiptsAtOnce = 16

const searchSlackSeconds = 3600n

/**
 * Opens a chain for reading: identifies its network and sets the last block to read.
 *
 * @throws {ProtocolError} `unknown_network` for a chain that isn't in our table, or whose USDC isn't known.
 */
export async function openChainReader(
  client: PublicClient,
  { deployments = committedDeployments, fromBlock }: ChainReaderOptions = {},
): Promise<ChainReader> {
  const network = networkByChainId(await client.getChainId())
  const deployment = deployments[network.name]
  const token = network.usdc ?? deployment?.usdc
  if (!token) {
    throw new ProtocolError(
      'unknown_network',
      `The USDC address of ${network.name} is not known: pass the option deployments`,
    )
  }
  const first = fromBlock ?? BigInt(deployment?.startBlock ?? 0)
  const { number, hash, timestamp } = await client.getBlock()
  const head: BlockSeen = { number, hash, time: timestamp }
  const tabs = deployment?.tabSettlement ?? tabSettlement
  return {
    network,
    token,
    head,
    splitterFactory: deployment?.splitterFactory ?? splitterFactory,
    tabSettlement: tabs,
    fromBlock: first,
    searchLogs: createLogSearch(client, token),
    ...createBlockReader(client, head, first),
    getLogs: (hashes) => readLogs(client, { number, addresses: [token, tabs] }, hashes),
    getAuthorizationStates: (pairs) => readAuthorizationStates(client, token, number, pairs),
  }
}

/** Creates a reader of blocks. The search by time reads each block only once. */
function createBlockReader(
  client: PublicClient,
  head: BlockSeen,
  first: bigint,
): Pick<ChainReader, 'getBlocks' | 'findBlockBefore'> {
  const { number } = head
  const blocks = new Map([[number, head]])

  const getBlocks: ChainReader['getBlocks'] = async (numbers) => {
    return readEach(numbers, callsAtOnce, async (blockNumber) => {
      const block = await client.request({
        method: 'eth_getBlockByNumber',
        params: [numberToHex(blockNumber), false],
      })
      return block?.hash && { number: blockNumber, hash: block.hash, time: BigInt(block.timestamp) }
    })
  }

  const getBlock = async (blockNumber: bigint): Promise<BlockSeen> => {
    const known = blocks.get(blockNumber) ?? (await getBlocks([blockNumber])).get(blockNumber)
    if (!known) throw new ProtocolError('dependency_unavailable', `The node has no block ${blockNumber}`)
    blocks.set(blockNumber, known)
    return known
  }

  return {
    getBlocks,

    async findBlockBefore(time) {
      let low = await getBlock(smallest(first, number))
      let high = head
      if (time >= high.time) return high.number
      for (let step = 0; low.time < time - 2n * searchSlackSeconds && high.number - low.number > 1n; step++) {
        const length = high.number - low.number
        // Block times are usually nearly constant, so interpolation needs few steps. Every second step halves the range instead, so that the
        // number of steps stays small for any block times.
        const offset =
          step % 2 === 0
            ? (length * (time - searchSlackSeconds - low.time)) / (high.time - low.time)
            : length / 2n
        const middle = await getBlock(low.number + largest(1n, smallest(offset, length - 1n)))
        if (middle.time <= time) low = middle
        else high = middle
      }
      return low.number
    },
  }
}

/** Reads the logs that some contracts emitted in transactions. Leaves out transactions that failed, or that aren't in a block up to `number`. */
function readLogs(
  client: PublicClient,
  { number, addresses }: { number: bigint; addresses: readonly Address[] },
  hashes: readonly Hash[],
): Promise<Map<Hash, RpcLog[]>> {
  return readEach(hashes, receiptsAtOnce, async (transactionHash) => {
    const receipt: RpcTransactionReceipt | null = await client.request({
      method: 'eth_getTransactionReceipt',
      params: [transactionHash],
    })
    if (receipt?.status !== '0x1' || BigInt(receipt.blockNumber) > number) return undefined
    return receipt.logs.filter(({ address }) => addresses.includes(address.toLowerCase() as Address))
  })
}

async function readAuthorizationStates(
  client: PublicClient,
  token: Address,
  number: bigint,
  pairs: readonly { payer: Address; nonce: Hex }[],
): Promise<boolean[]> {
  const call = { abi: usdcAbi, functionName: 'authorizationState' } as const
  return mapLimited(pairs, callsAtOnce, async ({ payer, nonce }) => {
    const data = encodeFunctionData({ ...call, args: [payer, nonce] })
    const word = await client.request({
      method: 'eth_call',
      params: [{ to: token, data }, numberToHex(number)],
    })
    return BigInt(word) !== 0n
  })
}

/** Calls `read` for each key, with at most `limit` concurrent calls, and returns the results by key. */
async function readEach<Key, Found>(
  keys: readonly Key[],
  limit: number,
  read: (key: Key) => Promise<Found | null | undefined>,
): Promise<Map<Key, Found>> {
  const found = await mapLimited([...new Set(keys)], limit, async (key) => ({ key, value: await read(key) }))
  return new Map(found.flatMap(({ key, value }) => (value ? [[key, value]] : [])))
}
