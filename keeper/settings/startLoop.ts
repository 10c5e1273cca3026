import { type Probe, probeLoop } from '@tollkeeper/runtime/health'
import type { Logger } from '@tollkeeper/runtime/log'
import { type Loop, repeat } from '@tollkeeper/runtime/repeat'
import { logBadRow, type OnBadRow } from '@tollkeeper/runtime/stepBack'
import type { Metrics } from './metrics.ts'

/**
 * Repeats a step, counts and logs its failures, and adds a probe of the loop.
 *
 * @param network the loop's network; null for a loop of all networks, which reads no chain
 */
export function startLoop(
  { metrics, log, probes }: { metrics: Metrics; log: Logger; probes: Probe[] },
  name: string,
  network: string | null,
  everyMs: number,
  step: () => Promise<unknown>,
): Loop {
  const loop = repeat({
    name: network === null ? name : `${name} ${network}`,
    everyMs,
    step,
    onError(err, failures) {
      metrics.loopErrors.inc({ network: network ?? '', loop: name })
      log.warn({ err, loop: name, network, failures }, 'a step failed and will run again')
    },
  })
  probes.push(probeLoop(loop, network ?? undefined))
  return loop
}

/**
 * Returns a function that counts and logs each row that a loop could not process.
 *
 * @param network the loop's network; empty for a loop of all networks
 */
export function reportBadRow(
  { metrics, log }: { metrics: Pick<Metrics, 'badRows'>; log: Logger },
  network: string,
): OnBadRow {
  const logged = logBadRow(log)
  return (step, err, row) => {
    metrics.badRows.inc({ network, step })
    logged(step, err, row)
  }
}
