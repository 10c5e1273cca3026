import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import { reapWithUs } from '@tollkeeper/runtime/reaper'

export type ServiceOptions = {
  name: string
  /** The program and its arguments after `node`. */
  program: readonly string[]
  env: Record<string, string | undefined>
  /** URL of the process, which is ready once `readyPath` answers 200. */
  url: string
  readyPath: string
  logFile: string
  /** Called with each line that it writes. */
  onLine?: (line: string) => void
  /** Called when it ends by itself after it was ready. */
  onDeath?: (reason: string) => void
}

const startDeadlineMs = 120_000
const stopDeadlineMs = 15_000

/** A process of the stack, run as a user would: `node <program>` with an environment. */
export class Service {
  readonly name: string
  readonly url: string
  readonly #options: ServiceOptions
  #child: ChildProcess | undefined
  #exited: Promise<void> = Promise.resolve()
  #lastLines: string[] = []
  #isExpectedToEnd = false
  readonly #watchers = new Set<(line: string) => void>()

  constructor(options: ServiceOptions) {
    this.name = options.name
    this.url = options.url
    this.#options = options
  }

  get pid(): number | undefined {
    return this.isRunning ? this.#child?.pid : undefined
  }

  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** The last lines that it wrote, for a report. */
  get lastLines(): readonly string[] {
    return this.#lastLines
  }

  /** Resolves with the next line that matches. */
  nextLine(pattern: RegExp): Promise<string> {
    return new Promise((resolve) => {
      const look = (line: string) => {
        if (!pattern.test(line)) return
        this.#watchers.delete(look)
        resolve(line)
      }
      this.#watchers.add(look)
    })
  }

  /** Starts it and waits until it is ready. Works again after `stop` or `kill`. */
  async start(env: Record<string, string | undefined> = {}): Promise<void> {
    this.#spawn(env)
    const deadline = AbortSignal.timeout(startDeadlineMs)
    const gone = this.#exited.then(() => false)
    for (let pauseMs = 50; !(await this.#answers(deadline)); pauseMs = Math.min(pauseMs * 1.2, 250)) {
      if (deadline.aborted) {
        await this.kill()
        throw new Error(`${this.name} wasn't ready after ${startDeadlineMs / 1000} s:\n${this.#report()}`)
      }
      const isAlive = await Promise.race([gone, delay(pauseMs, true)])
      if (!isAlive) throw new Error(`${this.name} ended at its start (${this.#ending()}):\n${this.#report()}`)
    }
    this.#isExpectedToEnd = false
  }

  /** Asks it to end, waits, and kills it if it doesn't. */
  async stop(): Promise<void> {
    if (!this.isRunning) return
    this.#isExpectedToEnd = true
    this.#signal('SIGTERM')
    const force = setTimeout(() => this.#signal('SIGKILL'), stopDeadlineMs)
    await this.#exited
    clearTimeout(force)
  }

  /** Kills it at once, as a crash would. */
  async kill(): Promise<void> {
    if (!this.isRunning) return
    this.#isExpectedToEnd = true
    this.#signal('SIGKILL')
    await this.#exited
  }

  async restart(env: Record<string, string | undefined> = {}): Promise<void> {
    await this.stop()
    await this.start(env)
  }

  #spawn(env: Record<string, string | undefined>): void {
    if (this.isRunning) throw new Error(`${this.name} runs already`)
    this.#lastLines = []
    this.#isExpectedToEnd = true // until it is ready, start() reports its end
    const child = spawn(process.execPath, [...this.#options.program], {
      // What is undefined isn't passed on.
      env: { ...process.env, ...this.#options.env, ...env },
      // Its own process group: a terminal's Ctrl-C reaches only the supervisor, which stops all in order.
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#child = child
    const forget = child.pid === undefined ? () => {} : reapWithUs(child.pid)
    const log = createWriteStream(this.#options.logFile, { flags: 'a' })
    const lines = [child.stdout, child.stderr].map((input) => {
      const reader = createInterface({ input })
      reader.on('line', (line) => {
        log.write(`${line}\n`)
        this.#lastLines.push(line)
        if (this.#lastLines.length > 30) this.#lastLines.shift()
        this.#options.onLine?.(line)
        for (const look of this.#watchers) look(line)
      })
      return once(reader, 'close')
    })
    const ended = new Promise<void>((resolve) => {
      child.once('error', (error) => {
        this.#lastLines.push(String(error))
        resolve()
      })
      child.once('exit', () => resolve())
    })
    this.#exited = ended.then(async () => {
      await Promise.all(lines)
      log.end()
      forget()
      if (!this.#isExpectedToEnd)
        this.#options.onDeath?.(`${this.name} ended (${this.#ending()}):\n${this.#report()}`)
    })
  }

  #signal(signal: NodeJS.Signals): void {
    const pid = this.#child?.pid
    if (pid === undefined) return
    try {
      // Signals the whole group, so that no child is left.
      process.kill(-pid, signal)
    } catch {
      // It has ended already.
    }
  }

  async #answers(deadline: AbortSignal): Promise<boolean> {
    const answer = await fetch(new URL(this.#options.readyPath, this.url), { signal: deadline }).catch(
      () => undefined,
    )
    await answer?.body?.cancel()
    return answer?.ok ?? false
  }

  #ending(): string {
    return this.#child?.signalCode ?? `status ${this.#child?.exitCode}`
  }

  #report(): string {
    const text = this.#lastLines.join('\n') || '(it wrote nothing)'
    return `${text}\nThe whole log: ${this.#options.logFile}`
  }
}
