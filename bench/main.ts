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
  await bench.run(args)
}
