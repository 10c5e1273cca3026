import type { Evidence } from '@tollkeeper/chain/evidence'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { domainSeparator, eip712Domain } from '@tollkeeper/sdk/protocol/eip3009'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { TabLine } from '@tollkeeper/sdk/protocol/tab'
import type { Address, Hex } from 'viem'
import { seedPlatform, seedToken } from '../../support/seedPayments.ts'
import { seedTabSettlement, tabEvidence } from '../../support/seedTabs.ts'
import { randomHex } from '../../support/usdc.ts'

type Block = { number: bigint; hash: Hex; time: bigint; events: Evidence[] }

/** Number of blocks after which a block is final. Reorgs are shallower. */
export const finality = 6n

/**
 * Creates a simulated chain whose blocks a test fills. The chain enforces only USDC's rule that a nonce moves money
 * at most once, and only before it expires.
 */
export function createPlayedChain(now: () => number) {
  let blocks: Block[] = []
  const balances = new Map<Address, bigint>()
  const head = () => blocks.at(-1)?.number ?? 1_000n
  const find = (payer: Address, nonce: Hex) =>
    blocks
      .flatMap(({ events }) => events)
      .find((event) => event.authorizer === payer && event.nonce === nonce)

  function mine(events: (place: Omit<Block, 'events'>) => Evidence[] = () => []): void {
    const place = { number: head() + 1n, hash: randomHex(32), time: BigInt(Math.floor(now() / 1000)) }
    blocks.push({ ...place, events: events(place) })
  }

  const client = {
    getBlockNumber: async () => head(),
    multicall: async ({ contracts }: { contracts: { args: [Address, Hex] }[] }) =>
      contracts.map(({ args: [payer, nonce] }) => find(payer, nonce) !== undefined),
  }
  mine()

  return {
    served: {
      network: networks.localhost,
      token: seedToken,
      client,
      clients: [client],
      domainSeparator: domainSeparator(eip712Domain(networks.localhost, seedToken)),
      deployment: { tabSettlement: seedTabSettlement },
    } as unknown as ServedNetwork,
    head,
    mine,
    find,
    balances,
    time: () => blocks.at(-1)?.time ?? 0n,
    /** Returns all events of these payers. */
    eventsOf: (payers: ReadonlySet<Address>) =>
      blocks.flatMap(({ events }) => events).filter(({ authorizer }) => payers.has(authorizer)),
    /** Settles a state of a tab. Reverts if the nonce is used or the state has expired. */
    settle(
      payer: Address,
      nonce: Hex,
      state: { sequence: number; expiry: number; lines: readonly TabLine[] },
      platform: Address = seedPlatform,
    ): void {
      if (find(payer, nonce) || state.expiry * 1000 <= now()) return
      const { sequence, lines } = state
      mine((place) => [tabEvidence({ payer, nonce, sequence, lines, platform, rewardShare: 0 }, place)])
    },
    cancel(payer: Address, nonce: Hex): void {
      if (find(payer, nonce)) return
      mine(({ number: blockNumber, hash: blockHash, time: blockTime }) => [
        {
          authorizer: payer,
          nonce,
          state: 'cancelled',
          recipient: null,
          value: null,
          txHash: randomHex(32),
          logIndex: 0,
          blockNumber,
          blockHash,
          blockTime,
        },
      ])
    },
    /** Replaces the newest blocks with different blocks. Returns the replaced blocks. */
    reorg(depth: number): Block[] {
      const count = Math.min(depth, blocks.length - 1)
      const gone = blocks.slice(blocks.length - count)
      blocks = blocks.slice(0, blocks.length - count)
      for (let n = 0; n <= count; n++) mine()
      return gone
    },
  }
}
