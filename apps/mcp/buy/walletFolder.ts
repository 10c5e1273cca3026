import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { canonicalUrl } from '@tollkeeper/sdk/client/checkChallenge'
import type { PassStore, SavedPass } from '@tollkeeper/sdk/client/passStore'
import type { ClientStores } from '@tollkeeper/sdk/client/paymentFlow'
import type { PaymentStore, SavedPayment } from '@tollkeeper/sdk/client/paymentStore'
import { createDailySums, dayMs, type SpendingStore } from '@tollkeeper/sdk/client/spending'
import type { SavedTab, TabStore } from '@tollkeeper/sdk/client/tabStore'
import { openReceiptFile, type ReceiptFile } from '@tollkeeper/sdk/files/receiptFile'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'

/** The amount that a wallet spent at a host, in USDC base units. */
export type SpentAtHost = { host: string; amount: bigint; payments: bigint }

/**
 * State on disk, because agents' hosts may start and kill their servers at any time: the amounts spent in the last 24 hours,
 * receipts, open tabs, passes, and payments whose response was lost.
 */
export type WalletFolder = {
  /** Returns the amounts spent in the last 24 hours. @param now Unix milliseconds. */
  spent: (now: number) => SpentAtHost[]
  /** Returns the stores of one client of this process: each client has separate tabs, passes and payments, and all share one budget. */
  stores: (client: string) => Required<ClientStores>
  keepReceipt: ReceiptFile['keep']
  receiptFile: string
  close: () => Promise<void>
}

/** Maximum number of processes that can open one wallet's folder. */
const mostSeats = 64

/** Timeout in ms for another process's transaction, which takes milliseconds. */
const busyMs = 5_000

/**
 * Opens the folder of one wallet on one network. Several processes can open it at a time and share one budget. Each process has
 * separate tabs and receipts: it takes the first free seat. A seat is a file with a system lock, which ends with the process in
 * any case. The next process that takes the seat continues with the tabs in it.
 *
 * @throws Error if the folder can't be written, or contains something else.
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
  const budget = createSpendingStore(spending, spent)

  return {
    spent,
    stores: (client) => ({
      spending: budget,
      tabs: createTabStore(database, client, { gatewayUrl, network }),
      payments: createPaymentStore(database, client),
      passes: createPassStore(database, client),
    }),
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
      // Keep the lock until the file is closed, not only until the transaction ends.
      database.exec(
        'pragma locking_mode = exclusive; begin exclusive;' +
          'create table if not exists tab (id text primary key, client text not null, state text not null) strict;' +
          'create table if not exists payment (id text primary key, client text not null, state text not null) strict;' +
          'create table if not exists pass (id text not null, client text not null, state text not null, primary key (id, client)) strict; commit',
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

/**
 * Creates the store of spent amounts. It checks the limits and records a payment in one transaction, so that two processes can't
 * spend the same budget.
 */
function createSpendingStore(
  database: DatabaseSync,
  spent: (now: number) => readonly SpentAtHost[],
): SpendingStore {
  const insert = database.prepare('insert into spending (at, host, amount) values (?, ?, ?)')
  const remove = database.prepare('delete from spending where id = ?')
  /** Sums the payments of all clients. */
  function sumsAt(at: number) {
    const sums = createDailySums()
    for (const before of spent(at)) sums.claim(before.host, { ...before, at }, {})
    return sums
  }
  return {
    check: async (spending, limits) => sumsAt(spending.at).findOverrun(spending, limits),
    async reserve(spending, limits) {
      const { at, host, amount } = spending
      database.exec('begin immediate')
      try {
        const overrun = sumsAt(at).findOverrun(spending, limits)
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

/**
 * Creates the store of one client's payments whose response is incomplete. They are saved before they are sent, so they survive a
 * killed process.
 */
function createPaymentStore(database: DatabaseSync, client: string): PaymentStore {
  const all = database.prepare('select state from payment where client = ?')
  const save = database.prepare('insert or replace into payment (id, client, state) values (?, ?, ?)')
  const remove = database.prepare('delete from payment where id = ?')
  return {
    load: async () => all.all(client).map(({ state }) => JSON.parse(String(state)) as SavedPayment),
    save: async (payment) => {
      save.run(payment.id, client, JSON.stringify(payment))
    },
    remove: async (id) => {
      remove.run(id)
    },
  }
}

/** Creates the store of one client's passes. A row that isn't JSON is skipped. */
function createPassStore(database: DatabaseSync, client: string): PassStore {
  const all = database.prepare('select id, state from pass where client = ?')
  const save = database.prepare('insert or replace into pass (id, client, state) values (?, ?, ?)')
  const remove = database.prepare('delete from pass where id = ? and client = ?')
  return {
    load: async () =>
      all.all(client).flatMap(({ id, state }) => {
        try {
          return [JSON.parse(String(state)) as SavedPass]
        } catch {
          console.warn(`tollkeeper mcp: the stored pass ${id} is not JSON and is skipped`)
          return []
        }
      }),
    save: async (pass) => {
      save.run(pass.id, client, JSON.stringify(pass))
    },
    remove: async (id) => {
      remove.run(id, client)
    },
  }
}

/** Creates the store of one client's tabs at one gateway. */
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
