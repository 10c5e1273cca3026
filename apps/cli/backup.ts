import type { Backup, BackupKind } from '@tollkeeper/ledger/store/backups'
import type { Database } from '@tollkeeper/ledger/store/database'
import { time } from '@tollkeeper/runtime/parsers'
import { isoSeconds } from '@tollkeeper/sdk/protocol/time'
import { type Command, Option } from 'commander'
import { CliError } from './terminal/cliError.ts'
import { parsedOption } from './terminal/options.ts'
import { formatTable } from './terminal/output.ts'

/** Maximum number of backups that `backup list` shows. */
const mostShown = 50

/**
 * Same values as the ledger's `backupKinds`. They aren't imported because that would load the database's code. A test compares
 * the two.
 */
const kinds: readonly BackupKind[] = ['dump', 'base', 'snapshot']

/** Adds `backup record | list`, which records backups for the alert `BackupOld`. */
export function addBackupCommand(program: Command): void {
  const backup = program
    .command('backup')
    .summary('record finished backups for the alert BackupOld')
    .description(
      `Records when backups finished, so that the alert BackupOld fires if they stop. It makes no backup: your own job or your database's
host does. Run \`tollkeeper backup record\` after each backup.`,
    )
    .addHelpText('after', '\nExample:\n  $ tollkeeper --env .env backup list')

  backup
    .command('record')
    .summary('record a finished backup')
    .description(
      'Records that a backup has finished. Run it as the last step of the backup job, only if the job succeeded.',
    )
    .addOption(
      new Option(
        '--kind <kind>',
        'dump (pg_dump), base (pg_basebackup with its WAL archive) or snapshot (of the disk, or by the managed server)',
      )
        .choices(kinds)
        .makeOptionMandatory(),
    )
    .addOption(
      parsedOption(
        '--taken-at <time>',
        'time up to which the backup has all data, such as 2026-11-21T03:00:00Z (default: now)',
        time,
      ),
    )
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      '\nExample:\n  $ DATABASE_URL=postgres://… tollkeeper backup record --kind dump --taken-at 2026-11-21T03:00:00Z',
    )
    .action(({ kind, takenAt, json }: { kind: BackupKind; takenAt?: number; json?: boolean }) =>
      withBackups(async (sql, { recordBackup }) => {
        const at = takenAt === undefined ? null : new Date(takenAt * 1000)
        const recorded = await recordBackup(sql, { kind, takenAt: at })
        if (recorded === undefined)
          throw new CliError(
            'invalid_flags',
            '--taken-at: expected a time that is not in the future by the clock of the database',
          )
        const taken = toRow(recorded).takenAt
        process.stdout.write(
          json ? `${JSON.stringify(toRow(recorded))}\n` : `Recorded a ${kind} that was taken at ${taken}.\n`,
        )
      }),
    )

  backup
    .command('list')
    .summary('list recorded backups')
    .description(`Lists the latest ${mostShown} recorded backups, newest first.`)
    .option('--json', 'print JSON')
    .addHelpText('after', '\nExample:\n  $ DATABASE_URL=postgres://… tollkeeper backup list')
    .action(({ json }: { json?: boolean }) =>
      withBackups(async (sql, { findBackups }) => {
        const rows = (await findBackups(sql, mostShown)).map(toRow)
        const table = () =>
          rows.length === 0
            ? 'No backup is recorded. Run `tollkeeper backup record` at the end of your backup job.'
            : formatTable(['taken', 'kind', 'recorded'], rows.map(Object.values))
        process.stdout.write(`${json ? JSON.stringify(rows) : table()}\n`)
      }),
    )
}

function toRow({ takenAt, kind, recordedAt }: Backup) {
  return { takenAt: toSeconds(takenAt), kind, recordedAt: toSeconds(recordedAt) }
}

const toSeconds = (at: Date) => isoSeconds(Math.floor(at.getTime() / 1000))

/** Loads the database's code only when it is needed. */
async function withBackups(
  act: (sql: Database, backups: typeof import('@tollkeeper/ledger/store/backups')) => Promise<void>,
): Promise<void> {
  const { withDatabase } = await import('./database/withDatabase.ts')
  const backups = await import('@tollkeeper/ledger/store/backups')
  await withDatabase('backup', (sql) => act(sql, backups))
}
