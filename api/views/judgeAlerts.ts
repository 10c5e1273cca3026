import { type Alert, alerts } from '#process/alerts'

/** A metric's value as it is now, by the name that the alerts' rules know it by. */
export type Sample = { metric: string; labels: Record<string, string>; value: number }

export type FiringAlert = {
  name: string
  severity: Alert['severity']
  /** How long it must hold until Prometheus tells somebody; null: at once. */
  for: string | null
  summary: string
  action: string
}

/** A rule that one look can judge: rates, and changes over time, are Prometheus' own. */
const comparison = /^(\w+)(?:\{(\w+)="([^"]*)"\})? (>|<|==) (\d+(?:\.\d+)?)$/

/** The alerts whose rules hold for these samples just now: what is urgent comes first. */
export function judgeAlerts(samples: readonly Sample[]): FiringAlert[] {
  return Object.entries(alerts)
    .flatMap(([name, alert]) =>
      samples
        .filter((sample) => holds(alert.expr, sample))
        .map((sample) => ({
          name,
          severity: alert.severity,
          for: alert.for ?? null,
          summary: fillIn(alert.summary, sample),
          action: alert.action,
        })),
    )
    .toSorted((a, b) => a.severity.localeCompare(b.severity))
}

/** The metrics that some alert compares with a number. */
export const judgedMetrics: ReadonlySet<string> = new Set(
  Object.values(alerts).flatMap(({ expr }) => comparison.exec(expr)?.[1] ?? []),
)

function holds(expr: string, { metric, labels, value }: Sample): boolean {
  const [, name, label, wanted, operator, threshold] = comparison.exec(expr) ?? []
  if (name !== metric || (label !== undefined && labels[label] !== wanted)) return false
  const limit = Number(threshold)
  return operator === '>' ? value > limit : operator === '<' ? value < limit : value === limit
}

/** Fills in a template of Prometheus, as far as our alerts use them. */
function fillIn(template: string, { labels, value }: Sample): string {
  return template
    .replace(/\{\{ \$labels\.(\w+) \}\}/g, (_, name: string) => labels[name] ?? '')
    .replace('{{ $value | humanizeDuration }}', `${Math.round(value / 60)} min`)
    .replace('{{ $value }}', String(value))
}
