/** Creates databases and folders of migrations for the tests of `migrate`. */
import { copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { ledgerFolder, migrate, readMigrations } from '@tollkeeper/ledger/store/migrate'
import { readSqlFunctions } from '@tollkeeper/ledger/store/sqlFunctions'
import { afterEach } from 'vitest'
import { createTestDatabase } from './database.ts'

export const baseline = '0001_schema.sql'
export const migrationsFolder = new URL('migrations/', ledgerFolder)
export const functionsFolder = new URL('functions/', ledgerFolder)
export const own = (await readMigrations()).map(({ name }) => name)
export const ownFunctions = (await readSqlFunctions(functionsFolder)).map(({ name }) => name)

/** After each test of the file, closes and removes what the returned functions opened and created. */
export function useMigrations() {
  const cleanups: (() => Promise<unknown>)[] = []
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0)) await cleanup()
  })

  function open(url: string): Database {
    const database = openDatabase({ url, applicationName: 'test' })
    cleanups.push(() => database.end())
    return database
  }

  return {
    openTestDatabase: async (): Promise<Database> => open(await createTestDatabase()),

    /** Opens a second pool of connections to a database. */
    async openTheSame(database: Database): Promise<Database> {
      const { host, port, pass, user } = database.options
      const [row] = await database<[{ name: string }]>`select current_database() as name`
      return open(`postgres://${user}:${pass}@${host[0]}:${port[0]}/${row.name}`)
    },

    /**
     * Creates a folder with some of our migrations and functions, given by their names, and with additional made-up migrations. `functions` replaces
     * functions; null removes a function.
     */
    async createFolder(
      names: readonly string[],
      madeUp: Record<string, string> = {},
      functions: Record<string, string | null> = {},
    ): Promise<URL> {
      const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-migrations-'))
      cleanups.push(() => rm(folder, { recursive: true }))
      await mkdir(join(folder, 'migrations'))
      await mkdir(join(folder, 'functions/stored'), { recursive: true })
      const stored = await readdir(new URL('stored/', functionsFolder))
      for (const name of names)
        await (stored.includes(name)
          ? copyFile(new URL(`stored/${name}`, functionsFolder), join(folder, 'functions/stored', name))
          : copyFile(new URL(name, migrationsFolder), join(folder, 'migrations', name)))
      for (const [name, text] of Object.entries(madeUp))
        await writeFile(join(folder, 'migrations', name), text)
      if (names.includes(baseline))
        for (const name of ownFunctions)
          await copyFile(new URL(name, functionsFolder), join(folder, 'functions', name))
      for (const [name, text] of Object.entries(functions)) {
        const path = join(folder, 'functions', name)
        await (text === null ? rm(path) : writeFile(path, text))
      }
      return pathToFileURL(`${folder}/`)
    },
  }
}

export async function refusalOf(database: Database): Promise<Error> {
  return migrate(database).then(
    () => new Error('migrate refused nothing'),
    (error: Error) => error,
  )
}
