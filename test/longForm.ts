import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { parseArgs } from 'node:util'

// The long forms of tests that `npm run test:system` limits:
//   npm run test:crash -- [--runs N] [--at NAME]     dies N times at each checkpoint, or only at NAME
//   npm run test:chaos -- [file] [--runs N] [--seed S]   N seeds, starting at S
//   npm run test:chaos -- topology [--runs N]           kills each process separately, N times
//   npm run test:chaos -- outages [--seconds N]          a dependency is unavailable for N seconds
//   npm run test:chaos -- answers [--runs N] [--seed S]  N purchases whose answers get lost, or whose sellers lie
//   npm run test:chaos -- buyerMoney [--runs N] [--seed S]   N interleavings of buyers, sellers, strangers and reorgs on tabs
//   npm run test:chaos -- hostile [--minutes N] [--only A,B]   all adversaries at once, for an hour or N minutes

const usage =
  'npm run test:crash -- [--runs N] [--at NAME], or: npm run test:chaos -- [file] [--runs N] [--seed S] [--seconds N] [--minutes N] [--only A,B]'
const [kind, ...args] = process.argv.slice(2)
const { values, positionals } = parseArgs({
  args,
  options: {
    runs: { type: 'string' },
    at: { type: 'string' },
    seed: { type: 'string' },
    seconds: { type: 'string' },
    minutes: { type: 'string' },
    only: { type: 'string' },
  },
  allowPositionals: true,
})
const { runs, seed, seconds, minutes } = values
for (const [name, value] of Object.entries({ runs, seed, seconds, minutes })) {
  const expected = name === 'minutes' ? /^\d{1,9}(\.\d+)?$/ : /^\d{1,9}$/
  if (value === undefined || (expected.test(value) && (name === 'seed' || Number(value) > 0))) continue
  process.stderr.write(`--${name}: expected a number, got "${value}"; ${usage}\n`)
  process.exit(2)
}

const settings: Record<string, string | undefined> =
  kind === 'crash'
    ? { CRASH_RUNS: runs ?? '1' }
    : {
        CHAOS_RUNS: runs,
        CHAOS_SEED: seed,
        OUTAGE_SECONDS: seconds,
        HOSTILE_MINUTES: minutes ?? (positionals.includes('hostile') ? '60' : undefined),
        HOSTILE_ONLY: values.only,
      }
// The tests `topology` and `hostile` share a stack, and therefore the file of `hostile`.
const plays = ['topology', 'hostile']
const left = positionals.length > 0 ? plays.filter((name) => !positionals.includes(name)) : []
const pathOf = (name: string) => `test/${kind}/${name === 'topology' ? 'hostile' : name}`
const paths = positionals.length > 0 ? positionals.map(pathOf) : [`test/${kind}/`]
const pattern =
  values.at === undefined ? left.map((name) => `^(?!${name} )`).join('') : `dies at ${values.at}`
const only = pattern === '' ? [] : ['--testNamePattern', pattern]
const child = spawn('vitest', ['run', '--project', 'system*', ...only, ...paths], {
  stdio: 'inherit',
  env: { ...process.env, ...settings },
})
const [code] = await once(child, 'exit')
process.exitCode = code ?? 1
