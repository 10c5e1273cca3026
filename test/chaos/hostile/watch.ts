import { setTimeout as wait } from 'node:timers/promises'
import type { HoldReason } from '@tollkeeper/ledger/queue/stages'
import { standsStillMs } from '@tollkeeper/runtime/health'
import type { Host, Scene } from './scene.ts'

/**
 * Time in ms after which `/readyz` must report a stalled worker. It is the sum of the worker's time limit, the time from a lease renewal to
 * the end of the step, and the duration of a probe.
 */
const unseenMs = standsStillMs + 4_000
const lookMs = 500

/**
 * Polls every keeper's `/readyz`, and the lease that its worker renews with each step.
 *
 * @returns once `over` has fired: the moments at which `/readyz` reported success although the worker had made no step for longer than
 * {@link unseenMs}.
 */
export async function watchReadiness(scene: Scene, over: AbortSignal): Promise<string[]> {
  const lies = await Promise.all(scene.keepers.map((keeper) => watch(scene, keeper, over)))
  return lies.flat()
}

/**
 * Records, until `over` fires, when each payment was first seen waiting, and why payments wait for gas. Polling finds every reason, because such a
 * wait is longer than the polling interval.
 */
export async function watchQueue({ database, held, seenAt }: Scene, over: AbortSignal): Promise<void> {
  while (!over.aborted) {
    const rows = await database<{ id: string; reason: HoldReason | null; now: Date }[]>`
      select payment_id as id, held_by as reason, clock_timestamp() as now from queue
      where stage = 'waiting' or held_by is not null`
    for (const { id, reason, now } of rows) {
      if (!seenAt.has(id)) seenAt.set(id, now)
      if (reason !== null) held.set(id, reason)
    }
    await wait(lookMs, undefined, { signal: over }).catch(() => {})
  }
}

async function watch(
  { database }: Scene,
  { name, service, wallet }: Host,
  over: AbortSignal,
): Promise<string[]> {
  const lies: string[] = []
  let movedAt = Date.now()
  let renewal = ''
  while (!over.aborted) {
    const [row] = await database<{ renewal: string }[]>`
      select expires_at::text as renewal from wallet_lease where address = ${wallet?.toLowerCase() ?? ''}`
    if (row && row.renewal !== renewal) {
      renewal = row.renewal
      movedAt = Date.now()
    }
    const answer = await fetch(new URL('/readyz', service.url), { signal: AbortSignal.timeout(5_000) }).catch(
      () => undefined,
    )
    await answer?.body?.cancel()
    const stillMs = Date.now() - movedAt
    if (answer?.ok && stillMs > unseenMs)
      lies.push(`${name} reports ready ${stillMs} ms after its worker's last step`)
    await wait(lookMs, undefined, { signal: over }).catch(() => {})
  }
  return lies
}
