import type { Queryable } from './database.ts'

/** `dump`: made by pg_dump. `base`: made by pg_basebackup, with the WAL that follows it. `snapshot`: taken of a disk, or by a managed server. */
export const backupKinds = ['dump', 'base', 'snapshot'] as const
export type BackupKind = (typeof backupKinds)[number]

export type Backup = { takenAt: Date; kind: BackupKind; recordedAt: Date }

/**
 * Records a finished backup.
 *
 * @param takenAt the time up to which a restore has everything; null for now.
 * @returns undefined, without recording anything, if `takenAt` is in the future by the database's clock.
 */
export async function recordBackup(
  sql: Queryable,
  { kind, takenAt }: { kind: BackupKind; takenAt: Date | null },
): Promise<Backup | undefined> {
  const [backup] = await sql<Backup[]>`
    insert into backup (taken_at, kind)
    select at, ${kind} from (select coalesce(${takenAt}::timestamptz, now()) as at) given where at <= now()
    returning taken_at as "takenAt", kind, recorded_at as "recordedAt"`
  return backup
}

/** Returns the newest recorded backups, the newest first. */
export function findBackups(sql: Queryable, limit: number): Promise<Backup[]> {
  return sql<Backup[]>`
    select taken_at as "takenAt", kind, recorded_at as "recordedAt" from backup order by taken_at desc limit ${limit}`
}

/** Returns when the database was created. Until a backup is recorded, everything since then could be lost. */
export async function readCreation(sql: Queryable): Promise<Date> {
  const [row] = await sql<[{ at: Date }]>`select min(applied_at) as at from migration`
  return row.at
}

/** Returns the time up to which a restore has everything: the newest backup's time, or the database's creation if there is no backup. */
export async function readBackupTime(sql: Queryable): Promise<Date> {
  const [newest] = await findBackups(sql, 1)
  return newest?.takenAt ?? readCreation(sql)
}
