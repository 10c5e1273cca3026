import type { Address, Hex } from 'viem'
import { type Database, openDatabase } from '../store/database.ts'
import { migrate, tabMigrationsFolder, tabSchema } from '../store/migrate.ts'

/** Where the tab store lies. */
export type TabDatabase = {
  /** The server that answers for all payers. */
  all: Database
  /** The one that holds what is of a payer: the same, but for a cluster's. */
  of(payer: Address): Database | Promise<Database>
}

/** The tab store on one Postgres. */
export function onOnePostgres(sql: Database): TabDatabase {
  return { all: sql, of: () => sql }
}

/** Brings the tab store up to date; processes that start together wait for each other. */
export async function migrateTabs(url: string): Promise<void> {
  const sql = openDatabase({ url, max: 1, applicationName: 'tollkeeper-migrate', limited: false })
  try {
    await migrate(sql, tabMigrationsFolder, tabSchema)
  } finally {
    await sql.end({ timeout: 1 })
  }
}

export function toBytes(hex: Hex): Buffer {
  return Buffer.from(hex.slice(2), 'hex')
}

export function toHex(bytes: Uint8Array): Hex {
  return `0x${Buffer.from(bytes).toString('hex')}`
}
