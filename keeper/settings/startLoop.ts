import { type Probe, probeLoop } from '@tollkeeper/runtime/health'
import type { Logger } from '@tollkeeper/runtime/log'
import { type Loop, repeat } from '@tollkeeper/runtime/repeat'
import { logBadRow, type OnBadRow } from '@tollkeeper/runtime/stepBack'
import type { Metrics } from './metrics.ts'

/**
 * Takes a step again and again, counts where it fails, and adds a probe of it.
 *
 * @param network null: it is of all networks, and asks none.
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
      log.warn({ err, loop: name, network, failures }, 'a step failed and will be taken again')
    },
  })
  probes.push(probeLoop(loop, network ?? undefined))
  return loop
}

/**
 * Counts and logs each row that a loop could not process.
 *
 * @param network of the loop; empty: it is of all networks.
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
