import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { setTimeout as wait } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../../', import.meta.url))

export type RunningCommand = {
  child: ChildProcess
  /** Everything it wrote so far, both streams. */
  output: () => string
  stdout: () => string
  /** Resolves with the first line that matches. */
  line: (pattern: RegExp) => Promise<string>
  /** Exit status; a signal's name where one ended it. */
  exited: Promise<number | string>
  /** Command lines of all that it started and that still runs, itself included. */
  survivors: () => Promise<string[]>
}

// A terminal has none of what npm and npx tell their children, which other npm commands would take for their flags.
const terminalEnv = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name)))

/** Runs a command in the repository, as a terminal does: in a process group of its own. */
export function runCommand(
  command: string[],
  env: Record<string, string | undefined> = {},
  as: { cwd?: string; uid?: number; gid?: number } = {},
): RunningCommand {
  // Children inherit it, however deep, so that they can be found when their parents are gone.
  const tag = `TOLLKEEPER_TEST_RUN=${randomUUID()}`
  const [name, value] = tag.split('=') as [string, string]
  const [program = '', ...args] = command
  const child = spawn(program, args, {
    cwd: root,
    ...as,
    env: { ...terminalEnv, ...env, [name]: value },
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const lines: string[] = []
  const out: string[] = []
  const watchers = new Set<() => void>()
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on('line', (line) => {
      lines.push(line)
      if (stream === child.stdout) out.push(line)
      for (const look of watchers) look()
    })
  }
  const exited = once(child, 'close').then(([code, signal]) => code ?? signal) as Promise<number | string>
  return {
    child,
    output: () => lines.join('\n'),
    stdout: () => out.join('\n'),
    exited,
    line: (pattern) => {
      const found = new Promise<string>((resolve) => {
        const look = () => {
          const match = lines.find((line) => pattern.test(line))
          if (match !== undefined) resolve(match)
        }
        watchers.add(look)
        look()
      })
      const ended = exited.then((status): never => {
        throw new Error(
          `${command.join(' ')} ended with ${status} before it wrote ${pattern}:\n${lines.join('\n')}`,
        )
      })
      return Promise.race([found, ended])
    },
    survivors: () => processesWith(tag),
  }
}

/** Kills what still runs of it, and looks until nothing is left. */
export async function killAll(command: RunningCommand): Promise<void> {
  const { pid, exitCode, signalCode } = command.child
  if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, 'SIGKILL')
  await untilGone(command)
}

/** Looks until nothing is left: what outlives its parent can't announce its end. */
export async function untilGone({ survivors }: RunningCommand): Promise<void> {
  while ((await survivors()).length > 0) await wait(50)
}

async function processesWith(tag: string): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const found = await Promise.all(
    pids.map(async (pid) => {
      // Another process may end, or not be ours to read, while we look.
      const environment = await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '')
      if (!environment.split('\0').includes(tag)) return []
      const status = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '')
      const isZombie = /\) Z /.test(status)
      const line = await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '')
      return isZombie || line === '' ? [] : [`${pid} ${line.replaceAll('\0', ' ').trim()}`]
    }),
  )
  return found.flat()
}
