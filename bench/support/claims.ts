import { type Address, numberToHex } from 'viem'
import type { ServedNetwork } from '#chain/servedNetworks'
import { claimNext } from '#keeper/loops/claim'
import { type Context, createMemory } from '#keeper/loops/context'
import { createMetrics } from '#keeper/settings/metrics'
import { closeBatch } from '#ledger/batches/batches'
import { acquireLease } from '#ledger/batches/leases'
import { createDueBatches } from '#ledger/queue/dueBatches'
import { defaultTriggers } from '#ledger/queue/triggers'
import { type Database, openDatabase } from '#ledger/store/database'
import { migrate } from '#ledger/store/migrate'
import { createLogger } from '#process/log'
import type { Postgres } from '../../local/stack/postgres.ts'
import { fillQueue } from '../data/fillQueue.ts'
import { median, round1 } from './statistics.ts'

const claims = 41

export type ClaimsOptions = {
  postgres: Postgres
  served: ServedNetwork
  feeRecipient: Address
  say: (line: string) => void
}

/** Milliseconds of one claim, the middle one of many, from a queue with this number of waiting payments. */
export async function measureClaims(
  { postgres, served, feeRecipient, say }: ClaimsOptions,
  payments: number,
): Promise<number> {
  const began = performance.now()
  const url = await postgres.createDatabase(`queue_${payments}`)
  const { chainId } = served.network
  // Filling takes longer than any statement of production.
  const filling = openDatabase({ url, max: 1, applicationName: 'bench', limited: false })
  try {
    await migrate(filling)
    await fillQueue(filling, { payments, chainId, token: served.token, feeRecipient })
  } finally {
    await filling.end({ timeout: 1 })
  }
  const sql = openDatabase({ url, max: 5, applicationName: 'bench' })
  try {
    say(`a queue of ${payments} filled in ${Math.round((performance.now() - began) / 1000)} s`)
    const context = createContext(sql, served)
    const times: number[] = []
    for (let i = 0; i < claims; i++) {
      const lease = await acquireLease(sql, {
        chainId,
        address: `0x${'bb'.repeat(20)}`,
        holder: 'bench',
        ttlMs: 60_000,
      })
      if (!lease) throw new Error('no lease')
      const start = performance.now()
      const batch = await claimNext(context, lease)
      times.push(performance.now() - start)
      if (!batch) throw new Error('nothing was claimed')
      await closeBatch(sql, batch.id, 'released', new Date())
    }
    say(`claims, ms: ${times.map(Math.round).join(' ')}`)
    return round1(median(times))
  } finally {
    await sql.end({ timeout: 1 })
  }
}

function createContext(sql: Database, served: ServedNetwork): Context {
  return {
    sql,
    served,
    settings: {
      triggers: { ...defaultTriggers, minAgeMs: 0 },
      pollMs: 250,
      leaseMs: 15_000,
      maxIndexLagBlocks: 20n,
      rebroadcastAfterMs: 6_000,
      replaceAfterMs: 30_000,
      priorityFeePerGas: 0n,
      maxFeePerGas: 100_000_000_000n,
      gasPerFee: 0n,
      dailyBudget: 0n,
      gasAllowance: 0n,
      gasTokenUsd: 500_000_000n,
    },
    finalityBlocks: 30n,
    payersWithCode: async () => new Set(),
    readDueBatches: createDueBatches(sql, served),
    meter: {
      read: async () => ({ baseFeePerGas: 0n, expected: 0n, most: 0n, dataFee: 0n, usdPerToken: 0n }),
    },
    now: () => new Date(),
    randomBytes32: () => numberToHex(BigInt(Math.floor(Math.random() * 2 ** 48)), { size: 32 }),
    checkpoint: () => {},
    log: createLogger('keeper', 'silent'),
    metrics: createMetrics(),
    memory: createMemory(),
  }
}
