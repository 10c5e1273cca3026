import { pinBlock } from '#chain/head'
import { isNonceSpent } from '#chain/simulate'
import { sweepSettled } from '#ledger/conclusions'
import { readExpired } from '#ledger/expiry'
import { recordFailure } from '#ledger/failures'
import { halvesOfPayment } from '#ledger/halves'
import type { IndexedHead } from '#ledger/indexedHead'
import { requestChainLookup } from '#ledger/queue'
import { wipeVoidedSignatures } from '#ledger/voids'
import type { Context } from './context.ts'

const atOnce = 200

/** What needs no hurry: concludes what strangers settled, fails what ran out, wipes what nobody can use any more. */
export async function keepUp(context: Context, head: IndexedHead): Promise<void> {
  const { sql, served, now, log } = context
  const { chainId } = served.network
  const { blockNumber, blockTime } = head

  const safeBlock = blockNumber - context.finalityBlocks
  if (safeBlock > 0n) await sql.begin((tx) => sweepSettled(tx, { chainId }, safeBlock, now()))
  await failExpired(context, head)
  const wiped = await sql.begin((tx) => wipeVoidedSignatures(tx, chainId, blockTime, now()))
  if (wiped > 0) log.info({ payments: wiped }, 'signatures of voided payments wiped')
}

async function failExpired(context: Context, { blockNumber, blockTime }: IndexedHead): Promise<void> {
  const { sql, served, settings, now, log, metrics } = context
  const { network, token, client } = served
  const expired = await sql.begin((tx) => readExpired(tx, network.chainId, blockTime, atOnce))
  if (expired.length === 0) return
  const at = await pinBlock(client, blockNumber)
  for (const paymentId of expired) {
    // Spent on chain in the last moment, by whomever: that is for the evidence to tell.
    const open = await readOpenHalves(context, paymentId)
    const spent = await Promise.all(open.map((half) => isNonceSpent(client, token, half, at)))
    await sql.begin(async (tx) => {
      if (spent.includes(true)) {
        await requestChainLookup(tx, paymentId, now())
        return
      }
      await recordFailure(
        tx,
        {
          paymentId,
          batchId: null,
          code: 'authorization_expired',
          detail: 'not settled before validBefore',
          isFinal: true,
        },
        { now: now(), leadMs: settings.triggers.expiryLeadMs },
      )
      metrics.attempts.inc({ network: network.name, result: 'authorization_expired' })
      log.error({ payment: paymentId }, 'the payment expired before it was settled')
    })
  }
}

async function readOpenHalves(context: Context, paymentId: string) {
  const { sql } = context
  const all = await halvesOfPayment(sql, paymentId)
  return all
    .filter((half) => half.state === 'open')
    .map((half) => ({ from: half.authorizer, nonce: half.nonce }))
}
