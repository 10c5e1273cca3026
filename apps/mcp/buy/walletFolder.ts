import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { canonicalUrl } from '@tollkeeper/sdk/client/checkChallenge'
import { createDailySums, dayMs, type SpendingStore } from '@tollkeeper/sdk/client/spending'
import type { SavedTab, TabStore } from '@tollkeeper/sdk/client/tabStore'
import { openReceiptFile, type ReceiptFile } from '@tollkeeper/sdk/files/receiptFile'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'

/** What a wallet spent at a host, in USDC base units. */
export type SpentAtHost = { host: string; amount: bigint; payments: bigint }

/** What must outlive a host of agents, which starts and kills its servers as it likes: the day's sum, receipts, open tabs. */
export type WalletFolder = {
  spending: SpendingStore
  /** Sums within the last 24 hours. @param now Unix milliseconds. */
  spent: (now: number) => SpentAtHost[]
  /** The tabs of one client of this process: each client has its own. */
  tabs: (client: string) => TabStore
  keepReceipt: ReceiptFile['keep']
  receiptFile: string
  close: () => Promise<void>
}

/** How many processes may have one wallet's folder open. */
const mostSeats = 64

/** How long a process waits for another one's transaction, which takes milliseconds. */
const busyMs = 5_000

/**
 * Opens the folder of one wallet on one network. Several processes may: one budget holds for all of them. Each has its own tabs and
 * receipts, in the first free seat. A seat's file has a system lock that ends with the process, however it ends; the next process there
 * goes on with the tabs that it finds.
 *
 * @throws Error if the folder can't be written, or holds something else.
 */
export async function openWalletFolder(
  folder: string,
  { gatewayUrl, network }: { gatewayUrl: string; network: NetworkName },
): Promise<WalletFolder> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const spending = new DatabaseSync(join(folder, 'spending.db'), { timeout: busyMs })
  spending.exec(
    'create table if not exists spending (id integer primary key, at integer not null, host text not null, amount integer not null) strict;' +
      'create index if not exists spending_at on spending (at)',
  )
  const { seat, database } = takeSeat(folder)
  const receiptFile = join(folder, `receipts-${seat}.jsonl`)
  const receipts = await openReceiptFile(receiptFile)
  const sums = spending.prepare(
    'select host, sum(amount) as amount, count(*) as payments from spending where at > ? group by host order by host',
  )
  sums.setReadBigInts(true)
  const spent = (now: number) => sums.all(now - dayMs) as SpentAtHost[]

  return {
    spending: createSpendingStore(spending, spent),
    spent,
    tabs: (client) => createTabStore(database, client, { gatewayUrl, network }),
    keepReceipt: receipts.keep,
    receiptFile,
    async close() {
      await receipts.close()
      database.close()
      spending.close()
    },
  }
}

function takeSeat(folder: string): { seat: number; database: DatabaseSync } {
  for (let seat = 1; seat <= mostSeats; seat++) {
    const database = new DatabaseSync(join(folder, `tabs-${seat}.db`))
    try {
      // Locked until it is closed, not until the transaction ends.
      database.exec(
        'pragma locking_mode = exclusive; begin exclusive;' +
          'create table if not exists tab (id text primary key, client text not null, state text not null) strict; commit',
      )
      return { seat, database }
    } catch (error) {
      database.close()
      if ((error as { errcode?: number }).errcode !== sqliteBusy) throw error
    }
  }
  throw new Error(`${folder} is open in ${mostSeats} processes already`)
}

const sqliteBusy = 5

/** Decides in a transaction that all processes see as one step, by the sums that all clients use. */
function createSpendingStore(
  database: DatabaseSync,
  spent: (now: number) => readonly SpentAtHost[],
): SpendingStore {
  const insert = database.prepare('insert into spending (at, host, amount) values (?, ?, ?)')
  const remove = database.prepare('delete from spending where id = ?')
  return {
    async reserve(spending, limits) {
      const { at, host, amount } = spending
      database.exec('begin immediate')
      try {
        const sums = createDailySums()
        for (const before of spent(at)) sums.claim(before.host, { ...before, at }, {})
        const overrun = sums.claim('', spending, limits)
        if (overrun) {
          database.exec('rollback')
          return { isReserved: false, ...overrun }
        }
        const { lastInsertRowid } = insert.run(at, host, amount)
        database.exec('commit')
        return {
          isReserved: true,
          release: async () => {
            remove.run(lastInsertRowid)
          },
        }
      } catch (error) {
        if (database.isTransaction) database.exec('rollback')
        throw error
      }
    },
  }
}

/** The tabs of one client at one gateway. */
function createTabStore(
  database: DatabaseSync,
  client: string,
  { gatewayUrl, network }: { gatewayUrl: string; network: NetworkName },
): TabStore {
  const isOurs = (tab: SavedTab) =>
    tab.network === network && canonicalUrl(tab.issuer) === canonicalUrl(gatewayUrl)
  const all = database.prepare('select state from tab where client = ?')
  const save = database.prepare('insert or replace into tab (id, client, state) values (?, ?, ?)')
  const remove = database.prepare('delete from tab where id = ?')
  return {
    load: async () =>
      all
        .all(client)
        .map(({ state }) => JSON.parse(String(state)) as SavedTab)
        .filter(isOurs),
    save: async (tab) => {
      save.run(tab.id, client, JSON.stringify(tab))
    },
    remove: async (id) => {
      remove.run(id)
    },
  }
}
