import { Counter, Gauge, Histogram, Registry } from 'prom-client'

/** Prometheus metrics of one keeper; `docs/operations.md` says what each alert on them means. */
export function createMetrics() {
  const registry = new Registry()
  const { gauge, counter, histogram } = createMakers([registry])
  return {
    registry,
    queuedPayments: gauge(
      'queued_payments',
      'Payments that wait for a batch, or for another attempt',
      'payee',
    ),
    queueOldestSeconds: gauge(
      'queue_oldest_seconds',
      'Age of the oldest payment that waits for its first attempt',
      'payee',
    ),
    payments: gauge(
      'payments',
      'Payments that are not over, by status: verified, settling, retrying',
      'status',
    ),
    openBatches: gauge('open_batches', 'Batches not closed, by state', 'state'),
    batches: counter('batches_total', 'Batches closed, by trigger and outcome', 'trigger', 'outcome'),
    attempts: counter(
      'settlement_attempts_total',
      'Payments that a batch of ours tried, by result (settled, or the failure code)',
      'result',
    ),
    broadcasts: counter(
      'broadcasts_total',
      'Transactions handed to the RPCs, by kind and result',
      'kind',
      'result',
    ),
    unknownSeconds: gauge(
      'unknown_seconds',
      'Age of the oldest transaction that is neither mined nor known to be lost',
      'wallet',
    ),
    replacements: counter('replacements_total', 'Transactions replaced by dearer ones or cancelled', 'kind'),
    foreignSettlements: counter(
      'foreign_settlements_total',
      'Halves that somebody else settled or cancelled',
      'state',
    ),
    reorgs: counter('reorgs_total', 'Mined batches that a reorg dropped'),
    tokenPaused: gauge('token_paused', '1 while USDC is paused, so that nothing settles'),
    indexBehind: gauge('index_behind', '1 while the index may not be believed', 'reason'),
    indexQuarantined: gauge('index_quarantined', 'Logs that the index could not read, by reason', 'reason'),
    failedSweeps: gauge('failed_sweeps', 'Splitters whose last sweep failed'),
    walletBalance: gauge('wallet_balance_ether', 'Gas money of a keeper wallet', 'wallet'),
    walletPaused: gauge('wallet_paused', '1 while a wallet starts nothing new', 'wallet'),
    signerFailures: counter(
      'signer_failures_total',
      'Transactions that a remote signer did not sign as asked, by code',
      'wallet',
      'code',
    ),
    holds: counter('settlement_holds_total', 'Holds, by reason', 'reason'),
    heldPayments: gauge('held_payments', 'Payments held for their gas', 'reason'),
    gasPerPayment: histogram(
      'gas_per_payment',
      'Gas used by a payment of a mined batch',
      [60_000, 70_000, 75_000, 80_000, 85_000, 90_000, 100_000, 120_000, 160_000, 250_000],
    ),
    usdPerPayment: histogram(
      'usd_per_payment',
      'What settling a payment cost, in USD',
      [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25],
    ),
    spent: counter('gas_spent_usd_total', 'What the gas of mined transactions cost, in USD', 'wallet'),
    earned: counter(
      'rewards_earned_usdc_total',
      'What tabs paid the wallet for settling them, in USDC',
      'wallet',
    ),
    triggerToBroadcast: histogram(
      'trigger_to_broadcast_seconds',
      'From a batch being claimed to its first broadcast',
      [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 5, 15],
    ),
    notifications: counter('notifications_total', 'What providers were told of the chain, by event', 'event'),
    badRows: counter(
      'bad_rows_total',
      'Rows that a loop could not process and will try again later, by step',
      'step',
    ),
    loopErrors: counter('loop_errors_total', 'Steps that ended in an error and will be taken again', 'loop'),
  }
}

/** All are called `tollkeeper_…`, and say of which network they are. */
function createMakers(registers: Registry[]) {
  const named = <L extends string>(name: string, help: string, labels: L[]) => ({
    name: `tollkeeper_${name}`,
    help,
    labelNames: ['network' as const, ...labels],
    registers,
  })
  return {
    gauge: <L extends string>(name: string, help: string, ...labels: L[]) =>
      new Gauge(named(name, help, labels)),
    counter: <L extends string>(name: string, help: string, ...labels: L[]) =>
      new Counter(named(name, help, labels)),
    histogram: (name: string, help: string, buckets: number[]) =>
      new Histogram({ ...named(name, help, []), buckets }),
  }
}

export type Metrics = ReturnType<typeof createMetrics>
