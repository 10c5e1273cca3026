import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { setTimeout as wait } from 'node:timers/promises'
import { isPortFree } from '@tollkeeper/runtime/port'
import postgres from 'postgres'
import { expect, test } from 'vitest'
import { createTestDatabase } from '../../../test/support/database.ts'
import { startPostgres } from './postgres.ts'

test('default: starts a server of version 18 with durable settings, in UTF-8', async () => {
  const server = await startPostgres()
  const sql = postgres(await server.createDatabase('some-name'), { max: 1 })
  const [row] = await sql`
    select current_database() as name, current_setting('fsync') as fsync,
      current_setting('synchronous_commit') as commit, current_setting('server_version_num')::int as version,
      current_setting('server_encoding') as encoding`
  expect(row).toMatchObject({ name: 'some-name', fsync: 'on', commit: 'on', encoding: 'UTF8' })
  expect(row?.version).toBeGreaterThanOrEqual(180_000)
  await sql.end()
  await server.close()
  expect(await isPortFree(server.port)).toBe(true)
})

test('behavior: creates an empty, separate database for each test', async () => {
  const [one, two] = [await createTestDatabase(), await createTestDatabase()]
  expect(one).not.toBe(two)
  const sql = postgres(one, { max: 1 })
  expect(await sql`select 1 as n from pg_tables where schemaname = 'public'`).toHaveLength(0)
  await sql.end()
})

test('behavior: the server ends and its files are removed when the process that started the server is killed', async () => {
  const program = `
    import { startPostgres } from ${JSON.stringify(new URL('./postgres.ts', import.meta.url).href)}
    import postgres from ${JSON.stringify(import.meta.resolve('postgres'))}
    const server = await startPostgres()
    const sql = postgres(server.url)
    const [row] = await sql\`show data_directory\`
    console.log(JSON.stringify({ port: server.port, folder: row.data_directory }))`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [line] = await once(child.stdout, 'data')
  const { port, folder } = JSON.parse(String(line))
  expect(existsSync(folder)).toBe(true)
  child.kill('SIGKILL')
  // A process that outlives its parent can't announce its end, so the test polls until it has ended.
  while (existsSync(folder) || !(await isPortFree(port))) await wait(50)
})

test('error: names the port if the port is taken', async () => {
  const first = await startPostgres()
  await expect(startPostgres({ port: first.port })).rejects.toThrow(`port ${first.port}`)
  await first.close()
})
