import { onchainTable, primaryKey, relations } from 'ponder'

// The tables hold raw values of the chain: addresses, hashes and nonces in lower case, amounts in USDC base units, times in Unix seconds. Every
// table's key contains the chain, so that one instance can index several chains. views.ts creates further database indexes. docs/indexer.md describes
// each table for its readers.

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
    logIndex: t.integer().notNull(), // position of the event AuthorizationUsed or AuthorizationCanceled
    blockNumber: t.bigint().notNull(),
    blockHash: t.hex().notNull(),
    blockTime: t.bigint().notNull(),
    // The state of a settled tab, as its payer signed it: the platform (20 bytes), the reward in basis points (2), the sequence (5),
    // and for each line the split (32) and the amount (6). Null if the authorization isn't a tab.
    tab: t.hex(),
    batchLogIndex: t.integer(), // position of its batch's event BatchSettled; null if the authorization was sent to USDC directly
  }),
  (table) => ({
    // The payer comes first, so that one payer's rows are stored together and a page of payments reads few pages from the disk.
    pk: primaryKey({ columns: [table.authorizer, table.nonce, table.token, table.chainId] }),
  }),
)

/** A batch of USDC authorizations: an event BatchSettled. */
export const batch = onchainTable(
  'batch',
  (t) => ({
    chainId: t.integer().notNull(),
    txHash: t.hex().notNull(),
    logIndex: t.integer().notNull(),
    sequence: t.integer().notNull(), // number of the batch among the chain's batches of USDC: 1, 2, 3, …
    batchId: t.hex().notNull(), // chosen by the sender, and not unique
    keeper: t.hex().notNull(),
    token: t.hex().notNull(),
    trigger: t.integer().notNull(),
    authorizations: t.integer().notNull(), // number of settled authorizations, according to USDC's logs
    paymentCount: t.integer().notNull(), // number of payments of which this batch settled at least one authorization
    providerTotal: t.bigint().notNull(), // sum according to USDC's logs or, for tabs, to TabSettlement's event
    feeTotal: t.bigint().notNull(),
    outcomes: t.hex().notNull(),
    blockNumber: t.bigint().notNull(),
    blockHash: t.hex().notNull(),
    blockTime: t.bigint().notNull(),
    gasUsed: t.bigint().notNull(), // gas of the whole transaction
    effectiveGasPrice: t.bigint().notNull(),
    l1Fee: t.bigint(), // set only on chains of the OP stack
  }),
  (table) => ({
    pk: primaryKey({ columns: [table.chainId, table.txHash, table.logIndex] }),
  }),
)

/** The sum that one wallet received in one batch. */
export const batchRecipient = onchainTable(
  'batch_recipient',
  (t) => ({
    chainId: t.integer().notNull(),
    txHash: t.hex().notNull(),
    logIndex: t.integer().notNull(), // position of the event BatchSettled
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

/**
 * A payout of a splitter, which anyone can sweep. Readers must check the splitter's address: transfers that look like a payout can come from any
 * address.
 */
export const payout = onchainTable(
  'payout',
  (t) => ({
    chainId: t.integer().notNull(),
    token: t.hex().notNull(),
    splitter: t.hex().notNull(),
    platformRecipient: t.hex().notNull(), // the platform's wallet, or the platform's splitter while the wallet can't be paid
    platformAmount: t.bigint().notNull(),
    provider: t.hex().notNull(),
    providerAmount: t.bigint().notNull(),
    txHash: t.hex().notNull(),
    logIndex: t.integer().notNull(), // position of the Transfer to the platform; the Transfer to the provider follows it
    blockNumber: t.bigint().notNull(),
    blockHash: t.hex().notNull(),
    blockTime: t.bigint().notNull(),
  }),
  (table) => ({
    pk: primaryKey({ columns: [table.chainId, table.txHash, table.logIndex] }),
  }),
)

/**
 * The sums of a keeper's settlements on one UTC day. The keeper is the sender of `settle`, which may be another contract. A query for a longer period
 * adds up these rows, so its cost doesn't grow with the number of batches.
 */
export const keeperDay = onchainTable(
  'keeper_day',
  (t) => ({
    chainId: t.integer().notNull(),
    day: t.bigint().notNull(), // Unix time of the day's first second
    address: t.hex().notNull(),
    batchCount: t.integer().notNull(),
    paymentCount: t.integer().notNull(),
    total: t.bigint().notNull(), // all settled amounts, including fees
    gasUsed: t.bigint().notNull(),
    gasCost: t.bigint().notNull(), // in wei, including the L1 fee; the gas of a transaction with several batches counts once
    lastBlockTime: t.bigint().notNull(),
  }),
  (table) => ({ pk: primaryKey({ columns: [table.chainId, table.day, table.address] }) }),
)

/**
 * A log that couldn't be read. The index doesn't count it as a payment, but the keeper may prove the payment in another way. A missing receipt is
 * fetched again.
 */
export const indexGap = onchainTable(
  'index_gap',
  (t) => ({
    chainId: t.integer().notNull(),
    txHash: t.hex().notNull(),
    logIndex: t.integer().notNull(),
    reason: t
      .text({ enum: ['receipt_unavailable', 'unpaired_authorization', 'outcomes_mismatch'] })
      .notNull(),
    detail: t.text().notNull(),
    sequence: t.integer(), // sequence of the batch whose receipt is missing; null if the log isn't from a batch
    blockNumber: t.bigint().notNull(),
    blockHash: t.hex().notNull(),
    blockTime: t.bigint().notNull(),
  }),
  (table) => ({ pk: primaryKey({ columns: [table.chainId, table.txHash, table.logIndex, table.reason] }) }),
)

/**
 * A row for each chain with a missing receipt in `index_gap`. The handler of each block reads only this row by its key, which is fast. A query of
 * `index_gap` would be raw SQL, for which Ponder creates a parser each time.
 */
export const missingReceipt = onchainTable('missing_receipt', (t) => ({ chainId: t.integer().primaryKey() }))

/** The number of a chain's batches, which determines the next batch's sequence. The number is stored as a row, so that a reorg reverts it as well. */
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
