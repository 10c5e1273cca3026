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
    // The child logs only if LOG_LEVEL is set, to look for a fault.
    stdio: ['ignore', process.env.LOG_LEVEL ? 'inherit' : 'ignore', 'inherit', 'ipc'],
    execArgv: [],
  })
  children.add(child)
  child.once('exit', () => children.delete(child))
  return child
}

/** Returns the options that {@link startChild} passed to this process. */
export function readOptions<Options>(): Options {
  return JSON.parse(process.argv[2] ?? '{}', (_key, value: unknown) =>
    typeof value === 'string' && /^\d+n$/.test(value) ? BigInt(value.slice(0, -1)) : value,
  )
}

/** Returns a child's port once it listens. Throws if the child ends before. */
export async function portOf(child: ChildProcess): Promise<number> {
  const gone = once(child, 'exit').then(([code, signal]): never => {
    throw new Error(`the child ended with ${signal ?? code} before it listened`)
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

/** Kills the children that a test left running. */
export async function killAll(): Promise<void> {
  await Promise.all([...children].map(kill))
}

/** Resolves when the child has killed itself with SIGKILL. Throws if it ends in another way or keeps running. */
export async function death(child: ChildProcess): Promise<void> {
  const [code, signal] = await once(child, 'exit', { signal: AbortSignal.timeout(240_000) })
  if (signal !== 'SIGKILL')
    throw new Error(`the child ended with ${signal ?? code} instead of dying at its checkpoint`)
}
