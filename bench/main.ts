/** `npm run bench -- <name> [--json]`: runs bench/<name>.ts, whose `run` gets the remaining arguments. */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'

const [name, ...args] = process.argv.slice(2)
const names = readdirSync(import.meta.dirname)
  .filter((file) => file.endsWith('.ts') && file !== 'main.ts' && !file.endsWith('.test.ts'))
  .map((file) => file.slice(0, -3))

if (name === undefined || !names.includes(name)) {
  console.error(`usage: npm run bench -- <${names.join('|')}> [--json]`)
  process.exitCode = 1
} else {
  const bench: { run: (args: string[]) => Promise<void> } = await import(
    join(import.meta.dirname, `${name}.ts`)
  )
  await bench.run(args).catch((error: unknown) => {
    // An option that the bench doesn't know: its message says which.
    if (!(error instanceof TypeError && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS')))
      throw error
    console.error(`${name}: ${error.message}`)
    process.exitCode = 1
  })
}
