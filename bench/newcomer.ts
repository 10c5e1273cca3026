/**
 * Measures the time from a clean clone to an audited demo: `git clone` of the commit that is checked out, `npm ci` by Node 24 with a warm
 * npm cache, and `npm run demo`.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { atMost, type Goals } from './support/goals.ts'
import { round1, type Say } from './support/statistics.ts'

/** With `install: 0`, only the demo runs, in this checkout. */
export const options = { install: 1 }

export const figures = ({ install }: typeof options) => [
  ...(install === 0 ? [] : ['cloneSeconds', 'installSeconds']),
  'demoSeconds',
  'totalSeconds',
  'receipts',
]

export const goals = (): Goals => ({ totalSeconds: atMost(45) })

const root = join(import.meta.dirname, '..')

export async function run({ install }: typeof options, say: Say): Promise<object> {
  if (install === 0) {
    const { seconds: demoSeconds, receipts } = await runDemo(root, say)
    return { demoSeconds, totalSeconds: demoSeconds, receipts }
  }
  const parent = await mkdtemp(join(tmpdir(), 'tollkeeper-newcomer-'))
  try {
    const folder = join(parent, 'tollkeeper')
    const cloned = await time(parent, ['git', 'clone', '--quiet', root, folder])
    say(`cloned in ${cloned.seconds} s`)
    const installed = await time(folder, ['npx', '-y', '-p', 'node@24', '-c', 'npm ci'])
    say(`installed in ${installed.seconds} s`)
    const demo = await runDemo(folder, say)
    return {
      cloneSeconds: cloned.seconds,
      installSeconds: installed.seconds,
      demoSeconds: demo.seconds,
      totalSeconds: round1(cloned.seconds + installed.seconds + demo.seconds),
      receipts: demo.receipts,
    }
  } finally {
    await rm(parent, { recursive: true, force: true })
  }
}

/** Runs the demo, which fails if a receipt doesn't reconcile with the chain or USDC is missing. */
async function runDemo(folder: string, say: Say): Promise<{ seconds: number; receipts: number }> {
  const { seconds, stdout } = await time(folder, ['npm', 'run', '--silent', 'demo', '--', '--json'])
  const { audit } = JSON.parse(stdout) as { audit: { settled: number } }
  say(`demo in ${seconds} s`)
  return { seconds, receipts: audit.settled }
}

/** Runs a command to its end, and shows the command's error output only if the command fails. */
async function time(cwd: string, [command = '', ...args]: string[]) {
  const began = performance.now()
  // Removes variables of the `npm run` that may have started this process, because a newcomer's shell has none.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('npm_')))
  const child = spawn(command, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (chunk) => {
    stdout += chunk
  })
  child.stderr.on('data', (chunk) => {
    stderr = (stderr + chunk).slice(-5_000)
  })
  const [code] = await once(child, 'close')
  if (code !== 0) throw new Error(`${[command, ...args].join(' ')} ended with status ${code}:\n${stderr}`)
  return { seconds: round1((performance.now() - began) / 1000), stdout }
}
