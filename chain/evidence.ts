import { type Address, type Hex, type PublicClient, parseAbiItem } from 'viem'
import type { SignedAuthorization } from '#protocol/payload'

const usedEvent = parseAbiItem('event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)')
const cancelledEvent = parseAbiItem(
  'event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce)',
)
const transferEvent = parseAbiItem('event Transfer(address indexed from, address indexed to, uint256 value)')

/** A use or cancellation as the chain shows it. */
export type Evidence = {
  state: 'used' | 'cancelled'
  recipient: Address | null
  value: bigint | null
  txHash: Hex
  logIndex: number
  blockNumber: bigint
  blockHash: Hex
  blockTime: bigint
}

/** Public RPCs refuse wider ranges. */
const blocksAtOnce = 2_000n

/**
 * Finds who spent a nonce, by USDC's own logs, looking back from the head.
 *
 * @param sinceTime Unix seconds: it can't have been spent before.
 * @returns null if nothing is found down to that time: the node that said it was spent may be ahead of this one.
 */
export async function findEvidence(
  client: PublicClient,
  token: Address,
  authorization: Pick<SignedAuthorization, 'from' | 'nonce'>,
  sinceTime: bigint,
): Promise<Evidence | null> {
  const args = { authorizer: authorization.from, nonce: authorization.nonce }
  let toBlock = await client.getBlockNumber({ cacheTime: 0 })
  for (;;) {
    const fromBlock = toBlock >= blocksAtOnce ? toBlock - blocksAtOnce + 1n : 0n
    const range = { address: token, args, fromBlock, toBlock }
    const [[used], [cancelled]] = await Promise.all([
      client.getLogs({ ...range, event: usedEvent }),
      client.getLogs({ ...range, event: cancelledEvent }),
    ])
    const log = used ?? cancelled
    if (log) {
      const block = await client.getBlock({ blockHash: log.blockHash })
      const place = {
        txHash: log.transactionHash,
        logIndex: log.logIndex,
        blockNumber: log.blockNumber,
        blockHash: log.blockHash,
        blockTime: block.timestamp,
      }
      if (!used) return { state: 'cancelled', recipient: null, value: null, ...place }
      const moved = await findTransfer(client, token, authorization.from, place)
      return moved && { state: 'used', ...moved, ...place }
    }
    if (fromBlock === 0n) return null
    const first = await client.getBlock({ blockNumber: fromBlock })
    if (first.timestamp < sinceTime) return null
    toBlock = fromBlock - 1n
  }
}

/** USDC emits the Transfer right after its AuthorizationUsed, from the same payer. */
async function findTransfer(
  client: PublicClient,
  token: Address,
  payer: Address,
  { blockHash, txHash, logIndex }: { blockHash: Hex; txHash: Hex; logIndex: number },
): Promise<{ recipient: Address; value: bigint } | null> {
  const logs = await client.getLogs({
    address: token,
    event: transferEvent,
    args: { from: payer },
    blockHash,
  })
  const log = logs.find((one) => one.transactionHash === txHash && one.logIndex === logIndex + 1)
  if (!log || log.args.to === undefined || log.args.value === undefined) return null
  return { recipient: log.args.to.toLowerCase() as Address, value: log.args.value }
}
