import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'

const children = new Set<ChildProcess>()

/** Starts a program of this folder, with its options as its argument. */
export function startChild(program: string, options: object): ChildProcess {
  const json = JSON.stringify(options, (_key, value: unknown) =>
    typeof value === 'bigint' ? `${value}n` : value,
  )
  const child = fork(join(import.meta.dirname, program), [json], {
    // What it logs, and at which level, is for whoever looks for a fault: LOG_LEVEL=info.
    stdio: ['ignore', process.env.LOG_LEVEL ? 'inherit' : 'ignore', 'inherit', 'ipc'],
    execArgv: [],
  })
  children.add(child)
  child.once('exit', () => children.delete(child))
  return child
}

/** What {@link startChild} gave this process. */
export function readOptions<Options>(): Options {
  return JSON.parse(process.argv[2] ?? '{}', (_key, value: unknown) =>
    typeof value === 'string' && /^\d+n$/.test(value) ? BigInt(value.slice(0, -1)) : value,
  )
}

/** The port that a child listens on, once it does. */
export async function portOf(child: ChildProcess): Promise<number> {
  const gone = once(child, 'exit').then(([code, signal]): never => {
    throw new Error(`it ended with ${signal ?? code} before it listened`)
  })
  gone.catch(() => {})
  const [message] = (await Promise.race([once(child, 'message'), gone])) as [{ port: number }]
  return message.port
}

function isAlive({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode === null && signalCode === null
}

export async function kill(child: ChildProcess): Promise<void> {
  if (!isAlive(child)) return
  const gone = once(child, 'exit')
  child.kill('SIGKILL')
  await gone
}

/** What a test left running. */
export async function killAll(): Promise<void> {
  await Promise.all([...children].map(kill))
}

/** Resolves when it has ended itself with SIGKILL; throws if it ends in another way, or goes on living. */
export async function death(child: ChildProcess): Promise<void> {
  const [code, signal] = await once(child, 'exit', { signal: AbortSignal.timeout(240_000) })
  if (signal !== 'SIGKILL')
    throw new Error(`it ended with ${signal ?? code} instead of dying at its checkpoint`)
}
