import type { Address } from 'viem'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { Database } from '#ledger/database'
import { createCache } from '#process/cache'
import { type ChainAccount, type ChainReads, maxReadsAtOnce } from './chainReads.ts'
import { type Exposure, readExposures } from './exposure.ts'
import { createGroupCommit } from './groupCommit.ts'

/** What may be unsettled at a time, USDC base units; null: as much as there is balance for. */
export type PayerCaps = {
  payer: bigint | null
  /** Of a payer of which nothing ever settled here. */
  newPayer: bigint | null
}

export type PayersOptions = {
  database: Database
  /** Whether a payer's balance must cover what it has unsettled. */
  checkBalance: boolean
  caps: PayerCaps
  /** How long a balance is relied on. */
  balanceTtlMs: number
  now: () => number
}

/** What a payer may still do. */
export type Allowance = {
  /**
   * What `payer.accepted_total` may reach; null: nothing limits it.
   *
   * Balance (or cap), plus all that was accepted and is no longer owed. A settlement lowers the balance by what it adds
   * to the rest, so the limit stays true while it's cached, and the database holds the payer's total against it without
   * looking at the index again.
   */
  limit: bigint | null
  /** What the limit comes from. */
  by: 'balance' | 'cap'
  /** USDC base units, at the block that the limit was computed for. */
  available: bigint
  /** USDC base units. */
  unsettled: bigint
  /** False: the index can't be read, settled payments count as owed, and a refusal may be wrong. */
  isIndexed: boolean
  /** Whether the account has code, where that was read with the balance. */
  hasCode: boolean | undefined
}

/** What the gateway knows about the payers of one network, cached. */
export type Payers = {
  /** Whether the account has code (a contract wallet, or an EIP-7702 delegation), as of the last minute. */
  hasCode(payer: Address): Promise<boolean>
  allowance(payer: Address): Allowance | Promise<Allowance>
  /** The allowance as of now, where the cached one did not suffice. */
  freshAllowance(payer: Address): Allowance | Promise<Allowance>
  /** Forgets the payer's allowance: something of it was voided here. */
  forget(payer: Address): void
}

const maxPayers = 200_000
const codeTtlMs = 60_000
// A buyer without money can't make us read the chain more often than this.
const minRefreshMs = 100
const questionsInFlight = 2

const unlimited: Allowance = {
  limit: null,
  by: 'balance',
  available: 0n,
  unsettled: 0n,
  isIndexed: true,
  hasCode: undefined,
}

export function createPayers(served: ServedNetwork, reads: ChainReads, options: PayersOptions): Payers {
  const { checkBalance, caps, now } = options

  async function readAccounts(payers: Address[]): Promise<ChainAccount[]> {
    return reads.accounts(payers, await served.client.getBlockNumber())
  }

  async function readAllowances(payers: Address[]): Promise<Allowance[]> {
    const block = await served.client.getBlockNumber()
    const withHistory = caps.newPayer !== null
    const question = { payers, block, now: Math.floor(now() / 1000), withHistory }
    const [exposures, accounts] = await Promise.all([
      readExposures(options.database, served, question),
      checkBalance ? reads.accounts(payers, block) : [],
    ])
    return payers.map((payer, index) => toAllowance(exposures.get(payer) as Exposure, accounts[index], caps))
  }

  // Many in one question cost little more than one: payers gather while a question is under way.
  const shared = { maxItems: maxReadsAtOnce, concurrency: questionsInFlight, isItemFault: () => false }

  const codes = createCache<Address, ChainAccount>({
    load: createGroupCommit({ ...shared, commit: readAccounts }).submit,
    ttlMs: codeTtlMs,
    refreshAfterMs: codeTtlMs / 2,
    max: maxPayers,
    now,
  })

  const allowances = createCache<Address, Allowance>({
    load: createGroupCommit({ ...shared, commit: readAllowances }).submit,
    ttlMs: options.balanceTtlMs,
    refreshAfterMs: options.balanceTtlMs / 2,
    max: maxPayers,
    now,
  })

  const isLimited = checkBalance || caps.payer !== null || caps.newPayer !== null
  return {
    hasCode: async (payer) => (await codes.get(payer)).hasCode,
    allowance: (payer) => (isLimited ? allowances.get(payer) : unlimited),
    freshAllowance: (payer) => (isLimited ? allowances.refresh(payer, minRefreshMs) : unlimited),
    forget: (payer) => allowances.delete(payer),
  }
}

function toAllowance(exposure: Exposure, account: ChainAccount | undefined, caps: PayerCaps): Allowance {
  const { acceptedTotal, unsettled, everSettled, isIndexed } = exposure
  const cap = everSettled ? caps.payer : (caps.newPayer ?? caps.payer)
  const balance = account?.balance ?? null
  const hasCode = account?.hasCode
  const by = cap !== null && (balance === null || cap < balance) ? 'cap' : 'balance'
  const available = by === 'cap' ? cap : balance
  if (available === null) return unlimited
  return { limit: available + acceptedTotal - unsettled, by, available, unsettled, isIndexed, hasCode }
}
