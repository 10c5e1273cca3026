import { spawnSync } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import { type Alert, alerts } from '#process/alerts'
import { knownMetrics, labelsIn, metricsIn } from '../test/support/metrics.ts'

const path = new URL('../docs/operations/alerts.yml', import.meta.url)

const table = Object.entries<Alert>(alerts)

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
