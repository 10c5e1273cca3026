import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { claimNext } from '@tollkeeper/keeper/loops/claim'
import type { Context } from '@tollkeeper/keeper/loops/context'
import { closeBatch } from '@tollkeeper/ledger/batches/batches'
import { acquireLease } from '@tollkeeper/ledger/batches/leases'
import type { Database } from '@tollkeeper/ledger/store/database'
import { migrate } from '@tollkeeper/ledger/store/migrate'
import { type Address, numberToHex } from 'viem'
import { createIndexTables } from '../../test/support/indexTables.ts'
import { createKeeperContext } from '../../test/support/keeperContext.ts'
import { keeperDefaults } from '../../test/support/keeperDefaults.ts'
import { seedProvider, storeCandidates } from '../../test/support/seedPayments.ts'
import { makeCandidate } from '../data/makeCandidate.ts'
import type { BenchEnv } from './benchEnv.ts'
import { median, round1, type Say } from './statistics.ts'

const claims = 41
/** Number of payments of each provider wallet: too few to fire a trigger by count or amount. */
const paymentsOfWallet = 90
const paymentsOfPayer = 200
/** Number of payments that are due by their age. */
const duePayments = 1_000

/** Returns the median duration in ms of many claims from a queue with this number of waiting payments. */
export async function measureClaims(
  { postgres, served, open }: Pick<BenchEnv, 'postgres' | 'served' | 'open'>,
  payments: number,
  say: Say,
): Promise<number> {
  const began = performance.now()
  const url = await postgres.createDatabase(`queue_${payments}`)
  const sql = open(url)
  await migrate(sql)
  await fillQueue(sql, served, payments)
  say(`a queue of ${payments} filled in ${Math.round((performance.now() - began) / 1000)} s`)
  const context = createContext(sql, served)
  const times: number[] = []
  for (let i = 0; i < claims; i++) {
    const wallet = { chainId: served.network.chainId, address: `0x${'bb'.repeat(20)}` } as const
    const lease = await acquireLease(sql, { ...wallet, holder: 'bench', ttlMs: 60_000 })
    if (!lease) throw new Error('no lease')
    const start = performance.now()
    const batch = await claimNext(context, lease)
    times.push(performance.now() - start)
    if (!batch) throw new Error('nothing was claimed')
    await closeBatch(sql, batch.id, 'released', new Date())
  }
  say(`claims, ms: ${times.map(Math.round).join(' ')}`)
  return round1(median(times))
}

/** Stores payments to a great many providers' wallets, in production's order: the oldest first. */
async function fillQueue(sql: Database, { network, token }: ServedNetwork, payments: number): Promise<void> {
  await createIndexTables(sql)
  const { providerId, endpointIds } = await seedProvider(sql)
  const [endpointId = ''] = endpointIds
  const addressOf = (number: number): Address => numberToHex(Math.floor(number), { size: 20 })
  const now = Date.now()
  let made = 0
  const makeNext = () => {
    const age = (made < duePayments ? 7_200_000 : 1_800_000) * (1 - made / payments)
    const seller = { providerId, endpointId, payee: addressOf(0xa000_0000 + made / paymentsOfWallet) }
    const payer = addressOf(0xb000_0000 + made / paymentsOfPayer)
    made += 1
    return makeCandidate(now - age, seller, { payer, chainId: network.chainId, token })
  }
  const fill = async () => {
    while (made < payments)
      await storeCandidates(sql, Array.from({ length: Math.min(500, payments - made) }, makeNext))
  }
  await Promise.all([fill(), fill(), fill()])
  await sql`vacuum (analyze)`
}

/** Creates a keeper's context that doesn't call the node, because only the queue is measured. */
function createContext(database: Database, served: ServedNetwork): Context {
  const { settings: defaults } = keeperDefaults
  const settings = { ...defaults, triggers: { ...defaults.triggers, minAgeMs: 0 } }
  const noCost = { baseFeePerGas: 0n, expected: 0n, most: 0n, dataFee: 0n, usdPerToken: 0n }
  return {
    ...createKeeperContext({ database, served, settings }),
    payersWithCode: async () => new Set(),
    meter: { read: async () => noCost },
  }
}
