import { findEvidence } from '@tollkeeper/chain/evidence'
import { areNoncesSpent } from '@tollkeeper/chain/simulate'
import {
  endLookups,
  hasLookups,
  type LookupRequest,
  postponeLookups,
  readExplained,
  readLookupRequests,
  recordEvents,
  requestLookups,
} from '@tollkeeper/ledger/facts/record'
import { wakeDeferred } from '@tollkeeper/ledger/queue/stages'
import { readVoidedHalves } from '@tollkeeper/ledger/results/voids'
import { allOrEach } from '@tollkeeper/runtime/stepBack'
import { reportBadRow } from '../settings/startLoop.ts'
import { authorizationKey } from '../settler/outcomes.ts'
import type { Context } from './context.ts'
import { reconcileChosen } from './movePayments.ts'

const atOnce = 200
/** Maximum number of voided payments that one call to the chain checks. */
const voidedAtOnce = 150
/** Maximum seconds by which a block's timestamp may be behind our clock. */
const clockSlackSeconds = 900n

/**
 * Looks up who used authorizations whose use the record doesn't explain. If a stranger used an authorization, that doesn't count as one of the
 * payment's attempts.
 */
export async function lookUpRequested(context: Context, signal?: AbortSignal): Promise<void> {
  const { sql, served, log, metrics, checkpoint } = context
  const { chainId, name } = served.network
  const { token, client } = served
  const onBadRow = reportBadRow(context, name)
  if (!(await hasLookups(sql, chainId))) return
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
    log.info({ nonce, hash: txHash, state }, 'an authorization was used outside of our batches')
  }

  const unexplained = findUnexplained(used, recorded)
  // The node's logs don't show these uses yet: the request for logs may have reached another node, which is behind.
  await postponeLookups(sql, [...unexplained])
  const looked = [...new Set(due.map(({ paymentId }) => paymentId))]
  await endExplained(
    context,
    looked.filter((id) => !unexplained.has(id)),
  )
}

/**
 * Returns the payments with an authorization whose use no recorded event explains. Payers choose nonces, so a nonce identifies an
 * authorization only together with its payer.
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
 * Checks whether a provider has settled its part of a voided payment anyway, which it can do because it has seen the signatures. The index
 * finds such a use only by the transfer of the fee, so it misses the use if the provider leaves the fee out. Each check reads the most
 * valuable authorizations and some of the others in turn, so decoys can delay the discovery of a violation but can't prevent it.
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
