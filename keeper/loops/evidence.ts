import { findEvidence } from '#chain/evidence'
import { isNonceSpent } from '#chain/simulate'
import type { Queryable } from '#ledger/database'
import {
  deleteEvidence,
  endLookups,
  finishEvidence,
  readLookupRequests,
  readSpoiled,
  readUnconfirmedEvidence,
  upsertEvidence,
} from '#ledger/evidence'
import { recordFailure } from '#ledger/failures'
import type { IndexState } from '#ledger/indexState'
import { requestChainLookup } from '#ledger/queue'
import { readVoidedHalves, unvoidPayments } from '#ledger/voids'
import type { Context } from './context.ts'

const atOnce = 200
// A block's clock may be a little behind ours.
const clockSlackSeconds = 900n

/** Finds out by whom a half was spent that the index doesn't explain. No attempt is counted for a stranger's doing. */
export async function collectEvidence(context: Context): Promise<void> {
  const { sql, served, log, metrics, checkpoint } = context
  const { chainId, name } = served.network
  const { token } = served
  const sought = await readLookupRequests(sql, chainId, atOnce)
  const unexplained = new Set<string>()
  for (const { paymentId, authorizer, nonce, acceptedAt } of sought) {
    if (!(await isNonceSpent(served.client, token, { from: authorizer, nonce }))) continue
    const since = BigInt(Math.floor(acceptedAt.getTime() / 1000)) - clockSlackSeconds
    const evidence = await findEvidence(served.client, token, { from: authorizer, nonce }, since)
    if (!evidence) {
      unexplained.add(paymentId)
      continue
    }
    await checkpoint('before-evidence-recorded')
    await upsertEvidence(sql, { chainId, token, authorizer, nonce }, evidence)
    await checkpoint('after-evidence-recorded')
    metrics.foreignSettlements.inc({ network: name, state: evidence.state })
    log.info(
      { payment: paymentId, hash: evidence.txHash, state: evidence.state },
      'a half was spent outside our batches',
    )
  }

  const paymentIds = [...new Set(sought.map((one) => one.paymentId))].filter((id) => !unexplained.has(id))
  if (paymentIds.length === 0) return
  await sql.begin(async (tx) => {
    await failSpoiled(context, tx, paymentIds)
    await endLookups(tx, paymentIds)
  })
}

/** Fails those payments that can't be settled any more, whoever tries. */
export async function failSpoiled(
  { served, settings, now, log }: Context,
  tx: Queryable,
  paymentIds: readonly string[],
): Promise<void> {
  const { chainId } = served.network
  for (const { paymentId, state } of await readSpoiled(tx, chainId, paymentIds)) {
    const code = state === 'cancelled' ? 'authorization_cancelled' : 'authorization_used'
    const detail = state === 'cancelled' ? 'cancelled by the payer' : 'its nonce paid for something else'
    await recordFailure(
      tx,
      { paymentId, batchId: null, code, detail, isFinal: true },
      { now: now(), leadMs: settings.triggers.expiryLeadMs },
    )
    log.warn({ payment: paymentId, code }, 'the payment can not be settled any more')
  }
}

/** Drops evidence whose block is no longer part of the chain, and lets rest what is too deep to be dropped. */
export async function recheckEvidence(context: Context, index: IndexState): Promise<void> {
  const { sql, served, log, now } = context
  const { chainId } = served.network
  const blocks = new Map<bigint, string>()
  const head = await served.client.getBlockNumber({ cacheTime: 0 })
  for (const row of await readUnconfirmedEvidence(sql, chainId, served.token)) {
    const key = { chainId, token: served.token, authorizer: row.authorizer, nonce: row.nonce }
    // A node that hasn't come that far says nothing about the block.
    if (row.blockNumber > head) continue
    const hash =
      blocks.get(row.blockNumber) ?? (await served.client.getBlock({ blockNumber: row.blockNumber })).hash
    blocks.set(row.blockNumber, hash)
    if (hash !== row.blockHash) {
      await sql.begin((tx) => deleteEvidence(tx, key))
      log.warn({ authorizer: row.authorizer, nonce: row.nonce }, 'a reorg dropped the evidence of a use')
    } else if (index.status === 'current' && head - row.blockNumber >= context.finalityBlocks) {
      await sql.begin((tx) => finishEvidence(tx, key, now()))
    }
  }
}

/**
 * Looks whether the provider's half of a voided payment was settled all the same: the provider saw the signatures. Then
 * the payment counts like every other one: its fee is claimed, and the provider's violation is counted.
 */
export async function recheckVoided(context: Context): Promise<void> {
  const { sql, served, log, now } = context
  const { chainId } = served.network
  const voided = await readVoidedHalves(sql, chainId, now(), atOnce)
  for (const { paymentId, authorizer, nonce, state } of voided) {
    if (state === 'open' && (await isNonceSpent(served.client, served.token, { from: authorizer, nonce }))) {
      await requestChainLookup(sql, paymentId, now())
    }
  }
  const taken = voided.filter((one) => one.state === 'settled').map((one) => one.paymentId)
  if (taken.length === 0) return
  await sql.begin((tx) => unvoidPayments(tx, taken))
  for (const payment of taken) {
    log.error(
      { payment },
      'a voided payment was settled by its provider: it counts again, its fee is claimed',
    )
  }
}
