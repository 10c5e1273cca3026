import { findEvidence } from '@tollkeeper/chain/evidence'
import { areNoncesSpent } from '@tollkeeper/chain/simulate'
import {
  endLookups,
  type LookupRequest,
  postponeLookups,
  readExplained,
  readLookupRequests,
  recordEvents,
  requestLookups,
} from '@tollkeeper/ledger/facts/record'
import { readVoidedHalves } from '@tollkeeper/ledger/outcomes/voids'
import { wakeDeferred } from '@tollkeeper/ledger/queue/stages'
import { allOrEach } from '@tollkeeper/runtime/stepBack'
import { reportBadRow } from '../settings/startLoop.ts'
import { authorizationKey } from '../settler/outcomes.ts'
import type { Context } from './context.ts'
import { reconcileChosen } from './movePayments.ts'

const atOnce = 200
/** How many voided payments one call to the chain answers for. */
const voidedAtOnce = 150
// How far a block's clock may be behind ours.
const clockSlackSeconds = 900n

/** Finds out who used a half that the record doesn't explain. A stranger's use counts as no attempt. */
export async function lookUpRequested(context: Context, signal?: AbortSignal): Promise<void> {
  const { sql, served, log, metrics, checkpoint } = context
  const { chainId, name } = served.network
  const { token, client } = served
  const onBadRow = reportBadRow(context, name)
  await endExplained(context, await readExplained(sql, chainId, atOnce))
  const due = await readLookupRequests(sql, chainId, atOnce)
  if (due.length === 0) return

  const spent = await areNoncesSpent(client, token, due)
  const used = due.filter((_, index) => spent[index])
  const found = await findEvidence(served, used.map(toWanted), signal)
  await checkpoint('before-evidence-recorded')
  const unrecorded = await allOrEach(
    found,
    (events) => sql.begin((tx) => recordEvents(tx, { chainId, token }, events, 'lookup')),
    (error, { authorizer, nonce }) => onBadRow('lookup', error, { payer: authorizer, nonce }),
    { ask: () => sql`select 1` },
  )
  await checkpoint('after-evidence-recorded')
  const recorded = found.filter((event) => !unrecorded.includes(event))
  for (const { state, txHash, nonce } of recorded) {
    metrics.foreignSettlements.inc({ network: name, state })
    log.info({ nonce, hash: txHash, state }, 'a half was used outside our batches')
  }

  const unexplained = findUnexplained(used, recorded)
  // The node that said it was used may be ahead of the one that was asked for the log.
  await postponeLookups(sql, [...unexplained])
  const looked = [...new Set(due.map(({ paymentId }) => paymentId))]
  await endExplained(
    context,
    looked.filter((id) => !unexplained.has(id)),
  )
}

/**
 * Finds the payments with a half that nothing recorded explains. Payers choose nonces, so a nonce names an authorization only together
 * with its payer.
 */
export function findUnexplained(
  used: readonly Pick<LookupRequest, 'paymentId' | 'from' | 'nonce'>[],
  recorded: readonly { authorizer: string; nonce: string }[],
): Set<string> {
  const explained = new Set(
    recorded.map(({ authorizer, nonce }) => authorizationKey({ from: authorizer, nonce })),
  )
  return new Set(used.flatMap((one) => (explained.has(authorizationKey(one)) ? [] : one.paymentId)))
}

async function endExplained(context: Context, explained: readonly string[]): Promise<void> {
  const failed = await allOrEach(
    explained,
    (paymentIds) =>
      context.sql.begin(async (tx) => {
        await endLookups(tx, paymentIds)
        await wakeDeferred(tx, paymentIds)
        await reconcileChosen(context, tx, paymentIds)
      }),
    (error, paymentId) => reportBadRow(context, context.served.network.name)('lookup', error, { paymentId }),
    { ask: () => context.sql`select 1` },
  )
  await postponeLookups(context.sql, failed)
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
