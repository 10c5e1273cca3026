/**
 * Writes checksums.sha256 next to the migrations of ledger and tab store, in the format of `sha256sum`: a line for each migration, and
 * for each function in `functions/stored/`.
 *
 * Databases keep the checksums of what was applied to them, and a version refuses a database whose checksums differ from its
 * own. So a migration never changes once it is committed: each change of the schema is a new file. This refuses to write where a
 * line of the last commit would change or go. `--baseline` writes all the same: every database made so far is refused from then
 * on. `--check` writes nothing and fails where the file isn't that of the migrations.
 */
import { execFileSync } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ledgerFolder, readMigrations, tabStoreFolder } from '@tollkeeper/ledger/store/migrate'
import type { SqlFile } from '@tollkeeper/ledger/store/sqlFunctions'

const root = join(import.meta.dirname, '..')
export const checksumsPath = 'packages/ledger/migrations/checksums.sha256'

/** The file's text for these migrations. */
export function renderChecksums(migrations: readonly Pick<SqlFile, 'name' | 'checksum'>[]): string {
  return migrations.map(({ name, checksum }) => `${checksum}  ${name}\n`).join('')
}

/**
 * Says which migrations differ from what a checksum file has of them, and what to do; null where none does. Migrations that it
 * doesn't have are no difference.
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
    'Migrations were changed that databases may already have. Such a database would be refused.',
    ...changed,
    'Take these changes back and write them as a new file, whose number is the next one. To begin anew with another baseline: ' +
      'node tools/checksumMigrations.ts --baseline',
  ].join('\n')
}

/** A checksum file as of the last commit; empty where it isn't in it. */
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
