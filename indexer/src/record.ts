import type { Context } from 'ponder:registry'
import { authorization, dailyTotal, quarantine, wallet, walletDay } from 'ponder:schema'
import type { Hex } from 'viem'
import type { AuthorizationEntry, Unreadable } from './receipt.ts'

type Db = Context['db']

/** Where in the chain something was seen. */
export type Place = {
  chainId: number
  token: Hex
  txHash: Hex
  blockNumber: bigint
  blockHash: Hex
  blockTime: bigint
}

/** The UTC day of a block, `YYYY-MM-DD`. */
export function dayOf({ blockTime }: Pick<Place, 'blockTime'>): string {
  return new Date(Number(blockTime) * 1000).toISOString().slice(0, 10)
}

/**
 * Writes what a receipt proves. The same authorization may come twice, through the batch and through the platform's
 * Transfer: it is written, and counted, once.
 */
export async function recordAuthorizations(
  db: Db,
  place: Place,
  entries: readonly AuthorizationEntry[],
): Promise<void> {
  if (entries.length === 0) return
  const { chainId, token, txHash, blockNumber, blockHash, blockTime } = place
  const rows = await db
    .insert(authorization)
    .values(
      entries.map(({ state, authorizer, nonce, recipient, value, logIndex, batchLogIndex }) => ({
        chainId,
        token,
        authorizer,
        nonce,
        state,
        recipient,
        value,
        txHash,
        logIndex,
        blockNumber,
        blockHash,
        blockTime,
        batchLogIndex,
      })),
    )
    .onConflictDoNothing()
  const fresh = entries.filter((_, i) => rows[i] !== null)

  const received = new Map<Hex, { paymentCount: number; total: bigint }>()
  const direct = { count: 0, total: 0n }
  for (const entry of fresh) {
    if (entry.state !== 'used') continue
    const sum = received.get(entry.recipient) ?? { paymentCount: 0, total: 0n }
    received.set(entry.recipient, { paymentCount: sum.paymentCount + 1, total: sum.total + entry.value })
    if (entry.batchLogIndex === null) {
      direct.count += 1
      direct.total += entry.value
    }
  }
  for (const [recipient, { paymentCount, total }] of received) {
    await addToWallet(db, place, recipient, { paymentCount, total, batchCount: 0 })
  }
  if (direct.count > 0) {
    await addToDay(db, place, { directCount: direct.count, directTotal: direct.total })
  }
}

export async function addToWallet(
  db: Db,
  place: Place,
  address: Hex,
  sums: { paymentCount: number; total: bigint; batchCount: number },
): Promise<void> {
  const { chainId, blockTime } = place
  const add = (row: typeof sums) => ({
    paymentCount: row.paymentCount + sums.paymentCount,
    total: row.total + sums.total,
    batchCount: row.batchCount + sums.batchCount,
  })
  await db
    .insert(wallet)
    .values({ chainId, address, ...sums, firstBlockTime: blockTime, lastBlockTime: blockTime })
    .onConflictDoUpdate((row) => ({ ...add(row), lastBlockTime: blockTime }))
  await db
    .insert(walletDay)
    .values({ chainId, address, day: dayOf(place), ...sums })
    .onConflictDoUpdate(add)
}

const nothing = {
  batchCount: 0,
  authorizations: 0,
  paymentCount: 0,
  providerTotal: 0n,
  feeTotal: 0n,
  directCount: 0,
  directTotal: 0n,
  gasUsed: 0n,
  gasCost: 0n,
}

export async function addToDay(db: Db, place: Place, sums: Partial<typeof nothing>): Promise<void> {
  const more = { ...nothing, ...sums }
  await db
    .insert(dailyTotal)
    .values({ chainId: place.chainId, day: dayOf(place), ...more })
    .onConflictDoUpdate((row) => ({
      batchCount: row.batchCount + more.batchCount,
      authorizations: row.authorizations + more.authorizations,
      paymentCount: row.paymentCount + more.paymentCount,
      providerTotal: row.providerTotal + more.providerTotal,
      feeTotal: row.feeTotal + more.feeTotal,
      directCount: row.directCount + more.directCount,
      directTotal: row.directTotal + more.directTotal,
      gasUsed: row.gasUsed + more.gasUsed,
      gasCost: row.gasCost + more.gasCost,
    }))
}

/** Sets a log aside that couldn't be read. Never a reason to stop. */
export async function setAside(
  db: Db,
  place: Place,
  {
    logIndex,
    reason,
    detail,
  }: Unreadable | { logIndex: number; reason: 'receipt_unavailable'; detail: string },
): Promise<void> {
  const { chainId, txHash, blockNumber, blockHash, blockTime } = place
  await db
    .insert(quarantine)
    .values({ chainId, txHash, logIndex, reason, detail, blockNumber, blockHash, blockTime })
    .onConflictDoNothing()
}
