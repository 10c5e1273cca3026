import { Counter, Gauge, Histogram, Registry } from 'prom-client'

/** Prometheus metrics of one keeper; `docs/operations.md` says what each alert on them means. */
export function createMetrics() {
  const registry = new Registry()
  const shared = { registers: [registry] }
  return {
    registry,
    queuedPayments: new Gauge({
      ...shared,
      name: 'tollkeeper_queued_payments',
      help: 'Payments that wait for a batch, or for another attempt',
      labelNames: ['network', 'payee'],
    }),
    queueOldestSeconds: new Gauge({
      ...shared,
      name: 'tollkeeper_queue_oldest_seconds',
      help: 'Age of the oldest payment that waits for its first attempt',
      labelNames: ['network', 'payee'],
    }),
    payments: new Gauge({
      ...shared,
      name: 'tollkeeper_payments',
      help: 'Payments that are not over, by status: verified, settling, retrying',
      labelNames: ['network', 'status'],
    }),
    openBatches: new Gauge({
      ...shared,
      name: 'tollkeeper_open_batches',
      help: 'Batches that are not closed, by state',
      labelNames: ['network', 'state'],
    }),
    batches: new Counter({
      ...shared,
      name: 'tollkeeper_batches_total',
      help: 'Batches closed, by trigger and outcome',
      labelNames: ['network', 'trigger', 'outcome'],
    }),
    attempts: new Counter({
      ...shared,
      name: 'tollkeeper_settlement_attempts_total',
      help: 'Payments that a batch of ours tried, by result (settled, or the failure code)',
      labelNames: ['network', 'result'],
    }),
    broadcasts: new Counter({
      ...shared,
      name: 'tollkeeper_broadcasts_total',
      help: 'Transactions handed to the RPCs, by kind and result',
      labelNames: ['network', 'kind', 'result'],
    }),
    unknownSeconds: new Gauge({
      ...shared,
      name: 'tollkeeper_unknown_seconds',
      help: 'Age of the oldest transaction that is neither mined nor known to be lost',
      labelNames: ['network', 'wallet'],
    }),
    replacements: new Counter({
      ...shared,
      name: 'tollkeeper_replacements_total',
      help: 'Transactions replaced by dearer ones or cancelled',
      labelNames: ['network', 'kind'],
    }),
    foreignSettlements: new Counter({
      ...shared,
      name: 'tollkeeper_foreign_settlements_total',
      help: 'Halves that somebody else settled or cancelled',
      labelNames: ['network', 'state'],
    }),
    reorgs: new Counter({
      ...shared,
      name: 'tollkeeper_reorgs_total',
      help: 'Mined batches that a reorg dropped',
      labelNames: ['network'],
    }),
    indexBehind: new Gauge({
      ...shared,
      name: 'tollkeeper_index_behind',
      help: '1 while the index may not be believed',
      labelNames: ['network', 'reason'],
    }),
    indexQuarantined: new Gauge({
      ...shared,
      name: 'tollkeeper_index_quarantined',
      help: 'Logs that the index could not read, by reason',
      labelNames: ['network', 'reason'],
    }),
    walletBalance: new Gauge({
      ...shared,
      name: 'tollkeeper_wallet_balance_ether',
      help: 'Gas money of a keeper wallet',
      labelNames: ['network', 'wallet'],
    }),
    walletPaused: new Gauge({
      ...shared,
      name: 'tollkeeper_wallet_paused',
      help: '1 while a wallet starts nothing new',
      labelNames: ['network', 'wallet'],
    }),
    holds: new Counter({
      ...shared,
      name: 'tollkeeper_settlement_holds_total',
      help: 'Batches that waited for cheaper gas, by what was over its ceiling',
      labelNames: ['network', 'reason'],
    }),
    gasPerPayment: new Histogram({
      ...shared,
      name: 'tollkeeper_gas_per_payment',
      help: 'Gas used by a payment of a mined batch',
      labelNames: ['network'],
      buckets: [60_000, 70_000, 75_000, 80_000, 85_000, 90_000, 100_000, 120_000, 160_000, 250_000],
    }),
    usdPerPayment: new Histogram({
      ...shared,
      name: 'tollkeeper_usd_per_payment',
      help: 'What settling a payment cost, in USD',
      labelNames: ['network'],
      buckets: [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25],
    }),
    triggerToBroadcast: new Histogram({
      ...shared,
      name: 'tollkeeper_trigger_to_broadcast_seconds',
      help: 'From a batch being claimed to its first broadcast',
      labelNames: ['network'],
      buckets: [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 5, 15],
    }),
    notifications: new Counter({
      ...shared,
      name: 'tollkeeper_notifications_total',
      help: 'What providers were told of the chain, by event',
      labelNames: ['network', 'event'],
    }),
    loopErrors: new Counter({
      ...shared,
      name: 'tollkeeper_loop_errors_total',
      help: 'Steps that ended in an error and will be taken again',
      labelNames: ['network', 'loop'],
    }),
  }
}

export type Metrics = ReturnType<typeof createMetrics>
