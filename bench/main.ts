/**
 * `npm run bench -- <name> [--json]`: runs bench/<name>.ts, whose `run` gets the arguments, and prints what it returns, with
 * `--json` as the last line. That says as well whether others disturbed it.
 */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { watchMachine } from './support/machine.ts'

const [name, ...args] = process.argv.slice(2)
const names = readdirSync(import.meta.dirname)
  .filter((file) => file.endsWith('.ts') && file !== 'main.ts' && !file.endsWith('.test.ts'))
  .map((file) => file.slice(0, -3))

if (name === undefined || !names.includes(name)) {
  console.error(`usage: npm run bench -- <${names.join('|')}> [--json]`)
  process.exitCode = 1
} else {
  await runBench(name).catch((error: unknown) => {
    // An option that the bench doesn't know: its message says which.
    if (!(error instanceof TypeError && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS')))
      throw error
    console.error(`${name}: ${error.message}`)
    process.exitCode = 1
  })
}

async function runBench(name: string): Promise<void> {
  const bench: { run: (args: string[]) => Promise<object | undefined> } = await import(
    join(import.meta.dirname, `${name}.ts`)
  )
  const lookAgain = await watchMachine()
  const result = await bench.run(args)
  if (result === undefined) return
  const report = { ...result, ...(await lookAgain()) }
  if (args.includes('--json')) console.log(JSON.stringify(report))
  else for (const [key, value] of Object.entries(report)) console.log(key.padEnd(30), value)
}
