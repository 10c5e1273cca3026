/**
 * One alert: a rule for Prometheus, and what the person whom it wakes reads. `npm run generate` makes
 * docs/operations/alerts.yml and the table in docs/operations.md from these.
 */
export type Alert = {
  /** A PromQL expression. */
  expr: string
  /** How long it must hold. Default: no time. */
  for?: `${number}${'m' | 'h'}`
  /** `page`: money or service stands still, or will soon. `ticket`: needs work within a day or two. */
  severity: 'page' | 'ticket'
  /** What is wrong, as a Prometheus template with labels and value. */
  summary: string
  /** What it means, and what to do. Markdown. */
  action: string
}

const api = {
  ApiDown: {
    expr: 'up{job="tollkeeper-api"} == 0',
    for: '1m',
    severity: 'page',
    summary: "{{ $labels.instance }} doesn't answer",
    action:
      "Providers' paid requests fail with 503. Start the process; its log's last lines say why it ended.",
  },
  ApiDatabaseDown: {
    expr: 'tollkeeper_api_database_up == 0',
    for: '1m',
    severity: 'page',
    summary: "{{ $labels.instance }} can't reach Postgres",
    action: 'Nothing is lost and nothing is accepted. Bring Postgres back; the api goes on by itself.',
  },
  ApiErrors: {
    expr: 'sum by (route) (rate(tollkeeper_api_request_seconds_count{status="500"}[5m])) > 0',
    for: '2m',
    severity: 'page',
    summary: '{{ $labels.route }} answers 500',
    action: 'A broken assumption. The log has the stack at level `error`.',
  },
  ApiUnavailable: {
    expr:
      'sum(rate(tollkeeper_api_request_seconds_count{status="503"}[5m]))' +
      ' / sum(rate(tollkeeper_api_request_seconds_count[5m])) > 0.05',
    for: '5m',
    severity: 'page',
    summary: 'More than 5 % of requests are answered 503',
    action: "The problem's `code` says which dependency; `GET /readyz` as well.",
  },
  VerifySlow: {
    expr:
      'histogram_quantile(0.99, sum by (le)' +
      ' (rate(tollkeeper_api_request_seconds_bucket{route="/verify"}[5m]))) > 0.25',
    for: '10m',
    severity: 'ticket',
    summary: '99 % of verifications take up to {{ $value | humanizeDuration }}',
    action: "Look at Postgres' commit latency and at the RPC (balances, contract wallets) first.",
  },
  VerificationsRefused: {
    expr:
      'sum(rate(tollkeeper_api_verifications_total{result!~"ok|insufficient_balance|payment_replayed"}[15m]))' +
      ' / sum(rate(tollkeeper_api_verifications_total[15m])) > 0.5',
    for: '15m',
    severity: 'ticket',
    summary: 'More than half of the verifications are refused',
    action:
      'See by `result`. `macaroon_invalid` after a rotation: an instance has other `MACAROON_SECRETS`. ' +
      '`invalid_signature` everywhere: clients sign another domain.',
  },
  IndexStale: {
    expr: 'tollkeeper_api_index_age_seconds > 300',
    for: '5m',
    severity: 'page',
    summary: 'The index of {{ $labels.network }} is {{ $value | humanizeDuration }} old',
    action:
      'The keeper claims nothing while it is behind; views show the last recorded block. Look at the indexer and its RPC.',
  },
  WebhooksOverdue: {
    expr: 'tollkeeper_api_webhooks_overdue_seconds > 120',
    for: '5m',
    severity: 'ticket',
    summary: 'A webhook is {{ $value | humanizeDuration }} overdue',
    action: "Senders can't keep up or don't run. See `tollkeeper_api_background_errors_total` and the log.",
  },
  WebhooksExhausted: {
    expr: 'increase(tollkeeper_api_webhook_attempts_total{outcome="exhausted"}[1h]) > 0',
    severity: 'ticket',
    summary: 'Messages were given up after ten sendings',
    action: 'The receiver is gone. Its provider can send them again from the delivery log.',
  },
  MailFails: {
    expr: 'increase(tollkeeper_api_mails_total{outcome!="sent"}[1h]) > 3',
    severity: 'ticket',
    summary: 'Mail to providers is not taken',
    action:
      'The log says what the server of `SMTP_URL` answered. Each mail is tried ten times, over two days.',
  },
  BackgroundErrors: {
    expr: 'rate(tollkeeper_api_background_errors_total[10m]) > 0',
    for: '15m',
    severity: 'ticket',
    summary: '{{ $labels.loop }} fails again and again',
    action: 'The log has the error at level `warn` or `error`.',
  },
} satisfies Record<string, Alert>

const keeper = {
  KeeperDown: {
    expr: 'up{job="tollkeeper-keeper"} == 0',
    for: '2m',
    severity: 'page',
    summary: "{{ $labels.instance }} doesn't answer",
    action:
      'Payments are accepted but not settled. Start it; it takes up what was broadcast from the database.',
  },
  QueueTooOld: {
    expr: 'tollkeeper_queue_oldest_seconds > 3900',
    for: '5m',
    severity: 'page',
    summary:
      'A payment to {{ $labels.payee }} on {{ $labels.network }} waits for {{ $value | humanizeDuration }}',
    action:
      'No payment may wait longer than an hour. Look at `/readyz` first: a lagging index or an empty wallet stops all claims; ' +
      'then at `SettlementHeld`.',
  },
  IndexNotBelieved: {
    expr: 'tollkeeper_index_behind == 1',
    for: '10m',
    severity: 'page',
    summary: 'The record of {{ $labels.network }} is behind: {{ $labels.reason }}',
    action:
      'Nothing is claimed, failed or notified meanwhile, and nothing is lost. `missing`: no index was ever read. `stale`: Ponder ' +
      "isn't running, is rebuilding, or falls behind: look at its RPC. `below_acted_block`: it was set back: let it catch up.",
  },
  IndexHole: {
    expr: 'tollkeeper_index_quarantined{reason="receipt_unavailable"} > 0',
    for: '10m',
    severity: 'page',
    summary: 'No node of {{ $labels.network }} has {{ $value }} receipts or logs that the index needs',
    action:
      'It asks again every five blocks and fills the hole by itself; meanwhile what stands there shows as unsettled, but a ' +
      "keeper's own receipts count. After ten minutes these nodes won't have it: add one that does to `RPC_URL_<NETWORK>` " +
      'and restart the indexer.',
  },
  IndexUnreadable: {
    expr: 'delta(tollkeeper_index_quarantined{reason!="receipt_unavailable"}[1h]) > 0',
    severity: 'ticket',
    summary: 'The index of {{ $labels.network }} quarantined a log: {{ $labels.reason }}',
    action:
      "Nothing in it counts as paid. See `indexer.quarantine`; a stranger's contract may have caused it.",
  },
  SweepsFail: {
    expr: 'tollkeeper_failed_sweeps > 0',
    for: '24h',
    severity: 'ticket',
    summary: "{{ $value }} splitters on {{ $labels.network }} can't be swept",
    action:
      "Most likely a provider's wallet is on USDC's blacklist. Its money waits in the splitter; nobody else is held up.",
  },
  BatchesStuck: {
    expr: 'tollkeeper_open_batches{state="claimed"} > 0',
    for: '15m',
    severity: 'ticket',
    summary: '{{ $value }} batches on {{ $labels.network }} are claimed and not signed',
    action: 'Nobody holds the wallet, or its steps fail: look at the log of the keeper that has its key.',
  },
  TransactionUnknown: {
    expr: 'tollkeeper_unknown_seconds > 300',
    for: '5m',
    severity: 'page',
    summary:
      'A transaction of {{ $labels.wallet }} is neither mined nor lost for {{ $value | humanizeDuration }}',
    action:
      "It is sent again and replaced by itself. If `tollkeeper_replacements_total` doesn't rise, the offer is at " +
      "`MAX_FEE_GWEI`: raise it if the price is fair. If it does, the RPC doesn't pass transactions on.",
  },
  WalletPaused: {
    expr: 'tollkeeper_wallet_paused == 1',
    for: '5m',
    severity: 'page',
    summary: '{{ $labels.wallet }} on {{ $labels.network }} starts nothing new',
    action:
      '`insufficient_gas_funds` in the log: send it gas money; it looks again every 15 s. Its batch goes to another wallet, ' +
      'unless a node has the transaction already; then it waits for the money, or for a stranger. `out_of_gas`: a batch used ' +
      "up its whole gas limit: the token's code has changed, or a payer's wallet is hostile; look at the transaction before " +
      'it is done again a minute later. `signer_unavailable`, `signer_refused`: its signer is down, or has not its key: ' +
      '`tollkeeper doctor` says which.',
  },
  SignerMismatch: {
    expr: 'increase(tollkeeper_signer_failures_total{code="signer_mismatch"}[10m]) > 0',
    severity: 'page',
    summary:
      'The signer of {{ $labels.wallet }} on {{ $labels.network }} signed something else than was asked',
    action:
      'Nothing of it was stored or sent. The log says what differs: the signer is set to another chain or has another key, or ' +
      'something on the way fills in values. If it is none of these, somebody else has the signer: take the gas money out.',
  },
  GasBudgetUsedUp: {
    expr: 'tollkeeper_held_payments{reason="gas_budget"} > 0',
    for: '5m',
    severity: 'page',
    summary:
      '{{ $labels.network }}: {{ $value }} payments run out soon, and their fees are too small for the gas',
    action:
      'They were served, and are lost unless gas gets cheaper: `KEEPER_DAILY_BUDGET_USD` of today is used up. Raise it, or `MAX_GAS_PER_FEE`.',
  },
  SettlementHeld: {
    expr: 'sum by (network, reason) (tollkeeper_held_payments{reason=~"gas_price|gas_cost"}) > 0',
    for: '15m',
    severity: 'ticket',
    summary: '{{ $labels.network }}: payments wait for cheaper gas ({{ $labels.reason }})',
    action:
      '`gas_cost`: they settle below `MAX_GAS_PER_FEE`, in larger company, or shortly before they expire from `KEEPER_DAILY_BUDGET_USD`. ' +
      '`gas_price`: nothing is sent above `MAX_FEE_GWEI`, whatever expires: raise it if the price is fair.',
  },
  WalletLow: {
    expr: 'tollkeeper_wallet_balance_ether < 0.005',
    for: '10m',
    severity: 'ticket',
    summary: '{{ $labels.wallet }} on {{ $labels.network }} has {{ $value }} left for gas',
    action: 'Refill it. On networks where gas is dear, set the threshold to ten batches of 13 million gas.',
  },
  SettlementsFail: {
    expr:
      'sum by (network) (rate(tollkeeper_settlement_attempts_total{result!="settled"}[30m]))' +
      ' / sum by (network) (rate(tollkeeper_settlement_attempts_total[30m])) > 0.1',
    for: '30m',
    severity: 'ticket',
    summary: 'More than 10 % of settlements on {{ $labels.network }} fail',
    action:
      "The payments' own fault: their providers are told after the third failure. See by `result`. `insufficient_balance`: " +
      "buyers empty their wallets; lower the caps. Many `invalid_signature`: the token's domain has changed.",
  },
  BatchesRevert: {
    expr: 'sum by (network) (rate(tollkeeper_batches_total{outcome="reverted"}[30m])) > 0',
    for: '1h',
    severity: 'ticket',
    summary: 'Batches on {{ $labels.network }} revert again and again',
    action:
      'Now and then another keeper was faster, which costs only gas. All the time: two operators settle the same payments.',
  },
  Reorgs: {
    expr: 'increase(tollkeeper_reorgs_total[1h]) > 0',
    severity: 'ticket',
    summary: 'A reorg on {{ $labels.network }} dropped a mined batch',
    action:
      'It is settled again by itself. Often means an unhealthy RPC; look whether several agree. Deeper than ' +
      "Ponder's finality: docs/operations.md, _A reorg deeper than the index can follow_.",
  },
  GasDear: {
    expr: 'histogram_quantile(0.5, sum by (le, network) (rate(tollkeeper_usd_per_payment_bucket[1h]))) > 0.002',
    for: '1h',
    severity: 'ticket',
    summary: 'Half of the payments on {{ $labels.network }} cost over {{ $value }} USD to settle',
    action: 'The raised thresholds make batches larger by themselves; think about the price minimum.',
  },
  KeeperLoopErrors: {
    expr: 'sum by (network, loop) (rate(tollkeeper_loop_errors_total[10m])) > 0.1',
    for: '15m',
    severity: 'ticket',
    summary: '{{ $labels.loop }} on {{ $labels.network }} fails again and again',
    action:
      "An RPC or the database doesn't answer: the log has the error. Every step is taken again, and none counts against a payment.",
  },
} satisfies Record<string, Alert>

/** By the process that they are about, which names the group of their rules. */
export const alertsOf = { api, keeper }

/** Every alert by its name, the api's first. */
export const alerts: Readonly<Record<string, Alert>> = { ...api, ...keeper }
