import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { json } from 'node:stream/consumers'
import { reservePort } from '@tollkeeper/runtime/port'
import { describe, expect, onTestFinished, test } from 'vitest'
import { parse } from 'yaml'
import { knownMetrics, labelsIn, metricsIn } from '../support/metrics.ts'
import { killAll, root, runCommand } from '../support/processes.ts'
import { until } from '../support/until.ts'

const script = join(root, 'deploy/alertmanager.sh')
const source = join(root, 'deploy/alertmanager.yml')
const read = (path: string) => readFileSync(join(root, path), 'utf8')

/** Debian installs the program under the second name. */
const program = ['alertmanager', 'prometheus-alertmanager'].find(
  (name) => spawnSync(name, ['--version']).status === 0,
)
const isMissing = program === undefined || spawnSync('amtool', ['--version']).status !== 0
if (isMissing) {
  const missing = 'no amtool and alertmanager in the PATH (Debian: apt-get install prometheus-alertmanager)'
  if (process.env.CI) throw new Error(`Alertmanager's configuration can't be tested: ${missing}`)
  process.stderr.write(`\nLEFT OUT: Alertmanager: ${missing}\n\n`)
}

function createFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tollkeeper-alertmanager-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  return folder
}

/** Writes the configuration for an environment, as the container does. */
function render(env: Record<string, string>, from = source) {
  const target = join(createFolder(), 'alertmanager.yml')
  const { status, stderr } = spawnSync('sh', [script, from, target, 'true'], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, ...env },
  })
  return { status, stderr, target, config: () => parse(readFileSync(target, 'utf8')) as Config }
}

type Matched = { source_matchers: string[]; target_matchers: string[]; equal?: string[] }
type Config = { route: { receiver: string }; inhibit_rules: Matched[]; receivers: object[] }

const mail = { ALERT_MAIL_TO: 'ops@mail.example', MAIL_FROM: 'Gateway <gateway@mail.example>' }

describe('receivers', () => {
  test('default: notifies no one if there is no receiver, and logs which variables to set', () => {
    const { status, stderr, config } = render({ ALERT_WEBHOOK_URL: '', ALERT_MAIL_TO: '' })
    expect([status, stderr]).toEqual([
      0,
      'No one is called when an alert fires. Set ALERT_WEBHOOK_URL or ALERT_MAIL_TO in .env.\n',
    ])
    expect(config()).toEqual(parse(read('deploy/alertmanager.yml')))
    expect(config().route.receiver).toBe('nobody')
  })

  test('args: accepts a webhook, mail, or both, with any characters in URL and password', () => {
    const webhook = 'https://hook.example/a"b\\c?d=%22'
    expect(render({ ALERT_WEBHOOK_URL: webhook }).config()).toMatchObject({
      route: { receiver: 'operator' },
      receivers: [
        { name: 'nobody' },
        { name: 'operator', webhook_configs: [{ url: webhook, send_resolved: true }] },
      ],
    })
    const both = render({
      ...mail,
      ALERT_WEBHOOK_URL: webhook,
      SMTP_URL: 'smtps://us%40er:p%3A%22%5C%25w@mail.example',
    }).config()
    expect(both.receivers[1]).toEqual({
      name: 'operator',
      webhook_configs: [{ url: webhook, send_resolved: true }],
      email_configs: [
        {
          to: mail.ALERT_MAIL_TO,
          from: mail.MAIL_FROM,
          smarthost: 'mail.example:465',
          send_resolved: true,
          auth_username: 'us@er',
          auth_password: 'p:"\\%w',
        },
      ],
    })
    for (const [url, smarthost] of [
      ['smtp://mail.example', 'mail.example:587'],
      ['smtp://mail.example:2525/?pool=true', 'mail.example:2525'],
    ]) {
      const [, operator] = render({ ...mail, SMTP_URL: url ?? '' }).config().receivers
      expect(operator).toMatchObject({ email_configs: [{ smarthost }] })
      expect(JSON.stringify(operator)).not.toContain('auth_')
    }
  })

  test('error: names the missing settings of mail, and doesn’t start without them', () => {
    for (const [env, message] of [
      [{ ...mail }, /SMTP_URL: ALERT_MAIL_TO needs a mail server/],
      [
        { ...mail, MAIL_FROM: '', SMTP_URL: 'smtp://mail.example' },
        /MAIL_FROM: ALERT_MAIL_TO needs a sender/,
      ],
      [{ ...mail, SMTP_URL: 'smtp://a:p%C3%A9@mail.example' }, /only ASCII in user and password/],
    ] as const) {
      const { status, stderr } = render(env)
      expect(status).not.toBe(0)
      expect(stderr).toMatch(message)
    }
  })
})

describe('muting', () => {
  const { groups } = parse(read('docs/operations/alerts.yml')) as {
    groups: { rules: { alert: string; expr: string; labels: { severity: string } }[] }[]
  }
  const rules = new Map(groups.flatMap(({ rules }) => rules.map((rule) => [rule.alert, rule])))
  const namesIn = (matchers: string[]) =>
    matchers.flatMap((matcher) => /^alertname=~?"(.*)"$/.exec(matcher)?.[1]?.split('|') ?? [`not ${matcher}`])
  const inhibitions = (parse(read('deploy/alertmanager.yml')) as Config).inhibit_rules.map((rule) => ({
    sources: namesIn(rule.source_matchers),
    targets: namesIn(rule.target_matchers),
    equal: rule.equal ?? [],
  }))

  /** Returns whether an alert has a label. An aggregation keeps only the labels that it names. */
  function hasLabel(alert: string, label: string): boolean {
    const { expr = '' } = rules.get(alert) ?? {}
    const [, kept] = /^(?:sum|max|min) by \(([^)]*)\)/.exec(expr) ?? []
    if (kept !== undefined) return kept.split(', ').includes(label)
    const known = knownMetrics()
    return metricsIn(expr).some((name) => known.get(name)?.has(label)) || labelsIn(expr).includes(label)
  }

  test('behavior: only alerts that page someone mute other alerts, and only by labels that both alerts have', () => {
    expect(inhibitions.length).toBeGreaterThan(5)
    for (const { sources, targets, equal } of inhibitions) {
      for (const name of [...sources, ...targets]) {
        expect([...rules.keys()]).toContain(name)
        for (const label of equal) expect([name, label, hasLabel(name, label)]).toEqual([name, label, true])
      }
      for (const name of sources) expect([name, rules.get(name)?.labels.severity]).toEqual([name, 'page'])
      expect(targets.filter((name) => sources.includes(name))).toEqual([])
    }
  })

  test('behavior: no two alerts can mute each other', () => {
    const pairs = inhibitions.flatMap(({ sources, targets }) =>
      sources.flatMap((from) => targets.map((to) => `${from} ${to}`)),
    )
    const mutual = pairs.filter((pair) => pairs.includes(pair.split(' ').toReversed().join(' ')))
    expect(mutual).toEqual([])
  })
})

describe.skipIf(isMissing)('Alertmanager itself', () => {
  test('default: amtool accepts the configuration of each environment', () => {
    for (const env of [
      {},
      { ALERT_WEBHOOK_URL: 'https://hook.example/' },
      { ...mail, SMTP_URL: 'smtps://a:b@mail.example', ALERT_WEBHOOK_URL: 'https://hook.example/"\\' },
    ]) {
      const { target } = render(env)
      const { status, stdout, stderr } = spawnSync('amtool', ['check-config', target], { encoding: 'utf8' })
      expect([status, stdout + stderr]).toEqual([0, expect.stringContaining('SUCCESS')])
    }
  })

  test('behavior: calls the webhook with the runbook, and mutes alerts that are only consequences of another alert', async () => {
    const called: { alerts: { labels: Record<string, string>; annotations: Record<string, string> }[] }[] = []
    const hook = createServer(async (request, response) => {
      called.push((await json(request)) as (typeof called)[0])
      response.end()
    }).listen(0, '127.0.0.1')
    onTestFinished(() => void hook.close())
    await once(hook, 'listening')

    // Only the waiting time is shorter than in production.
    const quick = join(createFolder(), 'alertmanager.yml')
    writeFileSync(quick, readFileSync(source, 'utf8').replaceAll(/group_wait: \w+/g, 'group_wait: 0s'))
    const { port } = hook.address() as AddressInfo
    const { target } = render({ ALERT_WEBHOOK_URL: `http://127.0.0.1:${port}/` }, quick)
    const own = await reservePort()
    const flags = [`--config.file=${target}`, `--storage.path=${createFolder()}`, '--cluster.listen-address=']
    const running = runCommand([program ?? '', ...flags, `--web.listen-address=127.0.0.1:${own}`], {})
    onTestFinished(() => killAll(running))
    await running.line(/Listening/)

    const api = `http://127.0.0.1:${own}/api/v2/alerts`
    const send = async (...alerts: Record<string, string>[]) => {
      const body = alerts.map((labels) => ({
        labels,
        annotations: { runbook_url: `/${labels.alertname}.md` },
      }))
      const headers = { 'content-type': 'application/json' }
      expect((await fetch(api, { method: 'POST', headers, body: JSON.stringify(body) })).status).toBe(200)
    }
    const states = async () => {
      const alerts = (await (await fetch(api)).json()) as {
        labels: { alertname: string; network: string }
        status: { state: string }
      }[]
      return alerts
        .map(({ labels, status }) => `${labels.alertname} ${labels.network} ${status.state}`)
        .sort()
    }
    const page = { severity: 'page' }
    await send({ alertname: 'IndexStale', network: 'base', ...page })
    await until('the webhook is called', async () => called.length > 0)
    expect(called[0]?.alerts).toMatchObject([
      { labels: { alertname: 'IndexStale' }, annotations: { runbook_url: '/IndexStale.md' } },
    ])
    await send(
      { alertname: 'QueueTooOld', network: 'base', ...page },
      { alertname: 'QueueTooOld', network: 'polygon', ...page },
      { alertname: 'IndexNotTrusted', network: 'base', ...page },
    )
    const expected = [
      'IndexNotTrusted base suppressed',
      'IndexStale base active',
      'QueueTooOld base suppressed',
      'QueueTooOld polygon active',
    ]
    await until('all have their states', async () => `${await states()}` === `${expected}`)
    await until('the webhook is called for the other network', async () => called.length > 1)
    const networks = called.flatMap(({ alerts }) =>
      alerts.map(({ labels }) => `${labels.alertname} ${labels.network}`),
    )
    expect(networks).toEqual(['IndexStale base', 'QueueTooOld polygon'])
  })
})

const hasPromtool = spawnSync('promtool', ['--version']).status === 0

test.skipIf(!hasPromtool && !process.env.CI)(
  'default: Prometheus accepts its configuration, which names the rules, Alertmanager and the address of the runbooks',
  () => {
    const folder = createFolder()
    cpSync(join(root, 'deploy/prometheus.yml'), join(folder, 'prometheus.yml'))
    cpSync(join(root, 'docs/operations/alerts.yml'), join(folder, 'alerts.yml'))
    const { status, stderr } = spawnSync('promtool', ['check', 'config', join(folder, 'prometheus.yml')], {
      encoding: 'utf8',
    })
    expect([status, stderr]).toEqual([0, ''])
    const config = parse(read('deploy/prometheus.yml'))
    const { services } = parse(read('compose.yaml'), { merge: true })
    expect(config).toMatchObject({
      global: { external_labels: { runbooks: expect.stringMatching(/^\$\{RUNBOOKS_URL\}$/) } },
      rule_files: ['alerts.yml'],
      alerting: { alert_relabel_configs: [{ regex: 'runbooks', action: 'labeldrop' }] },
    })
    const [{ dns_sd_configs }] = config.alerting.alertmanagers
    expect(Object.keys(services)).toContain(dns_sd_configs[0].names[0])
    expect(services.prometheus.environment.RUNBOOKS_URL).toMatch(
      /^\$\{RUNBOOKS_URL:-https:\/\/\$\{GATEWAY_HOST:\?\}\/runbooks\}$/,
    )
  },
)
