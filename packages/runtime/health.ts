import { setTimeout as delay } from 'node:timers/promises'
import { describeError } from './log.ts'
import type { Loop } from './repeat.ts'

/** The state of one dependency or loop of a process, in `/readyz`. */
export type Check = {
  name: string
  /** The network that needs this dependency; undefined: all networks need it. */
  network?: string
  ok: boolean
  detail?: string
  /** Set if a failure makes the process only `degraded`, not `unavailable`. */
  optional?: true
}

/**
 * - `ok`: everything works.
 * - `degraded`: only a part works, because one network is down while another works, or because an optional dependency is down.
 * - `unavailable`: the process can't do its work, or one of its loops has stopped.
 */
export type Readiness = { status: 'ok' | 'degraded' | 'unavailable'; checks: Check[] }

export type Probe = Omit<Check, 'ok' | 'detail'> & {
  /** Checks the dependency. Throws, or never resolves, if something is wrong. */
  ask: () => Promise<unknown>
}

/** Time limit in ms for the check of a dependency. The caller of `/readyz` needs a response even if the dependency gives none. */
const probeLimitMs = 3_000
/** Maximum time in ms without a completed step of a loop. */
export const standsStillMs = 20_000

/** Checks that a loop has completed a step recently. */
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
 * Runs all checks concurrently and derives the status. If one network is down, the process is `degraded`. It is `unavailable`
 * only if all networks are down, or if a loop has stopped although its network's node responds.
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
      throw new Error(`no response within ${probeLimitMs} ms`)
    })
    await Promise.race([ask(), limit])
    return { ...probe, ok: true }
  } catch (error) {
    return { ...probe, ok: false, detail: describeError(error).slice(0, 200) }
  } finally {
    inTime.abort()
  }
}
