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
 * Writes what a receipt proves, and counts it for the wallets that received it. The token uses a nonce once, and one
 * event records it, so nothing is looked up: live, that would be a query for each of a batch's three hundred.
 *
 * @param batched The wallets to count a batch for.
 */
export async function recordAuthorizations(
  db: Db,
  place: Place,
  entries: readonly AuthorizationEntry[],
  batched: Iterable<Hex> = [],
): Promise<void> {
  const { chainId, token, txHash, blockNumber, blockHash, blockTime } = place
  if (entries.length > 0) {
    await db.insert(authorization).values(
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
  }

  const received = new Map<Hex, WalletSums>()
  for (const address of batched) received.set(address, { paymentCount: 0, total: 0n, batchCount: 1 })
  const direct = { directCount: 0, directTotal: 0n }
  for (const { state, recipient, value, batchLogIndex } of entries) {
    if (state !== 'used') continue
    const { paymentCount, total, batchCount } = received.get(recipient) ?? noSums
    received.set(recipient, { paymentCount: paymentCount + 1, total: total + value, batchCount })
    if (batchLogIndex === null) {
      direct.directCount += 1
      direct.directTotal += value
    }
  }
  for (const [recipient, sums] of received) await addToWallet(db, place, recipient, sums)
  if (direct.directCount > 0) await addToDay(db, place, direct)
}

type WalletSums = { paymentCount: number; total: bigint; batchCount: number }
const noSums: WalletSums = { paymentCount: 0, total: 0n, batchCount: 0 }

async function addToWallet(db: Db, place: Place, address: Hex, sums: WalletSums): Promise<void> {
  const { chainId, blockTime } = place
  const add = (row: WalletSums) => ({
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
