import { pinBlock } from '#chain/head'
import { areNoncesSpent } from '#chain/simulate'
import {
  moveSweptBlock,
  type OpenPayment,
  readChosenPayments,
  readPaymentsToConclude,
  readSweptBlock,
  setSpentBlock,
  type WrittenConclusion,
  writeConclusions,
} from '#ledger/conclusions'
import type { Queryable } from '#ledger/database'
import { type Conclusion, decideConclusion } from '#ledger/decideConclusion'
import { recordFailure } from '#ledger/failures'
import { type IndexedHead, readIndexedHead } from '#ledger/indexedHead'
import { requestChainLookup } from '#ledger/queue'
import { unvoidPayments } from '#ledger/voids'
import type { Context } from './context.ts'
import { planRescan } from './rescan.ts'

const atOnce = 500

type Decided = { payment: OpenPayment; conclusion: Conclusion }

/**
 * Concludes payments that stand in no batch of ours: settled by whomever, cancelled, used for something else, expired or
 * voided; and takes up again what a reorg gave back. The only place that does, but for the closing of a batch.
 *
 * The index must be current.
 */
export async function sweepPayments(context: Context, head: IndexedHead): Promise<void> {
  const { sql, served, checkpoint } = context
  const { chainId } = served.network
  const scope = { chainId, token: served.token }
  const swept = await readSweptBlock(sql, chainId)
  const seen = swept < head.blockNumber ? swept : head.blockNumber
  const { after, done } = planRescan(context, 'sweep', seen, head.blockNumber)
  const range = { after, upTo: head.blockNumber, blockTime: head.blockTime }
  const payments = await readPaymentsToConclude(sql, scope, range, atOnce)
  const decided = await withoutUsed(context, head, decideAll(context, payments, head))
  if (decided.length > 0) {
    await checkpoint('before-sweep')
    await sql.begin((tx) => write(context, tx, decided))
    await checkpoint('after-sweep')
  }
  if (swept !== head.blockNumber) await moveSweptBlock(sql, chainId, swept, head.blockNumber)
  done()
}

/** The same, at once, for payments that have just left a batch. What would take a question to the chain waits. */
export async function sweepChosen(
  context: Context,
  tx: Queryable,
  paymentIds: readonly string[],
): Promise<void> {
  if (paymentIds.length === 0) return
  const head = await readIndexedHead(context.sql, context.served.network.chainId)
  if (head === null) return
  const decided = decideAll(context, await readChosenPayments(tx, paymentIds), head)
  await write(
    context,
    tx,
    decided.filter(({ conclusion }) => !('ifUnused' in conclusion && conclusion.ifUnused)),
  )
}

function decideAll(
  { finalityBlocks }: Context,
  payments: readonly OpenPayment[],
  { blockNumber, blockTime }: IndexedHead,
): Decided[] {
  const chain = { safeBlock: blockNumber - finalityBlocks, blockTime }
  return payments
    .map((payment) => ({ payment, conclusion: decideConclusion(payment, chain) }))
    .filter(({ conclusion }) => conclusion.action !== 'leave')
}

/** Asks the chain about halves that expired open: one that was used in the last moment is to be looked up instead. */
async function withoutUsed(
  { sql, served, now }: Context,
  head: IndexedHead,
  decided: readonly Decided[],
): Promise<Decided[]> {
  const open = decided.flatMap(({ payment, conclusion }) =>
    'ifUnused' in conclusion && conclusion.ifUnused ? openHalves(payment) : [],
  )
  if (open.length === 0) return [...decided]
  const at = await pinBlock(served.client, head.blockNumber)
  const spent = await areNoncesSpent(served.client, served.token, open, at)
  const used = new Set(open.flatMap(({ paymentId }, index) => (spent[index] ? [paymentId] : [])))
  for (const paymentId of used) await requestChainLookup(sql, paymentId, now())
  return decided.filter(({ payment }) => !used.has(payment.paymentId))
}

function openHalves({ paymentId, payer, nonces, provider, fee }: OpenPayment) {
  return [provider, fee].flatMap((half, index) => {
    const nonce = nonces[index]
    return half?.state === 'open' && nonce ? [{ paymentId, from: payer, nonce }] : []
  })
}

async function write(context: Context, tx: Queryable, decided: readonly Decided[]): Promise<void> {
  const { now, log } = context
  const taken: string[] = []
  const written: WrittenConclusion[] = []
  for (const { payment, conclusion } of decided) {
    switch (conclusion.action) {
      case 'leave':
        break
      case 'fail':
        await fail(context, tx, payment, conclusion)
        break
      case 'unvoid':
        taken.push(payment.paymentId)
        break
      default:
        written.push({ payment, conclusion })
    }
    if (conclusion.action === 'reopen')
      log.warn({ payment: payment.paymentId }, 'a reorg gave a part of the payment back')
  }
  await writeConclusions(tx, written, now())
  if (taken.length === 0) return
  await unvoidPayments(tx, taken)
  for (const payment of taken)
    log.error(
      { payment },
      'a voided payment was settled by its provider: it counts again, its fee is claimed',
    )
}

async function fail(
  { served, settings, now, log, metrics }: Context,
  tx: Queryable,
  { paymentId, lastBlock }: OpenPayment,
  { code, detail }: Extract<Conclusion, { action: 'fail' }>,
): Promise<void> {
  const attempts = await recordFailure(
    tx,
    { paymentId, batchId: null, code, detail, isFinal: true },
    { now: now(), leadMs: settings.triggers.expiryLeadMs },
  )
  if (attempts === null) return
  // Found by it again, should the block be taken back.
  if (lastBlock !== null) await setSpentBlock(tx, paymentId, lastBlock)
  metrics.attempts.inc({ network: served.network.name, result: code })
  log.warn({ payment: paymentId, code }, 'the payment can not be settled any more')
}
