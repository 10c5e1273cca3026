import { pinBlock } from '@tollkeeper/chain/head'
import { areNoncesSpent } from '@tollkeeper/chain/simulate'
import { requestLookups } from '@tollkeeper/ledger/facts/record'
import {
  type Concluding,
  lockUnlessHeld,
  markLooked,
  type OpenPayment,
  readPaymentsToConclude,
} from '@tollkeeper/ledger/outcomes/conclusions'
import {
  type ChainFacts,
  type Decided,
  decideConclusions,
} from '@tollkeeper/ledger/outcomes/decideConclusion'
import { isTimeLimit } from '@tollkeeper/runtime/dependencies'
import { allOrEach } from '@tollkeeper/runtime/stepBack'
import { reportBadRow } from '../settings/startLoop.ts'
import type { Context } from './context.ts'
import { readChainFacts, writeConclusions } from './movePayments.ts'

const atOnce = 500
/** Maximum number of payments that one transaction concludes. A failure takes six or seven statements, and many ends take one. */
const failedAtOnce = 25
const endedAtOnce = 250

/**
 * Concludes payments that are in no batch of ours: settled by anybody, cancelled, used for something else, expired or
 * voided; and resumes what a reorg gave back. Besides the closing of a batch, nothing else concludes payments.
 *
 * Each transaction concludes a few payments, so that a long backlog is worked off however little fits into the database's limit of
 * time. Payments that another keeper is concluding are left to it.
 *
 * The record must be current.
 */
export async function reconcilePayments(context: Context): Promise<void> {
  const { sql, checkpoint } = context
  const chain = await readChainFacts(context)
  if (chain === null) return
  const { blockIds, payments } = await readInTime(context, chain)
  const decided = await withoutUsed(context, chain, decideConclusions(payments, chain))
  if (decided.length > 0) await checkpoint('before-reconcile')
  const [fails, ends] = [true, false].map((is) =>
    decided.filter(({ conclusion }) => (conclusion.action === 'fail') === is),
  ) as [Decided<OpenPayment>[], Decided<OpenPayment>[]]
  const left = [
    ...(await concludeInChunks(context, ends, endedAtOnce)),
    ...(await concludeInChunks(context, fails, failedAtOnce)),
  ]
  // Only now, because the next reconciliation finds the payments by blocks that are not marked.
  await markLooked(sql, blockIds, chain.safeBlock, left)
  if (decided.length > 0) await checkpoint('after-reconcile')
}

/** Reads what the database can read in time: half as much after each attempt that took too long. */
async function readInTime({ sql, served, memory }: Context, chain: ChainFacts): Promise<Concluding> {
  const waiting = memory.unconcluded.waiting()
  for (let limit = atOnce; ; limit = Math.ceil(limit / 2)) {
    try {
      return await readPaymentsToConclude(sql, served.network.chainId, chain, limit, waiting)
    } catch (error) {
      if (limit === 1 || !isTimeLimit(error)) throw error
    }
  }
}

/** @returns the payments that were not concluded, because they failed or another keeper holds them. */
async function concludeInChunks(
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
        await writeConclusions(
          context,
          tx,
          some.filter(({ payment }) => locked.has(payment.paymentId)),
        )
      }),
    (error, { payment: { paymentId } }) => {
      memory.unconcluded.failed(paymentId)
      reportBadRow(context, served.network.name)('conclude', error, { paymentId })
    },
    { chunk, ask: () => sql`select 1` },
  )
  return [...failed.map(({ payment }) => payment.paymentId), ...held]
}

/** Asks the chain about halves that expired open, and requests a look-up for those used in the last moment. */
async function withoutUsed(
  { sql, served, now }: Context,
  { blockNumber }: { blockNumber: bigint },
  decided: readonly Decided<OpenPayment>[],
): Promise<Decided<OpenPayment>[]> {
  const open = decided.flatMap(({ payment, conclusion }) =>
    'ifUnused' in conclusion && conclusion.ifUnused ? openHalves(payment) : [],
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
