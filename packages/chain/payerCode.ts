import type { Address, PublicClient } from 'viem'

const ageMs = 60_000

/** Determines which payers have code (contract wallets, EIP-7702 delegations), and caches each result for a minute. */
export function createPayerCode(client: PublicClient, now: () => Date) {
  const seen = new Map<Address, { hasCode: boolean; at: number }>()

  return async function payersWithCode(payers: readonly Address[]): Promise<Set<Address>> {
    const at = now().getTime()
    for (const [payer, entry] of seen) if (at - entry.at >= ageMs) seen.delete(payer)
    const unknown = [...new Set(payers)].filter((payer) => !seen.has(payer))
    const codes = await Promise.all(unknown.map((address) => client.getCode({ address })))
    for (const [index, payer] of unknown.entries())
      seen.set(payer, { hasCode: codes[index] !== undefined, at })
    return new Set(payers.filter((payer) => seen.get(payer)?.hasCode === true))
  }
}

export type PayersWithCode = ReturnType<typeof createPayerCode>
