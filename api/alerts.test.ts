import { spawnSync } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import { createMetrics } from '#keeper/metrics'
import { openDatabase } from '#ledger/database'
import { type Alert, alerts } from '#process/alerts'
import { collectApiState, createApiMetrics } from './metrics.ts'

const path = new URL('../docs/operations/alerts.yml', import.meta.url)

const table = Object.entries<Alert>(alerts)

/** Metric names with their labels, as the processes register them. */
function knownMetrics(): Map<string, Set<string>> {
  const api = createApiMetrics()
  // Never connected to: nothing is collected here.
  const database = openDatabase({ url: 'postgres://127.0.0.1:1/none', applicationName: 'test' })
  collectApiState(api, { sql: database, networks: [] })
  const known = new Map([['up', new Set(['job', 'instance'])]])
  for (const registry of [api.registry, createMetrics().registry]) {
    for (const metric of registry.getMetricsAsArray()) {
      const labels = new Set([
        'instance',
        'job',
        ...('labelNames' in metric ? (metric.labelNames as string[]) : []),
      ])
      known.set(metric.name, labels)
      for (const suffix of ['_bucket', '_count', '_sum'])
        known.set(metric.name + suffix, new Set([...labels, 'le']))
    }
  }
  return known
}

/** The metrics that an expression reads: every word of it that is followed by no parenthesis, outside of braces and lists. */
const metricsIn = (expr: string) =>
  withoutLabels(expr)
    .match(/\b[a-z_]+\b(?!\s*\()/g)
    ?.filter((word) => !['by', 'without'].includes(word)) ?? []
/** The labels by which it selects or groups. */
const labelsIn = (expr: string) => [
  ...[...expr.matchAll(/([a-z_]+)\s*(?:=~|!~|!=|=)\s*"/g)].map(([, label]) => label),
  ...[...expr.matchAll(/\b(?:by|without)\s*\(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(/,\s*/)),
]
const withoutLabels = (expr: string) =>
  expr.replaceAll(/\{[^}]*\}|\[[^\]]*\]|\b(?:by|without)\s*\([^)]*\)|==|[\d.]+/g, ' ')

const promtool = spawnSync('promtool', ['check', 'rules', path.pathname], { encoding: 'utf8' })
if (promtool.error) {
  process.stderr.write(
    "\nLEFT OUT: the alert rules before Prometheus' own tool: no promtool in the PATH (Debian: apt-get install prometheus)\n\n",
  )
}

describe('alerts', () => {
  // Its grammar, and each annotation's template.
  test.skipIf(promtool.error && !process.env.CI)("default: Prometheus' own promtool accepts it", () => {
    expect(promtool.error).toBeUndefined()
    expect(promtool.stdout + promtool.stderr).toContain(`SUCCESS: ${table.length} rules found`)
    expect(promtool.status).toBe(0)
  })

  test.each(table)('behavior: %s asks for metrics and labels that exist', (_, { expr, summary }) => {
    const known = knownMetrics()
    const names = metricsIn(expr)
    expect(names).not.toEqual([])
    for (const name of names) expect([...known.keys()]).toContain(name)
    const labels = new Set(names.flatMap((name) => [...(known.get(name) ?? [])]))
    for (const label of labelsIn(expr)) expect([...labels]).toContain(label)
    for (const [, label] of summary.matchAll(/\$labels\.(\w+)/g)) expect([...labels]).toContain(label)
  })

  test('behavior: metrics and labels are found in an expression', () => {
    const expr =
      'sum by (route, code) (rate(up_total{job!~"a|b",status="500"}[5m])) / count(other == 0) > 0.5'
    expect(metricsIn(expr)).toEqual(['up_total', 'other'])
    expect(labelsIn(expr)).toEqual(['job', 'status', 'route', 'code'])
  })
})
