import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { parseArgs } from 'node:util'

// The long forms of what `npm test` runs bounded:
//   npm run test:crash -- [--runs N]                 dies at each checkpoint by itself, N times
//   npm run test:chaos -- [file] [--runs N] [--seed S]   the N seeds from S on

const usage = 'npm run test:crash -- [--runs N], or: npm run test:chaos -- [file] [--runs N] [--seed S]'
const [kind, ...args] = process.argv.slice(2)
const { values, positionals } = parseArgs({
  args,
  options: { runs: { type: 'string' }, seed: { type: 'string' } },
  allowPositionals: true,
})
const { runs, seed } = values
for (const [name, value] of Object.entries({ runs, seed })) {
  if (value === undefined || (/^\d{1,9}$/.test(value) && (name === 'seed' || Number(value) > 0))) continue
  process.stderr.write(`--${name}: expected a whole number, got "${value}"; ${usage}\n`)
  process.exit(2)
}

const settings: Record<string, string | undefined> =
  kind === 'crash' ? { CRASH_RUNS: runs ?? '1' } : { CHAOS_RUNS: runs, CHAOS_SEED: seed }
const paths = positionals.length > 0 ? positionals.map((name) => `test/${kind}/${name}`) : [`test/${kind}/`]
const child = spawn('vitest', ['run', '--project', 'system', ...paths], {
  stdio: 'inherit',
  env: { ...process.env, ...settings },
})
const [code] = await once(child, 'exit')
process.exitCode = code ?? 1
