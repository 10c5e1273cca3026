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
  /** URL of the process. The process is ready when `readyPath` responds with 200. */
  url: string
  readyPath: string
  logFile: string
  /** Called with each line of output. */
  onLine?: (line: string) => void
  /** Called if the process ends by itself after it was ready. */
  onDeath?: (reason: string) => void
}

const startDeadlineMs = 120_000
const stopDeadlineMs = 15_000

/** A process of the stack, run as a user would run it: `node <program>` with an environment. */
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

  /** Returns the last lines of output, for a report. */
  get lastLines(): readonly string[] {
    return this.#lastLines
  }

  /** Resolves with the next matching line. */
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

  /** Starts the process and waits until it is ready. Can be called again after `stop` or `kill`. */
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

  /** Asks the process to end, waits, and kills it if it doesn't. */
  async stop(): Promise<void> {
    if (!this.isRunning) return
    this.#isExpectedToEnd = true
    this.#signal('SIGTERM')
    const force = setTimeout(() => this.#signal('SIGKILL'), stopDeadlineMs)
    await this.#exited
    clearTimeout(force)
  }

  /** Kills the process immediately, like a crash. */
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
    if (this.isRunning) throw new Error(`${this.name} is already running`)
    this.#lastLines = []
    this.#isExpectedToEnd = true // Don't call `onDeath` before the process is ready: if the process ends until then, start() throws.
    const child = spawn(process.execPath, [...this.#options.program], {
      // Undefined values aren't passed on.
      env: { ...process.env, ...this.#options.env, ...env },
      // Use a separate process group: Ctrl-C on a terminal then reaches only the supervisor, which stops all processes in order.
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
      // The group has ended already.
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
    const text = this.#lastLines.join('\n') || '(no output)'
    return `${text}\nFull log: ${this.#options.logFile}`
  }
}
