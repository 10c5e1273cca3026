import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { reapWithUs } from '@tollkeeper/runtime/reaper'
import { interruptedStatus, onStopSignal } from '../stack/stopSignals.ts'
import { startTollkeeper, type Tollkeeper, type TollkeeperOptions } from './startTollkeeper.ts'

export type DevOptions = Pick<TollkeeperOptions, 'network' | 'port' | 'price' | 'settleAfterSeconds'> & {
  /** The command to run, with the variables in its environment. Empty: wait for Ctrl-C. */
  command: readonly string[]
  /** A file to which the variables are written, for a process that is started elsewhere. */
  writeEnv?: string | undefined
}

/** The exit status with which a shell reports an unknown command. */
const notFoundStatus = 127

/**
 * Runs `tollkeeper dev`: a local environment with payments, and a command that runs in it. Our own messages go to stderr, because
 * stdin and stdout belong to the command.
 *
 * @returns the exit status: the command's, or 128 + the signal that ended the command
 */
export async function runDev({ command, writeEnv, ...options }: DevOptions): Promise<number> {
  const begun = performance.now()
  const logFolder = await mkdtemp(join(tmpdir(), 'tollkeeper-logs-'))
  const startup = new AbortController()
  const stopped = Promise.withResolvers<number>()
  let child: Child | undefined
  onStopSignal((urgent) => {
    startup.abort(new Error('interrupted'))
    child?.end(urgent ? 'SIGKILL' : 'SIGTERM')
    if (!child) stopped.resolve(interruptedStatus)
  })

  let tollkeeper: Tollkeeper | undefined
  let status = 1
  try {
    say('tollkeeper: starting a chain with USDC, Postgres, gateway, keeper and indexer')
    tollkeeper = await startTollkeeper({
      ...options,
      logFolder,
      signal: startup.signal,
      onDeath: (_, reason) => {
        if (startup.signal.aborted) return
        say(`tollkeeper: ${reason}`)
        child?.end('SIGTERM')
        stopped.resolve(1)
      },
    })
    startup.signal.throwIfAborted()
    const lines = Object.entries(tollkeeper.env).map(([name, value]) => `${name}=${value}`)
    if (writeEnv !== undefined) await writeFile(writeEnv, `${lines.join('\n')}\n`, { mode: 0o600 })
    say(describe(tollkeeper, lines, (performance.now() - begun) / 1000, command.length === 0))
    if (command.length > 0) child = startChild(command, tollkeeper.env)
    status = await Promise.race([stopped.promise, ...(child ? [child.exited] : [])])
  } catch (error) {
    status = startup.signal.aborted ? interruptedStatus : 1
    if (!startup.signal.aborted) say(`tollkeeper: ${error instanceof Error ? error.message : error}`)
  }
  startup.abort(new Error('stopped')) // From here on, processes are expected to end.
  await child?.exited
  await tollkeeper?.close()
  if (status === 1) say(`tollkeeper: logs of all processes: ${logFolder}`)
  else await rm(logFolder, { recursive: true, force: true })
  return status
}

type Child = { exited: Promise<number>; end: (signal: NodeJS.Signals) => void }

function startChild([program = '', ...args]: readonly string[], env: Record<string, string>): Child {
  // On a terminal, the command stays in our process group: only this group may read from the terminal, and the command receives
  // Ctrl-C itself. Elsewhere the command gets a separate group, which is killed when our process ends.
  const detached = !process.stdin.isTTY
  const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: 'inherit', detached })
  const forget = detached && child.pid !== undefined ? reapWithUs(child.pid) : () => {}
  const failed = once(child, 'error').then(([error]: Error[]) => {
    say(`tollkeeper: ${program} can't be run: ${error?.message}`)
    return notFoundStatus
  })
  const ended = new Promise<number>((resolve) => {
    child.once('exit', (code, signal) => resolve(code ?? 128 + constants.signals[signal ?? 'SIGTERM']))
  })
  const exited = Promise.race([ended, child.pid === undefined ? failed : ended]).finally(forget)
  return { exited, end: (signal) => endChild(child, signal, detached) }
}

function endChild(child: ChildProcess, signal: NodeJS.Signals, isLeader: boolean): void {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  if (!isLeader) return void child.kill(signal)
  try {
    process.kill(-child.pid, signal)
  } catch {
    // The command has ended already.
  }
}

function describe(
  tollkeeper: Tollkeeper,
  lines: readonly string[],
  seconds: number,
  isWaiting: boolean,
): string {
  return [
    `tollkeeper: ready after ${seconds.toFixed(1)} s; dashboard ${tollkeeper.gatewayUrl}/dashboard/`,
    ...lines.map((line) => `  ${line}`),
    ...(isWaiting ? ['Waiting; Ctrl-C stops everything'] : []),
  ].join('\n')
}

function say(text: string): void {
  process.stderr.write(`${text}\n`)
}
