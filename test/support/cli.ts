import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { vi } from 'vitest'
import { runCommandLine } from '../../apps/cli/program.ts'

export type CliResult = { status: number; stdout: string; stderr: string }

export const cliPath = fileURLToPath(new URL('../../apps/cli/tollkeeper.js', import.meta.url))

type CliOptions = {
  /** A folder without a `.env`. */
  cwd: string
  env?: Record<string, string | undefined>
  stdin?: string
}

const environment = (env: CliOptions['env']) => ({
  PATH: process.env.PATH,
  NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
  NO_COLOR: '1',
  // Hides the profile of the person who runs the tests.
  XDG_CONFIG_HOME: join(tmpdir(), 'tollkeeper-without-profiles'),
  ...env,
})

/** Runs `tollkeeper` as a user would, with none of our variables in the environment. */
export async function runCli(
  args: readonly string[],
  { cwd, env, stdin = '' }: CliOptions,
): Promise<CliResult> {
  const child: ChildProcessWithoutNullStreams = spawn(process.execPath, [cliPath, ...args], {
    cwd,
    env: environment(env),
  })
  child.stdin.end(stdin)
  const [stdout, stderr, [status]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ])
  return { status: status as number, stdout, stderr }
}

/**
 * Runs a command in this process, because starting a process takes most of a command's time. Only one command may run at a time.
 * A command that runs one of our programs must not run here, because a module runs only once.
 */
export async function runCliHere(
  args: readonly string[],
  { cwd, env, stdin = '' }: CliOptions,
): Promise<CliResult> {
  const written = { stdout: '', stderr: '' }
  const before = { env: { ...process.env }, cwd: process.cwd(), exitCode: process.exitCode }
  const own = Object.entries(environment(env)).filter(([, value]) => value !== undefined)
  const [out, err] = (['stdout', 'stderr'] as const).map((name) =>
    vi.spyOn(process[name], 'write').mockImplementation((chunk, encoding?: unknown, callback?: unknown) => {
      written[name] += typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString()
      for (const done of [encoding, callback]) if (typeof done === 'function') done()
      return true
    }),
  )
  const input = vi.spyOn(process, 'stdin', 'get').mockReturnValue(Readable.from([stdin]) as never)
  for (const name of Object.keys(process.env)) delete process.env[name]
  Object.assign(process.env, Object.fromEntries(own))
  process.exitCode = undefined
  process.chdir(cwd)
  try {
    await runCommandLine(args)
    return { status: Number(process.exitCode ?? 0), ...written }
  } finally {
    for (const spy of [out, err, input]) spy?.mockRestore()
    for (const name of Object.keys(process.env)) delete process.env[name]
    Object.assign(process.env, before.env)
    process.exitCode = before.exitCode
    process.chdir(before.cwd)
  }
}
