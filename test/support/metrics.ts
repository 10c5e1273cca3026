import { createApiMetrics } from '@tollkeeper/api/http/metrics'
import { collectApiState } from '@tollkeeper/api/stateMetrics'
import { createMetrics } from '@tollkeeper/keeper/settings/metrics'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'

/** Metric names with their labels, as the processes register them. */
export function knownMetrics(): Map<string, Set<string>> {
  const api = createApiMetrics()
  // Never connected to: nothing is collected here.
  const database = openDatabase({ url: 'postgres://127.0.0.1:1/none', applicationName: 'test' })
  collectApiState(api, { sql: database, tabDatabase: onOnePostgres(database), networks: [], tabBudget: null })
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
export const metricsIn = (expr: string) =>
  withoutLabels(expr)
    .match(/\b[a-z_][a-z0-9_]*\b(?!\s*\()/g)
    ?.filter((word) => !['by', 'without', 'or'].includes(word)) ?? []
/** The labels by which it selects or groups. */
export const labelsIn = (expr: string) => [
  ...[...expr.matchAll(/([a-z_]+)\s*(?:=~|!~|!=|=)\s*"/g)].map(([, label]) => label),
  ...[...expr.matchAll(/\b(?:by|without)\s*\(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(/,\s*/)),
]
const withoutLabels = (expr: string) =>
  expr.replaceAll(/\{[^}]*\}|\[[^\]]*\]|\b(?:by|without)\s*\([^)]*\)|==|\b[\d.]+\b/g, ' ')
