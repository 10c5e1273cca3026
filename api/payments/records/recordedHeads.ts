import { readRecordHead } from '@tollkeeper/ledger/facts/record'
import type { Database } from '@tollkeeper/ledger/store/database'
import { networkByChainId, networkByName } from '@tollkeeper/sdk/protocol/networks'
import type { GatewayNetworks } from '../../registry/networks.ts'

/**
 * The block up to which the record of a network is complete. A view shows the chain as of this block, and names it. Null: nothing has been recorded
 * yet.
 */
export type RecordedHeads = {
  of(chainId: number): Promise<number | null>
  /**
   * Returns the block of each network on which a provider has a wallet, keyed by the network's name.
   *
   * @param chainId only this network
   */
  ofProvider(providerId: string, chainId?: number): Promise<Record<string, number | null>>
}

export function createRecordedHeads(sql: Database): RecordedHeads {
  async function of(chainId: number): Promise<number | null> {
    const head = await readRecordHead(sql, chainId)
    return head && Number(head.blockNumber)
  }

  return {
    of,
    async ofProvider(providerId, chainId) {
      const chains = await sql<{ chainId: number }[]>`
        select distinct chain_id as "chainId" from wallet where provider_id = ${providerId}
          ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
        order by chain_id`
      const heads = await Promise.all(
        chains.map(async (chain) => [networkByChainId(chain.chainId).name, await of(chain.chainId)] as const),
      )
      return Object.fromEntries(heads)
    },
  }
}

/**
 * Returns whether a provider takes only test money. For a provider without a wallet, the gateway's networks decide.
 *
 * @param blocks blocks of a provider's networks, keyed by name, or of only the requested network
 */
export function isTestMoneyOnly(
  blocks: Record<string, unknown>,
  { byChainId }: Pick<GatewayNetworks, 'byChainId'>,
): boolean {
  const own = Object.keys(blocks).map((name) => networkByName(name))
  const shown = own.length > 0 ? own : [...byChainId.values()].map(({ served }) => served.network)
  return shown.every(({ testnet }) => testnet)
}
