import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { createTestClient, type Hex, http, publicActions } from 'viem'
import { type LocalChain, localTimeoutMs } from '../chain/startLocalChain.ts'

/** Maximum depth in blocks of a reorg. On a local chain, Ponder can follow up to thirty blocks. */
export const deepestReorg = 25
const lookMs = 100

/** Minimum number of newest blocks to drop, or the block (a value that `state()` returned) after which to drop all blocks. */
export type ReorgDepth = number | { after: number }

export type Reorgs = {
  /** Drops the newest blocks, and then mines one block more than it dropped. The new blocks are empty. */
  reorg: (depth: ReorgDepth) => Promise<{ dropped: number; block: number }>
  /** Marks the newest block as one to which a reorg can go back. */
  mark: () => Promise<void>
  stop: () => void
}

/**
 * Enables reorgs on a chain. A development node can go back only to a snapshot, so this function takes a snapshot of every block
 * that it sees. Each snapshot costs the node a kilobyte.
 */
export function followChain(chain: LocalChain, mining: { blockTimeMs: number; atOnce: boolean }): Reorgs {
  const client = createTestClient({
    mode: 'hardhat',
    transport: http(chain.url, { timeout: localTimeoutMs }),
  }).extend(publicActions)
  const readHead = () => client.getBlockNumber({ cacheTime: 0 })
  let snapshots: { height: bigint; id: Hex }[] = []
  /** Run snapshots and reorgs one after another, so that no snapshot is taken during a reorg. */
  let turn: Promise<unknown> = Promise.resolve()
  const inTurn = <Result>(work: () => Promise<Result>): Promise<Result> => {
    const result = turn.then(work)
    turn = result.catch(() => {})
    return result
  }

  const look = async () => {
    const height = await readHead()
    if (height === snapshots.at(-1)?.height) return
    const id = await client.snapshot()
    // Discard the snapshot if a block was mined in the meantime, because the snapshot may contain that block.
    if ((await readHead()) === height) snapshots.push({ height, id })
    snapshots = snapshots.slice(-10 * deepestReorg)
  }
  let isLooking = false
  const timer = setInterval(() => {
    if (isLooking) return
    isLooking = true
    void inTurn(look)
      .catch(() => {})
      .finally(() => {
        isLooking = false
      })
  }, lookMs).unref()

  return {
    mark: () =>
      inTurn(async () => {
        do await look()
        while (snapshots.at(-1)?.height !== (await readHead()))
      }),
    reorg: (depth) =>
      inTurn(async () => {
        await look()
        await chain.setMining(3_600_000)
        try {
          const head = await readHead()
          const newest = typeof depth === 'number' ? head - BigInt(depth) : BigInt(depth.after)
          const base = snapshots.findLast(({ height }) => height <= newest)
          if (newest > head || base === undefined || head - base.height > BigInt(deepestReorg)) {
            throw new BaseError(
              'invalid_field',
              `expected at most ${deepestReorg} blocks, and only blocks mined after startup; got ${head - newest} at block ${head}`,
            )
          }
          await client.revert({ id: base.id })
          snapshots = snapshots.filter(({ height }) => height < base.height)
          // Mine the blocks one by one, because blocks mined as a range have zero parent hashes.
          for (let block = base.height; block <= head; block++) await client.mine({ blocks: 1 })
          return { dropped: Number(head - base.height), block: Number(head) + 1 }
        } finally {
          await chain.setMining(mining.blockTimeMs, mining)
        }
      }),
    stop: () => clearInterval(timer),
  }
}
