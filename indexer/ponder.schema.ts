import { onchainTable, primaryKey, relations } from 'ponder'

// The chain's raw values: addresses, hashes and nonces lower-case, amounts in USDC base units, times in Unix seconds.
// Every table's key starts with the chain, so that one instance serves several. Further database indexes: views.ts.
// docs/indexer.md describes each table for its readers.

/** An EIP-3009 authorization that USDC's own logs prove to be used or cancelled. */
export const authorization = onchainTable(
  'authorization',
  (t) => ({
    chainId: t.integer().notNull(),
    token: t.hex().notNull(),
    authorizer: t.hex().notNull(),
    nonce: t.hex().notNull(),
    state: t.text({ enum: ['used', 'cancelled'] }).notNull(),
    recipient: t.hex(), // null when cancelled
    value: t.bigint(), // null when cancelled
    txHash: t.hex().notNull(),
    logIndex: t.integer().notNull(), // of AuthorizationUsed or AuthorizationCanceled
    blockNumber: t.bigint().notNull(),
    blockHash: t.hex().notNull(),
    blockTime: t.bigint().notNull(),
    // The state of a tab that moved, as its payer signed it: the platform (20 bytes), the reward in basis points (2), the sequence (5),
    // and of each line the split (32) and the amount (6). Null: it is no tab.
    tab: t.hex(),
    batchLogIndex: t.integer(), // of the BatchSettled that settled it; null: sent straight to USDC
  }),
  (table) => ({
    // The payer comes first, so that one payer's rows lie together and a page of payments reads few pages of the disk.
    pk: primaryKey({ columns: [table.authorizer, table.nonce, table.token, table.chainId] }),
  }),
)

/** A BatchSettled of the known token. */
export const batch = onchainTable(
  'batch',
  (t) => ({
    chainId: t.integer().notNull(),
    txHash: t.hex().notNull(),
    logIndex: t.integer().notNull(),
    sequence: t.integer().notNull(), // 1, 2, 3 … among the chain's BatchSettled of the known token
    batchId: t.hex().notNull(), // as its sender chose it, not unique
    keeper: t.hex().notNull(),
    token: t.hex().notNull(),
    trigger: t.integer().notNull(),
    authorizations: t.integer().notNull(), // counted in USDC's logs
    paymentCount: t.integer().notNull(), // payments with at least one half that this batch moved
    providerTotal: t.bigint().notNull(), // summed over USDC's logs; of tabs, as TabSettlement says
    feeTotal: t.bigint().notNull(),
    outcomes: t.hex().notNull(),
    blockNumber: t.bigint().notNull(),
    blockHash: t.hex().notNull(),
    blockTime: t.bigint().notNull(),
    gasUsed: t.bigint().notNull(), // of the whole transaction
    effectiveGasPrice: t.bigint().notNull(),
    l1Fee: t.bigint(), // OP stack only
  }),
  (table) => ({
    pk: primaryKey({ columns: [table.chainId, table.txHash, table.logIndex] }),
  }),
)

/** What one wallet received in one batch. */
export const batchRecipient = onchainTable(
  'batch_recipient',
  (t) => ({
    chainId: t.integer().notNull(),
    txHash: t.hex().notNull(),
    logIndex: t.integer().notNull(), // of BatchSettled
    recipient: t.hex().notNull(),
    sequence: t.integer().notNull(),
    paymentCount: t.integer().notNull(),
    total: t.bigint().notNull(),
    blockNumber: t.bigint().notNull(),
    blockTime: t.bigint().notNull(),
  }),
  (table) => ({
    pk: primaryKey({ columns: [table.chainId, table.txHash, table.logIndex, table.recipient] }),
  }),
)

/** A splitter's payout, whoever swept it. A look-alike comes from an address that is no splitter of ours. */
export const payout = onchainTable(
  'payout',
  (t) => ({
    chainId: t.integer().notNull(),
    token: t.hex().notNull(),
    splitter: t.hex().notNull(),
    platformRecipient: t.hex().notNull(), // the platform's wallet, or its own splitter while that can't be paid
    platformAmount: t.bigint().notNull(),
    provider: t.hex().notNull(),
    providerAmount: t.bigint().notNull(),
    txHash: t.hex().notNull(),
    logIndex: t.integer().notNull(), // of the platform's Transfer; the provider's follows it
    blockNumber: t.bigint().notNull(),
    blockHash: t.hex().notNull(),
    blockTime: t.bigint().notNull(),
  }),
  (table) => ({
    pk: primaryKey({ columns: [table.chainId, table.txHash, table.logIndex] }),
  }),
)

/**
 * What a keeper settled on one UTC day. The keeper is the sender of `settle`, which may be a contract in front. Sums
 * over time add these rows, so they cost no more when there are more batches.
 */
export const keeperDay = onchainTable(
  'keeper_day',
  (t) => ({
    chainId: t.integer().notNull(),
    day: t.bigint().notNull(), // its first second
    address: t.hex().notNull(),
    batchCount: t.integer().notNull(),
    paymentCount: t.integer().notNull(),
    total: t.bigint().notNull(), // all that moved, fees included
    gasUsed: t.bigint().notNull(),
    gasCost: t.bigint().notNull(), // wei, L1 fee included; a transaction of several batches counts once
    lastBlockTime: t.bigint().notNull(),
  }),
  (table) => ({ pk: primaryKey({ columns: [table.chainId, table.day, table.address] }) }),
)

/** A log that couldn't be read. Nothing here counts as paid; the keeper's evidence may. A missing receipt is fetched again. */
export const quarantine = onchainTable(
  'quarantine',
  (t) => ({
    chainId: t.integer().notNull(),
    txHash: t.hex().notNull(),
    logIndex: t.integer().notNull(),
    reason: t
      .text({ enum: ['receipt_unavailable', 'unpaired_authorization', 'outcomes_mismatch'] })
      .notNull(),
    detail: t.text().notNull(),
    sequence: t.integer(), // the batch whose receipt is missing; null: it isn't a batch
    blockNumber: t.bigint().notNull(),
    blockHash: t.hex().notNull(),
    blockTime: t.bigint().notNull(),
  }),
  (table) => ({ pk: primaryKey({ columns: [table.chainId, table.txHash, table.logIndex, table.reason] }) }),
)

/**
 * A row for each chain with a missing receipt in `quarantine`, so that each block reads only this, by its key. A
 * query over `quarantine` is raw SQL, for which Ponder instantiates a parser each time.
 */
export const missingReceipt = onchainTable('missing_receipt', (t) => ({ chainId: t.integer().primaryKey() }))

/** Number of batches of a chain, and so the next sequence. It is a row so that a reorg takes it back. */
export const batchCounter = onchainTable('batch_counter', (t) => ({
  chainId: t.integer().primaryKey(),
  batches: t.integer().notNull(),
}))

export const batchRelations = relations(batch, ({ many }) => ({
  items: many(authorization),
  recipients: many(batchRecipient),
}))

export const authorizationRelations = relations(authorization, ({ one }) => ({
  batch: one(batch, {
    fields: [authorization.chainId, authorization.txHash, authorization.batchLogIndex],
    references: [batch.chainId, batch.txHash, batch.logIndex],
  }),
}))

export const batchRecipientRelations = relations(batchRecipient, ({ one }) => ({
  batch: one(batch, {
    fields: [batchRecipient.chainId, batchRecipient.txHash, batchRecipient.logIndex],
    references: [batch.chainId, batch.txHash, batch.logIndex],
  }),
}))
