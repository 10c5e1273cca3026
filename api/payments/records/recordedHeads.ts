import { readRecordHead } from '@tollkeeper/ledger/facts/record'
import type { Database } from '@tollkeeper/ledger/store/database'
import { networkByChainId, networkByName } from '@tollkeeper/sdk/protocol/networks'

/** Up to which block the record is complete. A view shows the chain as of this block, and says so; null before the first read. */
export type RecordedHeads = {
  of(chainId: number): Promise<number | null>
  /**
   * The same for each network on which a provider has a wallet, by the network's name.
   *
   * @param chainId only of this network
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

/** @param blocks of a provider's networks by name, or of the requested one */
export function isTestMoneyOnly(blocks: Record<string, unknown>): boolean {
  return Object.keys(blocks).every((name) => networkByName(name).testnet)
}
