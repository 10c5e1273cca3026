import type { Address, Hex } from 'viem'
import type { Evidence } from '#chain/evidence'
import { type BatchRow, closeBatch, lockBatch, setBatchState } from '#ledger/batches/batches'
import { claimPayments } from '#ledger/batches/claims'
import { readBatchItems, readUnsettledItems } from '#ledger/batches/items'
import { acquireLease, type Lease } from '#ledger/batches/leases'
import { insertTransaction, markMined, markTried } from '#ledger/batches/transactions'
import { recordEvents, setConfirmed, setFinal } from '#ledger/facts/record'
import { endSettled } from '#ledger/outcomes/conclusions'
import { notifySettled } from '#ledger/outcomes/notifications'
import type { Database } from '#ledger/store/database'
import { feeRecipient, randomHex } from '../data/makeCandidate.ts'

/** What is left of a payment's 419 bytes of calldata when Postgres has compressed them. */
const transactionBytesPerPayment = 264

type Scope = { chainId: number; token: Address }
export type Sent = { lease: Lease; batch: BatchRow; hash: Hex }
export type Mined = Sent & { block: { blockNumber: bigint; blockHash: Hex; blockTime: bigint } }

/** The stages of a batch's life, by the functions with which the keeper writes them. Only the chain is missing. */
export function createLives(sql: Database, { chainId, token }: Scope) {
  return {
    async lease(address: Address): Promise<Lease> {
      const lease = await acquireLease(sql, { chainId, address, holder: 'bench', ttlMs: 3_600_000 })
      if (!lease) throw new Error('no lease')
      return lease
    },

    async claim(lease: Lease, paymentIds: readonly string[], now: Date): Promise<BatchRow> {
      const claim = { batchId: randomHex(32), token, feeRecipient, trigger: 'count', lane: 'shared' } as const
      const { batch } = await claimPayments(sql, lease, { ...claim, paymentIds }, now)
      if (!batch) throw new Error('nothing was claimed')
      return batch
    },

    async send(lease: Lease, batch: BatchRow): Promise<Sent> {
      const items = await readBatchItems(sql, batch.id)
      const [hash, raw] = [randomHex(32), randomHex(transactionBytesPerPayment * items.length)]
      await sql.begin(async (tx) => {
        await insertTransaction(tx, {
          ...{
            hash,
            batchId: batch.id,
            chainId,
            wallet: lease.address,
            nonce: Number(batch.id),
            kind: 'settle',
            raw,
          },
          ...{ gas: 9_000_000n, maxFeePerGas: 1_000_000n, maxPriorityFeePerGas: 0n },
        })
        await setBatchState(tx, batch.id, 'broadcast')
      })
      await markTried(sql, lease, hash, true)
      return { lease, batch, hash }
    },

    /** What the receipt of a batch would show that settled all of it. */
    async readEvents({ batch, hash, block }: Mined): Promise<Evidence[]> {
      const rows = await sql<Pick<Evidence, 'authorizer' | 'nonce' | 'recipient' | 'value' | 'logIndex'>[]>`
        select a.authorizer, a.nonce, a.recipient, a.value, (2 * row_number() over (order by position, half))::int as "logIndex"
        from batch_item i join signed_authorization a using (payment_id) where i.batch_id = ${batch.id}`
      return rows.map((row) => ({ ...row, ...block, state: 'used', txHash: hash }))
    },

    async record({ batch, hash, block }: Mined, events: readonly Evidence[]): Promise<void> {
      await sql.begin(async (tx) => {
        await lockBatch(tx, batch.id, 'broadcast')
        await markMined(tx, hash, { ...block, succeeded: true, cost: 0n, now: new Date(), refused: [] })
        await setBatchState(tx, batch.id, 'mined')
      })
      await sql.begin(async (tx) => {
        await lockBatch(tx, batch.id, 'mined')
        await recordEvents(tx, { chainId, token }, events, 'receipt')
        const { unsettled } = await readUnsettledItems(tx, batch.id)
        if (unsettled.length > 0) throw new Error(`${unsettled.length} payments are not settled`)
      })
    },

    /** Its block has its depth: providers are told. */
    async confirm({ block }: Mined, now: Date): Promise<void> {
      await sql.begin(async (tx) => {
        await setConfirmed(tx, chainId, block, now)
        await notifySettled(tx, { chainId, network: 'localhost', block })
      })
    },

    async end({ batch, block }: Mined, now: Date): Promise<void> {
      await setFinal(sql, chainId, block)
      await sql.begin(async (tx) => {
        await lockBatch(tx, batch.id, 'mined')
        await endSettled(tx, batch.id, now)
        await closeBatch(tx, batch.id, 'settled', now)
      })
    },
  }
}
