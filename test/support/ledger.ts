import { halves } from '@tollkeeper/ledger/facts/halves'
import type { Database } from '@tollkeeper/ledger/store/database'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { type Address, type Hash, type Hex, keccak256, type PublicClient, parseAbiItem } from 'viem'
import { type AnyPayment, authorizationsOf, type KeeperStack } from './keeperStack.ts'

// Invariants that must hold despite all faults, read from the database and from the chain's own logs.

/** Checks for each raw transaction that arrives at an RPC whether its bytes had been committed before. */
export function watchBroadcasts(database: Database) {
  const unstored: Hash[] = []
  return {
    /** Hashes of transactions that were sent before they were stored. */
    unstored,
    onRawTransaction: async (raw: Hex) => {
      const hash = keccak256(raw)
      const rows = await database`
        select 1 from transaction where hash = ${hash} and raw = ${Buffer.from(raw.slice(2), 'hex')}`
      if (rows.length === 0) unstored.push(hash)
    },
  }
}

/** Returns a line for each state that must never occur in a keeper's database; empty if there is none. */
export async function findBreaches(database: Database): Promise<string[]> {
  const twice = await database<{ id: string }[]>`
    select payment_id as id from queue join payment_result using (payment_id)`
  const unsigned = await database<{ wallet: string }[]>`
    select wallet from batch where state = 'claimed' group by chain_id, wallet having count(*) > 1`
  const shared = await database<{ wallet: string; nonce: bigint }[]>`
    select t.wallet, t.nonce from transaction t join batch b on b.id = t.batch_id
    where b.state in ('broadcast', 'reorged')
    group by t.chain_id, t.wallet, t.nonce having count(distinct b.id) > 1`
  const falling = await database<{ hash: string }[]>`
    select hash from (
      select hash, max_fee_per_gas as fee, max_priority_fee_per_gas as tip,
        lag(max_fee_per_gas) over rivals as fee_before, lag(max_priority_fee_per_gas) over rivals as tip_before
      from transaction
      window rivals as (partition by chain_id, wallet, nonce order by created_at)
    ) offers
    where fee * 100 < fee_before * 110 or tip * 100 < tip_before * 110 or tip <= tip_before`
  // Transactions with `resolved_at` don't count: after a reorg deeper than finality, the nonce of a closed batch is free
  // again, so another transaction may use it.
  const rivals = await database<{ wallet: string; nonce: bigint }[]>`
    select wallet, nonce from transaction where mined_block is not null and resolved_at is null
    group by chain_id, wallet, nonce having count(*) > 1`
  return [
    ...rivals.map(({ wallet, nonce }) => `${wallet} has two mined transactions of nonce ${nonce}`),
    ...twice.map(({ id }) => `${id} is both in the queue and finalized`),
    ...unsigned.map(({ wallet }) => `${wallet} has two unsigned batches`),
    ...shared.map(({ wallet, nonce }) => `${wallet} has two open batches of nonce ${nonce}`),
    ...falling.map(({ hash }) => `${hash} offers less than 10% more than the previous one`),
  ]
}

/** Returns payments with a failed attempt, and failed payments. */
export async function findBlamed(
  database: Database,
): Promise<{ id: string; payer: Address; attempts: number }[]> {
  return database<{ id: string; payer: Address; attempts: number }[]>`
    select payment_id as id, payer, attempts from queue where attempts > 0
    union all
    select payment_id, payer, attempts from payment_result where attempts > 0 or kind = 'failed'`
}

const usedEvent = parseAbiItem('event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)')
const transferEvent = parseAbiItem('event Transfer(address indexed from, address indexed to, uint256 value)')

/**
 * Compares the token's own logs since a block with the signed authorizations, to the base unit.
 *
 * @returns the deviations. Empty if each authorization of each payment moved its money once, and the buyers spent no other money.
 */
export async function findMisplaced(
  { served }: Pick<KeeperStack, 'served'>,
  payments: readonly AnyPayment[],
  fromBlock: bigint,
): Promise<string[]> {
  const { client, token: address } = served
  const [used, moved] = await Promise.all([
    client.getLogs({ address, event: usedEvent, fromBlock }),
    client.getLogs({ address, event: transferEvent, fromBlock }),
  ])
  const signed = payments.flatMap(authorizationsOf)
  const payers = new Set(signed.map(({ from }) => from))
  const uses = new Map<string, number>()
  for (const { args } of used) {
    const name = `${args.authorizer?.toLowerCase()}:${args.nonce}`
    uses.set(name, (uses.get(name) ?? 0) + 1)
  }
  const wrong: string[] = []
  const owed = new Map<string, bigint>()
  for (const { from, to, nonce, value } of signed) {
    const count = uses.get(`${from}:${nonce}`) ?? 0
    if (count !== 1) wrong.push(`the authorization ${from}:${nonce} was used ${count} times`)
    owed.set(`${from} to ${to}`, (owed.get(`${from} to ${to}`) ?? 0n) + value)
  }
  for (const { args } of moved) {
    const [from, to] = [args.from?.toLowerCase() as Address, args.to?.toLowerCase() as Address]
    if (!payers.has(from)) continue
    owed.set(`${from} to ${to}`, (owed.get(`${from} to ${to}`) ?? 0n) - (args.value ?? 0n))
  }
  for (const [way, missing] of owed) {
    if (missing !== 0n)
      wrong.push(`${way}: ${missing > 0n ? `${missing} too little` : `${-missing} too much`}`)
  }
  return wrong
}

/**
 * Returns the hashes of transactions that these wallets sent since a block, and that the keeper's database doesn't contain.
 */
export async function findUnknownTransactions(
  { database, client }: { database: Database; client: PublicClient },
  wallets: readonly Address[],
  fromBlock: bigint,
): Promise<Hash[]> {
  const ours = new Set(wallets.map((wallet) => wallet.toLowerCase()))
  const sent: Hash[] = []
  const head = await client.getBlockNumber({ cacheTime: 0 })
  for (let blockNumber = fromBlock; blockNumber <= head; blockNumber++) {
    const { transactions } = await client.getBlock({ blockNumber, includeTransactions: true })
    for (const { from, hash } of transactions) if (ours.has(from.toLowerCase())) sent.push(hash)
  }
  const known = await database<{ hash: Hash }[]>`select hash from transaction where hash = any(${sent})`
  const stored = new Set(known.map((row) => row.hash))
  return sent.filter((hash) => !stored.has(hash))
}

/** Describes the current state, for the message of a test that timed out. */
export async function describeState(
  { database, served }: Pick<KeeperStack, 'database' | 'served'>,
  wallets: readonly Address[],
): Promise<string> {
  const [batches, offers, leases, open, seen, heads] = await Promise.all([
    database`
      select id, wallet, state, result, (select count(*) from queue q where q.batch_id = b.id) as active
      from batch b order by id desc limit 10`,
    database`
      select batch_id, hash, nonce, kind, max_fee_per_gas as fee, broadcast_at is not null as out, mined_block, succeeded
      from transaction order by created_at desc limit 20`,
    database`select address, fence, expires_at > now() as held, paused_reason from wallet_lease`,
    database`
      select q.*, exists (select from lookup l where l.payment_id = q.payment_id) as looked_up from queue q
      where accepted_at < now() order by payment_id`,
    database<{ block: bigint | null; hash: string | null; authorizer: Address; nonce: Hex }[]>`
      select h.payment_id as payment, h.half, h.state, h.block_number as block, h.block_hash as hash,
        h.tx_hash as transaction, h.authorizer, h.nonce,
        o.kind as ended, o.final_at, o.code
      from (select * from payment order by accepted_at desc limit 12) p
      left join payment_result o on o.payment_id = p.id
      join lateral ${halves(database)} h on h.payment_id = p.id
      order by 1, 2`,
    database`select (select block_number from record_head limit 1) as recorded,
      (select substr(latest_checkpoint, 27, 16)::bigint from indexer._ponder_checkpoint limit 1) as indexed`,
  ])
  const nonces = await Promise.all(
    wallets.map(async (address) => [address, await served.client.getTransactionCount({ address })]),
  )
  const head = await served.client.getBlockNumber({ cacheTime: 0 })
  const stands = async (blockNumber: bigint, hash: string | null) =>
    served.client.getBlock({ blockNumber }).then(
      (block) => block.hash === hash,
      () => false,
    )
  const usesOf = async ({ authorizer, nonce }: { authorizer: Address; nonce: Hex }) => {
    const logs = await served.client.getContractEvents({
      address: served.token,
      abi: usdcAbi,
      fromBlock: 0n,
      args: { authorizer, nonce },
      eventName: 'AuthorizationUsed',
    })
    return logs.map(({ blockNumber, transactionHash }) => [blockNumber, transactionHash])
  }
  const parts = {
    head,
    halves: await Promise.all(
      seen.map(async (half) => ({
        ...half,
        stands: half.block === null ? null : await stands(half.block, half.hash),
        uses: await usesOf(half),
      })),
    ),
    heads: [...heads],
    nonces,
    leases: [...leases],
    batches: [...batches],
    offers: [...offers],
  }
  return JSON.stringify(
    { ...parts, open: [...open] },
    (_key, value: unknown) => (typeof value === 'bigint' ? `${value}` : value),
    1,
  )
}
