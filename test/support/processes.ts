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
  /** Everything that the command has written to stdout and stderr so far. */
  output: () => string
  stdout: () => string
  /** Resolves with the first line that matches. */
  line: (pattern: RegExp) => Promise<string>
  /** The exit status, or the name of the signal that killed it. */
  exited: Promise<number | string>
  /** Returns the command lines of the command and its descendants, as far as they still run. */
  survivors: () => Promise<string[]>
}

// Remove the variables that npm and npx set for their children: a terminal has none of them, and other npm commands would read
// them as flags.
const terminalEnv = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name)))

/** Runs a command in the repository, in a separate process group and with the variables of a terminal. */
export function runCommand(
  command: string[],
  env: Record<string, string | undefined> = {},
  as: { cwd?: string; uid?: number; gid?: number } = {},
): RunningCommand {
  // All descendants inherit this variable, so the test can find them after their parents have ended.
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

/** Kills what still runs of a command, and waits until nothing is left. */
export async function killAll(command: RunningCommand): Promise<void> {
  const { pid, exitCode, signalCode } = command.child
  if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, 'SIGKILL')
  await untilGone(command)
}

/** Polls until no process is left, because a process that outlives its parent can't announce its end. */
export async function untilGone({ survivors }: RunningCommand): Promise<void> {
  while ((await survivors()).length > 0) await wait(50)
}

async function processesWith(tag: string): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const found = await Promise.all(
    pids.map(async (pid) => {
      // Since the folder was listed, the process may have exited or become unreadable for us.
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
