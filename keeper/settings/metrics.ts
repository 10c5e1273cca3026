import { Counter, Gauge, Histogram, Registry } from 'prom-client'

/** Prometheus metrics of one keeper; `docs/operations.md` says what each alert on them means. */
export function createMetrics() {
  const registry = new Registry()
  const { gauge, counter, histogram } = createMakers([registry])
  return {
    registry,
    queuedPayments: gauge(
      'tollkeeper_queued_payments',
      ['network', 'payee'],
      'Payments that wait for a batch, or for another attempt',
    ),
    queueOldestSeconds: gauge(
      'tollkeeper_queue_oldest_seconds',
      ['network', 'payee'],
      'Age of the oldest payment that waits for its first attempt',
    ),
    payments: gauge(
      'tollkeeper_payments',
      ['network', 'status'],
      'Payments that are not over, by status: verified, settling, retrying',
    ),
    openBatches: gauge('tollkeeper_open_batches', ['network', 'state'], 'Batches not closed, by state'),
    batches: counter(
      'tollkeeper_batches_total',
      ['network', 'trigger', 'outcome'],
      'Batches closed, by trigger and outcome',
    ),
    attempts: counter(
      'tollkeeper_settlement_attempts_total',
      ['network', 'result'],
      'Payments that a batch of ours tried, by result (settled, or the failure code)',
    ),
    broadcasts: counter(
      'tollkeeper_broadcasts_total',
      ['network', 'kind', 'result'],
      'Transactions handed to the RPCs, by kind and result',
    ),
    unknownSeconds: gauge(
      'tollkeeper_unknown_seconds',
      ['network', 'wallet'],
      'Age of the oldest transaction that is neither mined nor known to be lost',
    ),
    replacements: counter(
      'tollkeeper_replacements_total',
      ['network', 'kind'],
      'Transactions replaced by dearer ones or cancelled',
    ),
    foreignSettlements: counter(
      'tollkeeper_foreign_settlements_total',
      ['network', 'state'],
      'Halves that somebody else settled or cancelled',
    ),
    reorgs: counter('tollkeeper_reorgs_total', ['network'], 'Mined batches that a reorg dropped'),
    indexBehind: gauge(
      'tollkeeper_index_behind',
      ['network', 'reason'],
      '1 while the index may not be believed',
    ),
    indexQuarantined: gauge(
      'tollkeeper_index_quarantined',
      ['network', 'reason'],
      'Logs that the index could not read, by reason',
    ),
    failedSweeps: gauge('tollkeeper_failed_sweeps', ['network'], 'Splitters whose last sweep failed'),
    walletBalance: gauge(
      'tollkeeper_wallet_balance_ether',
      ['network', 'wallet'],
      'Gas money of a keeper wallet',
    ),
    walletPaused: gauge(
      'tollkeeper_wallet_paused',
      ['network', 'wallet'],
      '1 while a wallet starts nothing new',
    ),
    signerFailures: counter(
      'tollkeeper_signer_failures_total',
      ['network', 'wallet', 'code'],
      'Transactions that a remote signer did not sign as asked, by code',
    ),
    holds: counter('tollkeeper_settlement_holds_total', ['network', 'reason'], 'Holds, by reason'),
    heldPayments: gauge('tollkeeper_held_payments', ['network', 'reason'], 'Payments held for their gas'),
    gasPerPayment: histogram(
      'tollkeeper_gas_per_payment',
      ['network'],
      'Gas used by a payment of a mined batch',
      [60_000, 70_000, 75_000, 80_000, 85_000, 90_000, 100_000, 120_000, 160_000, 250_000],
    ),
    usdPerPayment: histogram(
      'tollkeeper_usd_per_payment',
      ['network'],
      'What settling a payment cost, in USD',
      [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25],
    ),
    spent: counter(
      'tollkeeper_gas_spent_usd_total',
      ['network', 'wallet'],
      'What the gas of mined transactions cost, in USD',
    ),
    earned: counter(
      'tollkeeper_rewards_earned_usdc_total',
      ['network', 'wallet'],
      'What tabs paid the wallet for settling them, in USDC',
    ),
    triggerToBroadcast: histogram(
      'tollkeeper_trigger_to_broadcast_seconds',
      ['network'],
      'From a batch being claimed to its first broadcast',
      [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 5, 15],
    ),
    notifications: counter(
      'tollkeeper_notifications_total',
      ['network', 'event'],
      'What providers were told of the chain, by event',
    ),
    loopErrors: counter(
      'tollkeeper_loop_errors_total',
      ['network', 'loop'],
      'Steps that ended in an error and will be taken again',
    ),
  }
}

function createMakers(registers: Registry[]) {
  return {
    gauge: <L extends string>(name: string, labelNames: L[], help: string) =>
      new Gauge({ name, help, labelNames, registers }),
    counter: <L extends string>(name: string, labelNames: L[], help: string) =>
      new Counter({ name, help, labelNames, registers }),
    histogram: <L extends string>(name: string, labelNames: L[], help: string, buckets: number[]) =>
      new Histogram({ name, help, labelNames, buckets, registers }),
  }
}

export type Metrics = ReturnType<typeof createMetrics>
