import { pinBlock } from '@tollkeeper/chain/head'
import { areNoncesSpent } from '@tollkeeper/chain/simulate'
import { requestLookups } from '@tollkeeper/ledger/facts/record'
import {
  type ChainFacts,
  type Decided,
  decideFinalizations,
} from '@tollkeeper/ledger/results/decideFinalization'
import {
  type Finalizing,
  lockUnlessHeld,
  markLooked,
  type OpenPayment,
  readPaymentsToFinalize,
} from '@tollkeeper/ledger/results/finalizations'
import { isTimeLimit } from '@tollkeeper/runtime/dependencies'
import { allOrEach } from '@tollkeeper/runtime/stepBack'
import { reportBadRow } from '../settings/startLoop.ts'
import type { Context } from './context.ts'
import { readChainFacts, writeFinalizations } from './movePayments.ts'

const atOnce = 500
/**
 * Maximum number of failing payments that one transaction finalizes. Each of them takes six or seven statements. Payments that end in another
 * way are finalized together by one statement.
 */
const failedAtOnce = 25
const endedAtOnce = 250

/**
 * Finalizes payments that are in none of our batches: someone else settled them, or they were cancelled, used elsewhere, expired or
 * voided. Reopens payments whose settlement a reorg removed. Payments are finalized only here and when a batch is closed.
 *
 * Each transaction finalizes a few payments, so that even a long backlog makes progress within the database's time limits. Payments that
 * another keeper is finalizing are skipped.
 *
 * The record must be current.
 */
export async function reconcilePayments(context: Context): Promise<void> {
  const { sql, checkpoint } = context
  const chain = await readChainFacts(context)
  if (chain === null) return
  const { blockIds, payments } = await readInTime(context, chain)
  const decided = await withoutUsed(context, chain, decideFinalizations(payments, chain))
  if (decided.length > 0) await checkpoint('before-reconcile')
  const [fails, ends] = [true, false].map((is) =>
    decided.filter(({ finalization }) => (finalization.action === 'fail') === is),
  ) as [Decided<OpenPayment>[], Decided<OpenPayment>[]]
  const left = [
    ...(await finalizeInChunks(context, ends, endedAtOnce)),
    ...(await finalizeInChunks(context, fails, failedAtOnce)),
  ]
  // Blocks are marked last, because the next reconciliation finds its payments by unmarked blocks.
  await markLooked(sql, blockIds, chain.safeBlock, left)
  if (decided.length > 0) await checkpoint('after-reconcile')
}

/** Reads payments to finalize. After each attempt that hits a time limit, it tries again with half the number. */
async function readInTime({ sql, served, memory }: Context, chain: ChainFacts): Promise<Finalizing> {
  const waiting = memory.unfinalized.waiting()
  for (let limit = atOnce; ; limit = Math.ceil(limit / 2)) {
    try {
      return await readPaymentsToFinalize(sql, served.network.chainId, chain, limit, waiting)
    } catch (error) {
      if (limit === 1 || !isTimeLimit(error)) throw error
    }
  }
}

/** Finalizes payments in chunks. @returns the payments that were not finalized, because finalizing them failed or another keeper has locked them */
async function finalizeInChunks(
  context: Context,
  decided: readonly Decided<OpenPayment>[],
  chunk: number,
): Promise<string[]> {
  const { sql, served, memory } = context
  const held = new Set<string>()
  const failed = await allOrEach(
    decided,
    (some) =>
      sql.begin(async (tx) => {
        const ids = some.map(({ payment }) => payment.paymentId)
        const locked = await lockUnlessHeld(tx, ids)
        for (const id of ids) if (!locked.has(id)) held.add(id)
        await writeFinalizations(
          context,
          tx,
          some.filter(({ payment }) => locked.has(payment.paymentId)),
        )
      }),
    (error, { payment: { paymentId } }) => {
      memory.unfinalized.failed(paymentId)
      reportBadRow(context, served.network.name)('finalize', error, { paymentId })
    },
    { chunk, ask: () => sql`select 1` },
  )
  return [...failed.map(({ payment }) => payment.paymentId), ...held]
}

/** Checks on chain whether authorizations that seem to have expired unused were used at the last moment. Requests look-ups of who used them. */
async function withoutUsed(
  { sql, served, now }: Context,
  { blockNumber }: { blockNumber: bigint },
  decided: readonly Decided<OpenPayment>[],
): Promise<Decided<OpenPayment>[]> {
  const open = decided.flatMap(({ payment, finalization }) =>
    'ifUnused' in finalization && finalization.ifUnused ? openHalves(payment) : [],
  )
  if (open.length === 0) return [...decided]
  const at = await pinBlock(served.client, blockNumber)
  const spent = await areNoncesSpent(served.client, served.token, open, at)
  const used = new Set(open.flatMap(({ paymentId }, index) => (spent[index] ? [paymentId] : [])))
  await requestLookups(sql, [...used], now())
  return decided.filter(({ payment }) => !used.has(payment.paymentId))
}

function openHalves({ paymentId, payer, nonces, provider, fee }: OpenPayment) {
  return [provider, fee].flatMap((half, index) => {
    const nonce = nonces[index]
    return half?.state === 'open' && nonce ? [{ paymentId, from: payer, nonce }] : []
  })
}
