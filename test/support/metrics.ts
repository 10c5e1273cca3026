import { createApiMetrics } from '@tollkeeper/api/http/metrics'
import { collectApiState } from '@tollkeeper/api/stateMetrics'
import { createMetrics } from '@tollkeeper/keeper/settings/metrics'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'

/** Returns the metric names with their labels, as the processes register them. */
export function knownMetrics(): Map<string, Set<string>> {
  const api = createApiMetrics()
  // No one connects to this database, because the metrics are only registered here and never collected.
  const database = openDatabase({ url: 'postgres://127.0.0.1:1/none', applicationName: 'test' })
  collectApiState(api, {
    sql: database,
    tabDatabase: onOnePostgres(database),
    networks: [],
    tabBudget: null,
    issuer: 'https://gateway.example',
  })
  // Series that Prometheus itself adds: `up` for each target, and one for each alert with the labels of its
  // expression.
  const known = new Map([
    ['up', new Set(['job', 'instance'])],
    ['ALERTS', new Set(['alertname', 'alertstate', 'severity', 'job', 'instance', 'network'])],
  ])
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

/**
 * Returns the metrics that an expression reads: every word that is outside of braces and lists, and isn't followed by a parenthesis.
 */
export const metricsIn = (expr: string) =>
  withoutLabels(expr)
    .match(/\b[A-Za-z_][A-Za-z0-9_]*\b(?!\s*\()/g)
    ?.filter((word) => !['by', 'without', 'or', 'on', 'bool'].includes(word)) ?? []
/** Returns the labels by which an expression selects or groups. */
export const labelsIn = (expr: string) => [
  ...[...expr.matchAll(/([a-z_]+)\s*(?:=~|!~|!=|=)\s*"/g)].map(([, label]) => label),
  ...[...expr.matchAll(/\b(?:by|without|on)\s*\(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(/,\s*/)),
]
const withoutLabels = (expr: string) =>
  expr.replaceAll(/\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on)\s*\([^)]*\)|==|\b[\d.]+\b/g, ' ')
