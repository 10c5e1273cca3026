import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'

export type CliResult = { status: number; stdout: string; stderr: string }

export const cliPath = fileURLToPath(new URL('../../cli/tollkeeper.js', import.meta.url))

/**
 * Runs `tollkeeper` as a person does, with nothing of ours in the environment.
 *
 * @param cwd a folder without a `.env`
 */
export async function runCli(
  args: readonly string[],
  { cwd, env = {}, stdin = '' }: { cwd: string; env?: Record<string, string | undefined>; stdin?: string },
): Promise<CliResult> {
  const child: ChildProcessWithoutNullStreams = spawn(process.execPath, [cliPath, ...args], {
    cwd,
    env: {
      PATH: process.env.PATH,
      NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
      NO_COLOR: '1',
      ...env,
    },
  })
  child.stdin.end(stdin)
  const [stdout, stderr, [status]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ])
  return { status: status as number, stdout, stderr }
}
