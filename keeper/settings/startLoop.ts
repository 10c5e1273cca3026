import { type Probe, probeLoop } from '@tollkeeper/runtime/health'
import type { Logger } from '@tollkeeper/runtime/log'
import { type Loop, repeat } from '@tollkeeper/runtime/repeat'
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
