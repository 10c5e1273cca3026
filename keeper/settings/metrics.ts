import { Counter, Gauge, Histogram, Registry } from 'prom-client'

/** Creates the Prometheus metrics of one keeper. `docs/runbooks` has a runbook for each alert on them. */
export function createMetrics() {
  const registry = new Registry()
  const { gauge, counter, histogram } = createMakers([registry])
  return {
    registry,
    queuedPayments: gauge(
      'queued_payments',
      'Payments that wait for a batch or for another attempt',
      'payee',
    ),
    queueOldestSeconds: gauge(
      'queue_oldest_seconds',
      'Age of the oldest payment that waits for its first attempt',
      'payee',
    ),
    payments: gauge(
      'payments',
      'Payments that are not final, by status: verified, settling, retrying',
      'status',
    ),
    openBatches: gauge('open_batches', 'Batches that are not closed, by state', 'state'),
    batches: counter('batches_total', 'Batches closed, by trigger and outcome', 'trigger', 'outcome'),
    attempts: counter(
      'settlement_attempts_total',
      'Payments tried in batches of this keeper, by result (settled, or the failure code)',
      'result',
    ),
    broadcasts: counter(
      'broadcasts_total',
      'Transactions sent to the RPC nodes, by kind and result',
      'kind',
      'result',
    ),
    unknownSeconds: gauge(
      'unknown_seconds',
      'Age of the oldest transaction that is neither mined nor known to be lost',
      'wallet',
    ),
    replacements: counter(
      'replacements_total',
      'Transactions replaced with a higher fee, or cancelled',
      'kind',
    ),
    foreignSettlements: counter(
      'foreign_settlements_total',
      'Authorizations that others settled or cancelled',
      'state',
    ),
    reorgs: counter('reorgs_total', 'Mined batches that a reorg dropped'),
    tokenPaused: gauge('token_paused', '1 while USDC is paused, so that nothing settles'),
    indexBehind: gauge('index_behind', '1 while the keeper does not trust the index, by reason', 'reason'),
    indexGaps: gauge('index_gaps', 'Logs that the index could not read, by reason', 'reason'),
    failedSweeps: gauge('failed_sweeps', 'Splitters whose last sweep failed'),
    walletBalance: gauge(
      'wallet_balance_ether',
      "Balance of a keeper wallet, in the network's gas token",
      'wallet',
    ),
    walletPaused: gauge('wallet_paused', '1 while a wallet starts no new batches', 'wallet'),
    signerFailures: counter(
      'signer_failures_total',
      'Transactions that a remote signer did not sign as requested, by code',
      'wallet',
      'code',
    ),
    holds: counter(
      'settlement_holds_total',
      'Number of times that payments were held back because of gas cost, by reason',
      'reason',
    ),
    heldPayments: gauge('held_payments', 'Payments held back because of gas cost, by reason', 'reason'),
    refundGasLeft: gauge(
      'refund_gas_left_usd',
      'Gas money that is left today for refunds of providers without a grant, in USD',
    ),
    gasPerPayment: histogram(
      'gas_per_payment',
      'Gas used per payment of a mined batch',
      [60_000, 70_000, 75_000, 80_000, 85_000, 90_000, 100_000, 120_000, 160_000, 250_000],
    ),
    usdPerPayment: histogram(
      'usd_per_payment',
      'Cost of settling a payment, in USD',
      [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25],
    ),
    spent: counter('gas_spent_usd_total', 'Cost of the gas of mined transactions, in USD', 'wallet'),
    spentEther: counter(
      'gas_spent_ether_total',
      "Cost of the gas of mined transactions, in the network's gas token",
      'wallet',
    ),
    earned: counter(
      'rewards_earned_usdc_total',
      'Rewards that tabs paid the wallet for settling them, in USDC',
      'wallet',
    ),
    triggerToBroadcast: histogram(
      'trigger_to_broadcast_seconds',
      'Seconds from the claim of a batch to its first broadcast',
      [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 5, 15],
    ),
    notifications: counter(
      'notifications_total',
      'Notifications of chain events to providers, by event',
      'event',
    ),
    hookQuestions: counter(
      'hook_questions_total',
      "Requests to providers' hooks before accepting payments, by outcome",
      'outcome',
    ),
    badRows: counter(
      'bad_rows_total',
      'Rows that a loop could not process and will try again later, by step',
      'step',
    ),
    loopErrors: counter(
      'loop_errors_total',
      'Steps of loops that failed and will run again, by loop',
      'loop',
    ),
  }
}

/** Creates metrics whose names start with `tollkeeper_` and that have the label `network`. */
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
