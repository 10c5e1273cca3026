import { setTimeout as delay } from 'node:timers/promises'
import { describeError } from './log.ts'
import type { Loop } from './repeat.ts'

/** A line of `/readyz` about one thing that a process needs. */
export type Check = {
  name: string
  /** The network that needs it; absent: all of them do. */
  network?: string
  ok: boolean
  detail?: string
  /** It is shown, but doesn't make the process unready. */
  optional?: true
}

/**
 * - `ok`: all is well.
 * - `degraded`: it works in part: a network is down while another works, or something optional is down.
 * - `unavailable`: it can't do its work, or one of its loops stands still.
 */
export type Readiness = { status: 'ok' | 'degraded' | 'unavailable'; checks: Check[] }

export type Probe = Omit<Check, 'ok' | 'detail'> & {
  /** Throws, or never answers, if something is wrong. */
  ask: () => Promise<unknown>
}

/** How long we wait for a dependency, since a probe needs an answer even if the dependency gives none. */
const probeLimitMs = 3_000
/** How long a loop's steps may take or fail. */
export const standsStillMs = 20_000

/** Checks that a loop has completed a step lately. */
export function probeLoop(loop: Loop, network?: string): Probe {
  return {
    name: `loop ${loop.name}`,
    ...(network !== undefined && { network }),
    ask: async () => {
      const ms = loop.sinceStepMs()
      if (ms > standsStillMs) throw new Error(`no step was completed for ${Math.floor(ms / 1000)} s`)
    },
  }
}

/**
 * Asks all probes at once and judges by the answers. If one network is down, the process is `degraded`; it is `unavailable`
 * only if all are down, or a loop stands still although its network's node answers.
 */
export async function readReadiness(probes: readonly Probe[]): Promise<Readiness> {
  const checks = await Promise.all(probes.map(check))
  const failing = checks.filter(({ ok, optional }) => !ok && !optional)
  const networks = new Set(checks.flatMap(({ network }) => network ?? []))
  const down = new Set(failing.flatMap(({ network }) => network ?? []))
  const isUnreachable = (network: string | undefined) =>
    failing.some((one) => one.network === network && one.name.startsWith('rpc '))
  const isUnavailable =
    failing.some(({ network }) => network === undefined) ||
    failing.some(({ name, network }) => name.startsWith('loop ') && !isUnreachable(network)) ||
    (networks.size > 0 && down.size === networks.size)
  if (isUnavailable) return { status: 'unavailable', checks }
  return { status: checks.every(({ ok }) => ok) ? 'ok' : 'degraded', checks }
}

async function check({ ask, ...probe }: Probe): Promise<Check> {
  const inTime = new AbortController()
  try {
    const limit = delay(probeLimitMs, undefined, { signal: inTime.signal }).then(() => {
      throw new Error(`no answer within ${probeLimitMs} ms`)
    })
    await Promise.race([ask(), limit])
    return { ...probe, ok: true }
  } catch (error) {
    return { ...probe, ok: false, detail: describeError(error).slice(0, 200) }
  } finally {
    inTime.abort()
  }
}
