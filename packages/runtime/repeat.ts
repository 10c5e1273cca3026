import { setTimeout as delay } from 'node:timers/promises'

/** Background work that runs in steps until it is stopped. */
export type Loop = {
  readonly name: string
  /** Returns the time in ms since the last step was completed, or since the start if none was. */
  sinceStepMs(): number
  /** Starts the next step now. */
  wake(): void
  /** Starts no further step, and waits for the current one. */
  stop(): Promise<void>
}

export type RepeatOptions = {
  name: string
  /**
   * Pause in ms between two steps. After a failed step, the pause is only 100 ms at first, because the cause may be a lost connection.
   * It doubles with each consecutive failure, up to ten seconds more than this value.
   */
  everyMs: number
  /** Does one step of the work. If it returns `busy`, the next step follows immediately. */
  step: () => Promise<unknown>
  onError: (error: unknown, failures: number) => void
}

const firstRetryMs = 100
const maxAddedPauseMs = 10_000

/** Runs a step repeatedly. After a failed step, it waits and tries again. The pauses grow with consecutive failures. */
export function repeat({ name, everyMs, step, onError }: RepeatOptions): Loop {
  let isStopping = false
  let pause = new AbortController()
  let completedAt = performance.now()

  async function run(): Promise<void> {
    let failures = 0
    while (!isStopping) {
      let result: unknown
      try {
        result = await step()
        failures = 0
        completedAt = performance.now()
      } catch (error) {
        failures += 1
        onError(error, failures)
      }
      if (isStopping || result === 'busy') continue
      await delay(failures === 0 ? everyMs : retryAfterMs(everyMs, failures), undefined, {
        signal: pause.signal,
      }).catch(() => {})
      pause = new AbortController()
    }
  }
  const running = run()

  return {
    name,
    sinceStepMs: () => performance.now() - completedAt,
    wake: () => pause.abort(),
    async stop() {
      isStopping = true
      pause.abort()
      await running
    },
  }
}

/** Returns the pause in ms after this many consecutive failures. */
export function retryAfterMs(everyMs: number, failures: number): number {
  return Math.min(firstRetryMs * 2 ** Math.min(failures - 1, 10), everyMs + maxAddedPauseMs)
}
