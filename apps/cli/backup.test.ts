import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { backupKinds, readBackupTime, readCreation } from '@tollkeeper/ledger/store/backups'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { afterAll, describe, expect, test } from 'vitest'
import { runCliHere } from '../../test/support/cli.ts'
import { createMigratedDatabase } from '../../test/support/database.ts'

const url = await createMigratedDatabase()
const sql = openDatabase({ url, max: 1, applicationName: 'test' })
const folder = mkdtempSync(join(tmpdir(), 'tollkeeper-backup-'))
afterAll(async () => {
  await sql.end()
  rmSync(folder, { recursive: true })
})

const run = (...args: string[]) =>
  runCliHere(['backup', ...args], { cwd: folder, env: { DATABASE_URL: url } })
const list = async () => JSON.parse((await run('list', '--json')).stdout) as { takenAt: string }[]

describe('tollkeeper backup', () => {
  test('default: reports that no backup is recorded, and counts the age of the backup from the creation of the database', async () => {
    expect((await run('list')).stdout).toMatch(/^No backup is recorded\. Run `tollkeeper backup record`/)
    expect(await readBackupTime(sql)).toEqual(await readCreation(sql))
  })

  test('args: records a backup of each kind, and lists the newest backup first even if an older one is recorded later', async () => {
    const times = ['2026-11-21T03:00:00Z', '2026-11-20T03:00:00Z', '2026-11-22T03:00:00Z']
    for (const [index, kind] of backupKinds.entries()) {
      const { status, stdout } = await run('record', '--kind', kind, '--taken-at', times[index] ?? '')
      expect([status, stdout]).toEqual([0, `Recorded a ${kind} that was taken at ${times[index]}.\n`])
    }
    expect((await list()).map(({ takenAt }) => takenAt)).toEqual([times[2], times[0], times[1]])
    expect(await readBackupTime(sql)).toEqual(new Date(times[2] ?? ''))
    expect((await run('list')).stdout).toMatch(/^taken +kind +recorded\n2026-11-22T03:00:00Z +snapshot /)
  })

  test('default: records the current time if no time is given', async () => {
    const { status, stdout } = await run('record', '--kind', 'dump', '--json')
    expect(status).toBe(0)
    const { takenAt } = JSON.parse(stdout)
    expect(Math.abs(Date.now() - Date.parse(takenAt))).toBeLessThan(60_000)
    expect((await list())[0]?.takenAt).toBe(takenAt)
  })

  test('error: rejects a time in the future, an unknown kind and an invalid time', async () => {
    const before = await list()
    for (const [args, message] of [
      [
        ['--kind', 'dump', '--taken-at', '2999-01-01T00:00:00Z'],
        /--taken-at: .*not in the future .*\(invalid_flags\)/,
      ],
      [['--kind', 'copy'], /--kind: expected one of dump, base, snapshot, got "copy"/],
      [['--kind', 'dump', '--taken-at', 'yesterday'], /--taken-at: expected an ISO 8601 time/],
      [[], /--kind/],
    ] as const) {
      const { status, stderr } = await run('record', ...args)
      expect(status).toBe(2)
      expect(stderr).toMatch(message)
    }
    expect(await list()).toEqual(before)
  })
})
