import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import type { SyntaxNode } from '@lezer/common'
import { parser } from '@prometheus-io/lezer-promql'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { createMetrics } from '#keeper/metrics'
import { openDatabase } from '#ledger/database'
import { collectApiState, createApiMetrics } from './metrics.ts'

const path = new URL('../docs/operations/alerts.yml', import.meta.url)

type Rule = {
  alert: string
  expr: string
  for?: string
  labels: { severity: string }
  annotations: { summary: string; action: string }
}
const file = parse(readFileSync(path, 'utf8')) as { groups: { name: string; rules: Rule[] }[] }
const rules = file.groups.flatMap(({ rules }) => rules)

/** Metric names with their labels, as the processes register them. */
function knownMetrics(): Map<string, Set<string>> {
  const api = createApiMetrics()
  // Never connected to: nothing is collected here.
  const database = openDatabase({ url: 'postgres://127.0.0.1:1/none', applicationName: 'test' })
  collectApiState(api, { database, networks: [] })
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

/** What stands in an expression under a node's name; throws where it is no PromQL. */
function find(expr: string, names: string[]): string[] {
  const found: string[] = []
  const visit = (node: SyntaxNode): void => {
    if (node.type.isError) throw new Error(`not PromQL at ${node.from}: ${expr}`)
    if (names.includes(node.name)) found.push(expr.slice(node.from, node.to))
    for (let child = node.firstChild; child; child = child.nextSibling) visit(child)
  }
  visit(parser.parse(expr).topNode)
  return found
}

const promtool = spawnSync('promtool', ['check', 'rules', path.pathname], { encoding: 'utf8' })
if (promtool.error) {
  process.stderr.write(
    "\nLEFT OUT: the alert rules before Prometheus' own tool: no promtool in the PATH (Debian: apt-get install prometheus)\n\n",
  )
}

describe('alerts.yml', () => {
  test.skipIf(promtool.error)("default: Prometheus' own promtool accepts it", () => {
    expect(promtool.stdout + promtool.stderr).toContain(`SUCCESS: ${rules.length} rules found`)
    expect(promtool.status).toBe(0)
  })

  test.each(rules)(
    "default: $alert parses by Prometheus' grammar",
    ({ expr, labels, annotations, for: wait }) => {
      expect(find(expr, ['Identifier']).length).toBeGreaterThan(0)
      expect(wait ?? '1m').toMatch(/^\d+[smh]$/)
      expect(['page', 'ticket']).toContain(labels.severity)
      expect(annotations).toEqual({ summary: expect.any(String), action: expect.any(String) })
    },
  )

  test.each(rules)('behavior: $alert asks for metrics and labels that exist', ({ expr, annotations }) => {
    const known = knownMetrics()
    const names = find(expr, ['Identifier'])
    for (const name of names) expect([...known.keys()]).toContain(name)
    const labels = new Set(names.flatMap((name) => [...(known.get(name) ?? [])]))
    for (const label of find(expr, ['LabelName'])) expect([...labels]).toContain(label)
    for (const [, label] of annotations.summary.matchAll(/\$labels\.(\w+)/g))
      expect([...labels]).toContain(label)
  })

  test('error: what is no PromQL is refused', () => {
    expect(() => find('sum(rate(up[5m])', ['Identifier'])).toThrow('not PromQL')
  })
})
