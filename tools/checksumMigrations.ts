/**
 * Writes checksums.sha256 next to the migrations of the ledger and of the tab store, in the format of `sha256sum`: one line for each
 * migration and for each function in `functions/stored/`.
 *
 * A database stores the checksums of the migrations that were applied to it. Our programs refuse a database whose checksums differ from their own. So
 * a migration never changes once it is committed: each change of the schema is a new file. This tool refuses to change or remove a line that the last
 * commit has. `--baseline` writes the file anyway, and from then on every existing database is refused. `--check` writes nothing and fails if the
 * file doesn't match the migrations.
 */
import { execFileSync } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ledgerFolder, readMigrations, tabStoreFolder } from '@tollkeeper/ledger/store/migrate'
import type { SqlFile } from '@tollkeeper/ledger/store/sqlFunctions'

const root = join(import.meta.dirname, '..')
export const checksumsPath = 'packages/ledger/migrations/checksums.sha256'

/** Returns the text of a checksum file for these migrations. */
export function renderChecksums(migrations: readonly Pick<SqlFile, 'name' | 'checksum'>[]): string {
  return migrations.map(({ name, checksum }) => `${checksum}  ${name}\n`).join('')
}

/**
 * Describes which migrations differ from their recorded checksums, and what to do. Returns null if none differs. A migration without
 * a recorded checksum is new and doesn't count.
 */
export function describeChanged(recorded: string, migrations: readonly SqlFile[]): string | null {
  const checksums = new Map(migrations.map(({ name, checksum }) => [name, checksum]))
  const changed = recorded
    .split('\n')
    .filter((line) => line !== '')
    .flatMap((line) => {
      const [checksum = '', name = ''] = line.split('  ')
      const now = checksums.get(name)
      return now === checksum
        ? []
        : `${name}: expected the text of checksum ${checksum}, got ${now ?? 'no file'}`
    })
  if (changed.length === 0) return null
  return [
    'Migrations were changed that databases may already have applied. Our programs would refuse such a database.',
    ...changed,
    'Revert these changes and write them as a new file with the next number. To start over with a new baseline instead, run: ' +
      'node tools/checksumMigrations.ts --baseline',
  ].join('\n')
}

/** Returns a checksum file's text in the last commit, or an empty string if the commit doesn't have the file. */
function readCommitted(path: string): string {
  const git = (...args: string[]) => execFileSync('git', args, { cwd: root, encoding: 'utf8' })
  return git('ls-tree', 'HEAD', path) === '' ? '' : git('show', `HEAD:${path}`)
}

async function checksum(path: string, folder: URL, flags: readonly string[]): Promise<void> {
  const migrations = await readMigrations(folder)
  const written = await readFile(join(root, path), 'utf8').catch(() => '')
  const isCheck = flags.includes('--check')
  const changed = describeChanged(isCheck ? written : readCommitted(path), migrations)
  if (changed !== null && !flags.includes('--baseline')) throw new Error(changed)
  const text = renderChecksums(migrations)
  if (written === text) return
  if (isCheck) throw new Error(`${path} lacks a migration: run npm run generate`)
  await writeFile(join(root, path), text)
  console.log(`wrote: ${path}`)
}

async function main(flags: readonly string[]): Promise<void> {
  await checksum(checksumsPath, ledgerFolder, flags)
  await checksum('packages/ledger/tabs/migrations/checksums.sha256', tabStoreFolder, flags)
}

if (import.meta.main) {
  await main(process.argv.slice(2)).catch((error: Error) => {
    console.error(error.message)
    process.exitCode = 1
  })
}
