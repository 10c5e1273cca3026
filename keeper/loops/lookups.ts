import { findEvidence } from '@tollkeeper/chain/evidence'
import { areNoncesSpent } from '@tollkeeper/chain/simulate'
import {
  endLookups,
  type LookupRequest,
  readExplained,
  readLookupRequests,
  recordEvents,
  requestLookups,
} from '@tollkeeper/ledger/facts/record'
import { readVoidedHalves } from '@tollkeeper/ledger/outcomes/voids'
import { wakeDeferred } from '@tollkeeper/ledger/queue/stages'
import type { Context } from './context.ts'
import { sweepChosen } from './sweep.ts'

const atOnce = 200
/** How many voided payments one call to the chain answers for. */
const voidedAtOnce = 150
// How far a block's clock may be behind ours.
const clockSlackSeconds = 900n
const mostPatienceMs = 60_000

/** Finds out who used a half that the record doesn't explain. A stranger's use counts as no attempt. */
export async function lookUpRequested(context: Context, signal?: AbortSignal): Promise<void> {
  const { sql, served, log, metrics, checkpoint, memory } = context
  const { chainId, name } = served.network
  const { token, client } = served
  const at = performance.now()
  await endExplained(context, await readExplained(sql, chainId, atOnce))
  const all = await readLookupRequests(sql, chainId, atOnce)
  const known = new Set(all.map(({ paymentId }) => paymentId))
  for (const id of memory.lookups.keys()) if (!known.has(id)) memory.lookups.delete(id)
  const due = all.filter(({ paymentId }) => (memory.lookups.get(paymentId)?.at ?? 0) <= at)
  if (due.length === 0) return

  const spent = await areNoncesSpent(client, token, due)
  const used = due.filter((_, index) => spent[index])
  const found = await findEvidence(served, used.map(toWanted), signal)
  await checkpoint('before-evidence-recorded')
  await sql.begin((tx) => recordEvents(tx, { chainId, token }, found, 'lookup'))
  await checkpoint('after-evidence-recorded')
  for (const { state, txHash, nonce } of found) {
    metrics.foreignSettlements.inc({ network: name, state })
    log.info({ nonce, hash: txHash, state }, 'a half was used outside our batches')
  }

  const nonces = new Set(found.map(({ nonce }) => nonce))
  const unexplained = new Set(
    used.filter(({ nonce }) => !nonces.has(nonce)).map(({ paymentId }) => paymentId),
  )
  for (const id of unexplained) {
    // The node that said it was used may be ahead of the one that was asked for the log.
    const patienceMs = Math.min((memory.lookups.get(id)?.patienceMs ?? 500) * 2, mostPatienceMs)
    memory.lookups.set(id, { at: at + patienceMs, patienceMs })
  }
  const looked = [...new Set(due.map(({ paymentId }) => paymentId))]
  await endExplained(
    context,
    looked.filter((id) => !unexplained.has(id)),
  )
}

async function endExplained(context: Context, explained: readonly string[]): Promise<void> {
  if (explained.length === 0) return
  await context.sql.begin(async (tx) => {
    await endLookups(tx, explained)
    await wakeDeferred(tx, explained)
    await sweepChosen(context, tx, explained)
  })
}

function toWanted({ from, nonce, since }: LookupRequest) {
  return { from, nonce, since: BigInt(Math.floor(since.getTime() / 1000)) - clockSlackSeconds }
}

/**
 * Checks whether the provider's half of a voided payment was used all the same, since the provider saw the signatures. The index
 * doesn't show it if the platform's fee was left out. One look reads the most valuable halves and some of the others in turn,
 * so decoys delay the discovery of a violation but don't prevent it.
 */
export function createVoidWatch({
  sql,
  served,
  now,
}: Pick<Context, 'sql' | 'served' | 'now'>): () => Promise<void> {
  const { chainId } = served.network
  const limit = voidedAtOnce
  let after = ''

  return async function watchVoided(): Promise<void> {
    const first = await readVoidedHalves(sql, chainId, now(), { limit })
    const others = first.length < limit ? [] : await readVoidedHalves(sql, chainId, now(), { limit, after })
    after = others.length < limit ? '' : (others.at(-1)?.paymentId ?? '')
    const voided = [...new Map([...first, ...others].map((half) => [half.paymentId, half])).values()]
    if (voided.length === 0) return
    const spent = await areNoncesSpent(served.client, served.token, voided)
    const used = voided.filter((_, index) => spent[index]).map(({ paymentId }) => paymentId)
    await requestLookups(sql, used, now())
  }
}
