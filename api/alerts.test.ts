import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { knownMetrics, labelsIn, metricsIn } from '../test/support/metrics.ts'

const path = fileURLToPath(new URL('../docs/operations/alerts.yml', import.meta.url))

type Rule = {
  alert: string
  expr: string
  for?: string
  labels: { severity: string }
  annotations: { summary: string; impact: string; runbook_url: string }
}
const { groups } = parse(readFileSync(path, 'utf8')) as { groups: { rules: Rule[] }[] }
const table = groups
  .flatMap(({ rules }) => rules)
  .map(({ alert, labels, annotations, ...rule }) => [alert, { ...rule, ...labels, ...annotations }] as const)

const promtool = spawnSync('promtool', ['check', 'rules', path], { encoding: 'utf8' })
const isMissing = promtool.error !== undefined && !process.env.CI
if (promtool.error) {
  process.stderr.write(
    "\nLEFT OUT: the alert rules before Prometheus' own tool: no promtool in the PATH (Debian: apt-get install prometheus)\n\n",
  )
}

/** Values of a series minute by minute, as Prometheus' rule tests write them. */
type Series = Record<string, string>

const base = { network: 'base' }
const of = (metric: string, labels: string, values: string): Series => ({ [`${metric}{${labels}}`]: values })
const onBase = (metric: string, values: string, labels = '') =>
  of(`tollkeeper_${metric}`, `network="base"${labels && `,${labels}`}`, values)
const always = (value: number, minutes = 70) => `${value}x${minutes}`
const rising = (step: number) => `0+${step}x70`

const requests = (status: string, values: string, route = '/verify') =>
  of('tollkeeper_api_request_seconds_count', `route="${route}",status="${status}"`, values)
const verifications = (result: string, values: string) =>
  of('tollkeeper_api_verifications_total', `result="${result}"`, values)
const attempts = (result: string, values: string) =>
  onBase('settlement_attempts_total', values, `result="${result}"`)
/** Values of a histogram with all samples in the bucket up to `le`, and none in the next lower bucket, which ends at `below`. */
const histogram = (metric: string, labels: string, [below, le]: [number, number]): Series => ({
  ...of(`${metric}_bucket`, `${labels},le="${below}"`, always(0)),
  ...of(`${metric}_bucket`, `${labels},le="${le}"`, rising(10)),
  ...of(`${metric}_bucket`, `${labels},le="+Inf"`, rising(10)),
})

/**
 * A test of one alert: series for which the alert fires, similar series for which it doesn't fire, and the summary of the fired alert.
 * `past` is the number of minutes for which the series already existed. Rules that look back for hours need such a history.
 */
type Case = [fires: Series, quiet: Series, labels: Record<string, string>, summary: string, past?: number]

const cases: Record<string, Case> = {
  ApiDown: [
    of('up', 'job="tollkeeper-api",instance="a"', always(0)),
    { ...of('up', 'job="tollkeeper-api",instance="a"', always(1)), ...of('up', 'job="other"', always(0)) },
    { job: 'tollkeeper-api', instance: 'a' },
    "a doesn't answer",
  ],
  ApiDatabaseDown: [
    of('tollkeeper_api_database_up', 'instance="a"', always(0)),
    of('tollkeeper_api_database_up', 'instance="a"', always(1)),
    { instance: 'a' },
    "a can't reach Postgres",
  ],
  ApiErrors: [
    requests('500', rising(1)),
    requests('503', rising(1)),
    { route: '/verify' },
    '/verify answers 500',
  ],
  ApiUnavailable: [
    { ...requests('503', rising(6)), ...requests('200', rising(94)) },
    { ...requests('503', rising(5)), ...requests('200', rising(95)) },
    {},
    'More than 5% of requests are answered 503',
  ],
  VerifySlow: [
    histogram('tollkeeper_api_request_seconds', 'route="/verify"', [0.25, 0.5]),
    {
      ...histogram('tollkeeper_api_request_seconds', 'route="/verify"', [0.1, 0.25]),
      ...histogram('tollkeeper_api_request_seconds', 'route="/providers"', [0.25, 0.5]),
    },
    {},
    '99% of verifications take up to 497.5ms',
  ],
  VerificationsRefused: [
    { ...verifications('macaroon_invalid', rising(6)), ...verifications('ok', rising(4)) },
    { ...verifications('insufficient_balance', rising(6)), ...verifications('ok', rising(4)) },
    {},
    'More than half of the verifications are refused',
  ],
  IndexStale: [
    onBase('api_index_age_seconds', always(301)),
    onBase('api_index_age_seconds', always(300)),
    base,
    'The index of base is 5m 1s old',
  ],
  WebhooksOverdue: [
    of('tollkeeper_api_webhooks_overdue_seconds', '', always(121)),
    of('tollkeeper_api_webhooks_overdue_seconds', '', always(120)),
    {},
    'A webhook is 2m 1s overdue',
  ],
  WebhooksExhausted: [
    of('tollkeeper_api_webhook_attempts_total', 'outcome="exhausted"', rising(1)),
    of('tollkeeper_api_webhook_attempts_total', 'outcome="failed"', rising(1)),
    { outcome: 'exhausted' },
    'Webhook messages failed ten times and are no longer retried',
  ],
  MailFails: [
    of('tollkeeper_api_mails_total', 'outcome="failed"', rising(2)),
    {
      ...of('tollkeeper_api_mails_total', 'outcome="failed"', rising(1)),
      ...of('tollkeeper_api_mails_total', 'outcome="sent"', rising(9)),
    },
    { outcome: 'failed' },
    'The mail server refuses mail to providers',
  ],
  TabsNotImported: [
    onBase('api_closed_tabs_oldest_seconds', always(601)),
    onBase('api_closed_tabs_oldest_seconds', always(600)),
    base,
    'A tab on base was closed 10m 1s ago and is not yet in the ledger',
  ],
  TabBudgetLow: [
    {
      ...of('tollkeeper_api_tab_credit_usdc', 'money="real"', always(81)),
      ...of('tollkeeper_api_tab_budget_usdc', 'money="real"', always(100)),
    },
    {
      ...of('tollkeeper_api_tab_credit_usdc', 'money="real"', always(80)),
      ...of('tollkeeper_api_tab_credit_usdc', 'money="test"', always(100)),
      ...of('tollkeeper_api_tab_budget_usdc', 'money="real"', always(100)),
      ...of('tollkeeper_api_tab_budget_usdc', 'money="test"', always(100)),
    },
    { money: 'real' },
    "Tabs owe 81 USDC of today's budget",
  ],
  CoveredDefaultsUnpaid: [
    onBase('api_covered_defaults_usdc', always(2, 1500)),
    onBase('api_covered_defaults_usdc', always(1, 1500)),
    base,
    'You owe providers 2 USDC on base for defaults on tabs',
  ],
  RefundsFail: [
    onBase('api_failed_refunds', always(2), 'code="insufficient_balance"'),
    onBase('api_failed_refunds', always(0), 'code="insufficient_balance"'),
    { ...base, code: 'insufficient_balance' },
    '2 refunds on base failed within a day: insufficient_balance',
  ],
  RefundsNotCovered: [
    of('tollkeeper_api_refunds_total', 'result="gas_not_covered"', '0 1x70'),
    {
      ...of('tollkeeper_api_refunds_total', 'result="gas_not_covered"', always(3)),
      ...of('tollkeeper_api_refunds_total', 'result="payment_not_settled"', rising(1)),
      ...of('tollkeeper_api_refunds_total', 'result="ok"', rising(1)),
    },
    {},
    'Refunds were refused because the allowance for their gas is used up',
  ],
  // Rule tests begin at the epoch, so a backup from more than 26 hours ago has a negative time.
  BackupOld: [
    of('tollkeeper_api_backup_timestamp_seconds', 'instance="a"', always(-26 * 3600)),
    {
      ...of('tollkeeper_api_backup_timestamp_seconds', 'instance="a"', always(-30 * 3600)),
      ...of('tollkeeper_api_backup_timestamp_seconds', 'instance="b"', always(-20 * 3600)),
    },
    {},
    'The newest backup is 1d 2h 17m 0s old',
  ],
  BackgroundErrors: [
    of('tollkeeper_api_background_errors_total', 'loop="usage"', rising(1)),
    of('tollkeeper_api_background_errors_total', 'loop="usage"', always(1)),
    { loop: 'usage' },
    'Background work keeps failing (loop usage)',
  ],
  KeeperDown: [
    of('up', 'job="tollkeeper-keeper",instance="k"', always(0)),
    of('up', 'job="tollkeeper-keeper",instance="k"', always(1)),
    { job: 'tollkeeper-keeper', instance: 'k' },
    "k doesn't answer",
  ],
  QueueTooOld: [
    onBase('queue_oldest_seconds', always(3901), 'payee="0xab"'),
    onBase('queue_oldest_seconds', always(3900), 'payee="0xab"'),
    { ...base, payee: '0xab' },
    'A payment to 0xab on base has waited for 1h 5m 1s',
  ],
  TokenPaused: [
    onBase('token_paused', always(1)),
    onBase('token_paused', always(0)),
    base,
    'USDC on base is paused',
  ],
  IndexNotTrusted: [
    onBase('index_behind', always(1), 'reason="stale"'),
    onBase('index_behind', always(0), 'reason="stale"'),
    { ...base, reason: 'stale' },
    "The index of base can't be used: stale",
  ],
  IndexGap: [
    onBase('index_gaps', always(2), 'reason="receipt_unavailable"'),
    onBase('index_gaps', always(2), 'reason="outcomes_mismatch"'),
    { ...base, reason: 'receipt_unavailable' },
    'No node of base has 2 receipts or logs that the index needs',
  ],
  IndexUnreadable: [
    onBase('index_gaps', '1 2x70', 'reason="outcomes_mismatch"'),
    onBase('index_gaps', '1 2x70', 'reason="receipt_unavailable"'),
    { ...base, reason: 'outcomes_mismatch' },
    'The index of base could not read a log: outcomes_mismatch',
  ],
  SweepsFail: [
    onBase('failed_sweeps', always(1, 1500)),
    onBase('failed_sweeps', always(0, 1500)),
    base,
    "1 splitters on base can't be swept",
  ],
  BatchesStuck: [
    onBase('open_batches', always(3), 'state="claimed"'),
    onBase('open_batches', always(3), 'state="broadcast"'),
    { ...base, state: 'claimed' },
    '3 batches on base are claimed but not signed',
  ],
  TransactionUnknown: [
    onBase('unknown_seconds', always(301), 'wallet="0xab"'),
    onBase('unknown_seconds', always(300), 'wallet="0xab"'),
    { ...base, wallet: '0xab' },
    'A transaction of 0xab has been neither mined nor lost for 5m 1s',
  ],
  WalletPaused: [
    onBase('wallet_paused', always(1), 'wallet="0xab"'),
    onBase('wallet_paused', always(0), 'wallet="0xab"'),
    { ...base, wallet: '0xab' },
    '0xab on base is paused',
  ],
  SignerMismatch: [
    onBase('signer_failures_total', rising(1), 'wallet="0xab",code="signer_mismatch"'),
    onBase('signer_failures_total', rising(1), 'wallet="0xab",code="signer_unavailable"'),
    { ...base, wallet: '0xab', code: 'signer_mismatch' },
    'The signer of 0xab on base returned a different transaction than requested',
  ],
  GasBudgetUsedUp: [
    onBase('held_payments', always(4), 'reason="gas_budget"'),
    onBase('held_payments', always(4), 'reason="gas_allowance"'),
    { ...base, reason: 'gas_budget' },
    'base: 4 payments expire soon, and their fees are too small for the gas',
  ],
  SettlementHeld: [
    onBase('held_payments', always(4), 'reason="gas_cost",payee="0xab"'),
    onBase('held_payments', always(4), 'reason="gas_budget",payee="0xab"'),
    { ...base, reason: 'gas_cost' },
    'base: payments wait for cheaper gas (gas_cost)',
  ],
  WalletEmptySoon: [
    // Two keepers together spend 0.001 a minute, which is 1.44 a day. The rule uses the lower of the two balances that they report.
    {
      ...onBase('wallet_balance_ether', always(1.4, 400), 'wallet="0xab",instance="a"'),
      ...onBase('wallet_balance_ether', always(1.9, 400), 'wallet="0xab",instance="b"'),
      ...onBase('gas_spent_ether_total', '0+0.0005x400', 'wallet="0xab",instance="a"'),
      ...onBase('gas_spent_ether_total', '0+0.0005x400', 'wallet="0xab",instance="b"'),
    },
    // The alert doesn't fire for these wallets: a refill (0xab) doesn't change the rate of spending, a withdrawal (0xcd) isn't spending, and the
    // low balance belongs to a wallet on another network.
    {
      ...onBase('wallet_balance_ether', '0.1x10 3x400', 'wallet="0xab"'),
      ...onBase('gas_spent_ether_total', '0+0.001x400', 'wallet="0xab"'),
      ...onBase('wallet_balance_ether', '9-0.5x17 0.5x400', 'wallet="0xcd"'),
      ...onBase('gas_spent_ether_total', '0+0.0001x400', 'wallet="0xcd"'),
      ...of('tollkeeper_wallet_balance_ether', 'network="polygon",wallet="0xab"', always(0.1, 400)),
    },
    { ...base, wallet: '0xab' },
    '0xab on base has 1.4 left for gas, less than it spends in a day',
    360,
  ],
  WalletLow: [
    onBase('wallet_balance_ether', always(0.0049), 'wallet="0xab"'),
    onBase('wallet_balance_ether', always(0.005), 'wallet="0xab"'),
    { ...base, wallet: '0xab' },
    '0xab on base has 0.0049 left for gas',
  ],
  SettlementsFail: [
    { ...attempts('insufficient_balance', rising(11)), ...attempts('settled', rising(89)) },
    { ...attempts('insufficient_balance', rising(10)), ...attempts('settled', rising(90)) },
    base,
    'More than 10% of settlements on base fail',
  ],
  BatchesRevert: [
    onBase('batches_total', rising(1), 'outcome="reverted"'),
    onBase('batches_total', rising(1), 'outcome="settled"'),
    base,
    'Batches on base keep reverting',
  ],
  Reorgs: [
    onBase('reorgs_total', rising(1)),
    onBase('reorgs_total', always(1)),
    base,
    'A reorg on base dropped a mined batch',
  ],
  GasExpensive: [
    histogram('tollkeeper_usd_per_payment', 'network="base"', [0.002, 0.004]),
    histogram('tollkeeper_usd_per_payment', 'network="base"', [0.001, 0.002]),
    base,
    'Half of the payments on base cost over 0.003 USD to settle',
  ],
  KeeperLoopErrors: [
    onBase('loop_errors_total', rising(90), 'loop="claim"'),
    onBase('loop_errors_total', rising(5), 'loop="claim"'),
    { ...base, loop: 'claim' },
    'Keeper work on base keeps failing (loop claim)',
  ],
  BadRows: [
    onBase('bad_rows_total', rising(1), 'step="take"'),
    onBase('bad_rows_total', always(1), 'step="take"'),
    { step: 'take' },
    'Some rows could not be processed (step take)',
  ],
}

const minutesOf = (duration: string | undefined) =>
  duration === undefined ? 0 : Number.parseInt(duration, 10) * (duration.endsWith('h') ? 60 : 1)

/**
 * Tests one rule with Prometheus' own `promtool`. The file contains only this rule: promtool would evaluate all rules of a file for each minute of
 * each test. The files are written as JSON, because JSON is valid YAML.
 */
function testRule(alertname: string, tests: object[]): string {
  const folder = mkdtempSync(join(tmpdir(), 'tollkeeper-alerts-'))
  try {
    const write = (name: string, content: object) => {
      const file = join(folder, name)
      writeFileSync(file, JSON.stringify(content))
      return file
    }
    const rules = groups.flatMap((group) => group.rules).filter(({ alert }) => alert === alertname)
    const rule_files = [write('rules.json', { groups: [{ name: 'one', rules }] })]
    const file = write('test.json', { rule_files, evaluation_interval: '1m', tests })
    const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', file], { encoding: 'utf8' })
    return status === 0 ? 'passed' : stdout + stderr
  } finally {
    rmSync(folder, { recursive: true })
  }
}

describe('alerts', () => {
  // promtool checks the grammar of docs/operations/alerts.yml and the template in each annotation.
  test.skipIf(isMissing)("default: Prometheus' own promtool accepts the rules", () => {
    expect(promtool.error).toBeUndefined()
    expect(promtool.stdout + promtool.stderr).toContain(`SUCCESS: ${table.length} rules found`)
    expect(promtool.status).toBe(0)
  })

  test('behavior: this test has a case for each alert', () => {
    expect(Object.keys(cases)).toEqual(table.map(([name]) => name))
  })

  test.skipIf(isMissing).each(table)(
    'behavior: the alert %s fires with its summary once its condition has held for its duration, and doesn’t fire below its threshold',
    (alertname, { severity, impact, for: duration }) => {
      const [fires, quiet, labels, summary, past = 0] = cases[alertname] as Case
      const minutes = minutesOf(duration)
      const over = { eval_time: `${past + minutes + 2}m`, alertname }
      const runbook_url = `docs/runbooks/${alertname}.md`
      const alert = {
        exp_labels: { severity, ...labels },
        exp_annotations: { summary, impact, runbook_url },
      }
      const early = { eval_time: `${minutes - 1}m`, alertname, exp_alerts: [] }
      const group = (input: Series, expected: object[]) => ({
        interval: '1m',
        input_series: Object.entries(input).map(([series, values]) => ({ series, values })),
        alert_rule_test: expected,
      })
      const tests = [
        group(fires, [...(minutes > 0 ? [early] : []), { ...over, exp_alerts: [alert] }]),
        group(quiet, [{ ...over, exp_alerts: [] }]),
      ]
      expect(testRule(alertname, tests)).toBe('passed')
    },
  )

  test.skipIf(isMissing)(
    'behavior: the external label `runbooks` of Prometheus sets the address of all runbooks',
    () => {
      const series = [{ series: 'up{job="tollkeeper-api",instance="a"}', values: always(0) }]
      const { severity, impact } = new Map(table).get('ApiDown') as (typeof table)[0][1]
      const group = (external_labels: Record<string, string>, runbook_url: string) => ({
        interval: '1m',
        input_series: series,
        external_labels,
        alert_rule_test: [
          {
            eval_time: '5m',
            alertname: 'ApiDown',
            exp_alerts: [
              {
                exp_labels: { severity, job: 'tollkeeper-api', instance: 'a' },
                exp_annotations: { summary: "a doesn't answer", impact, runbook_url },
              },
            ],
          },
        ],
      })
      const books = 'https://gateway.example/runbooks'
      const tests = [group({ runbooks: books }, `${books}/ApiDown.md`), group({}, 'docs/runbooks/ApiDown.md')]
      expect(testRule('ApiDown', tests)).toBe('passed')
    },
  )

  test.each(table)(
    'default: %s has a severity, an impact and a runbook',
    (name, { severity, impact, runbook_url }) => {
      expect(['page', 'ticket']).toContain(severity)
      expect(impact).not.toBe('')
      expect(runbook_url).toBe(
        `{{ with $externalLabels.runbooks }}{{ . }}{{ else }}docs/runbooks{{ end }}/${name}.md`,
      )
    },
  )

  test.each(table)('behavior: %s uses only metrics and labels that exist', (_, { expr, summary }) => {
    const known = knownMetrics()
    const names = metricsIn(expr)
    expect(names).not.toEqual([])
    for (const name of names) expect([...known.keys()]).toContain(name)
    const labels = new Set(names.flatMap((name) => [...(known.get(name) ?? [])]))
    for (const label of labelsIn(expr)) expect([...labels]).toContain(label)
    for (const [, label] of summary.matchAll(/\$labels\.(\w+)/g)) expect([...labels]).toContain(label)
  })

  test('behavior: the helper of this test finds the metrics and labels in an expression', () => {
    const expr =
      'sum by (route, code) (rate(up_total{job!~"a|b",status="500"}[5m])) / count(other == 0) > 0.5'
    expect(metricsIn(expr)).toEqual(['up_total', 'other'])
    expect(labelsIn(expr)).toEqual(['job', 'status', 'route', 'code'])
  })
})
