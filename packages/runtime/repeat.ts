import { setTimeout as delay } from 'node:timers/promises'

/** Background work that is done step by step until it is stopped. */
export type Loop = {
  readonly name: string
  /** Milliseconds since a step was last completed, or since the start if none was. */
  sinceStepMs(): number
  /** Takes the next step now. */
  wake(): void
  /** Takes no further step, and waits for the one under way. */
  stop(): Promise<void>
}

export type RepeatOptions = {
  name: string
  /**
   * The pause between two steps. After a first failure it is short, because the cause may be a lost connection; it grows
   * with each failure in a row, up to ten seconds more than this.
   */
  everyMs: number
  /** `busy`: the next step follows at once. */
  step: () => Promise<unknown>
  onError: (error: unknown, failures: number) => void
}

const firstRetryMs = 100
const maxAddedPauseMs = 10_000

/** Takes a step again and again. One that fails is taken again, with growing pauses while it goes on failing. */
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

/** The pause after this many failures in a row. */
export function retryAfterMs(everyMs: number, failures: number): number {
  return Math.min(firstRetryMs * 2 ** Math.min(failures - 1, 10), everyMs + maxAddedPauseMs)
}
