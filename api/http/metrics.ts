import { Counter, Histogram, Registry } from 'prom-client'

/** Prometheus metrics of one api process; docs/operations/alerts.yml holds the rules on them. */
export function createApiMetrics() {
  const registry = new Registry()
  const shared = { registers: [registry] }
  return {
    registry,
    requests: new Histogram({
      ...shared,
      name: 'tollkeeper_api_request_seconds',
      help: 'Time to answer a request, by route and status',
      labelNames: ['method', 'route', 'status'],
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
    }),
    verifications: new Counter({
      ...shared,
      name: 'tollkeeper_api_verifications_total',
      help: 'Verifications, by result: ok, or the code of the refusal',
      labelNames: ['result'],
    }),
    challenges: new Counter({
      ...shared,
      name: 'tollkeeper_api_challenges_total',
      help: 'Challenges asked for, by result: ok, or the code of the refusal',
      labelNames: ['result'],
    }),
    webhookAttempts: new Counter({
      ...shared,
      name: 'tollkeeper_api_webhook_attempts_total',
      help: 'Webhook messages sent, by outcome: delivered, failed (sent again later), exhausted',
      labelNames: ['outcome'],
    }),
    mails: new Counter({
      ...shared,
      name: 'tollkeeper_api_mails_total',
      help: 'Mails to providers, by outcome: sent, failed (sent again later), exhausted',
      labelNames: ['outcome'],
    }),
    badRows: new Counter({
      ...shared,
      name: 'tollkeeper_api_bad_rows_total',
      help: 'Rows that background work could not process and will try again later, by step',
      labelNames: ['step'],
    }),
    backgroundErrors: new Counter({
      ...shared,
      name: 'tollkeeper_api_background_errors_total',
      help: 'Steps of background work that failed and will be taken again',
      labelNames: ['loop'],
    }),
  }
}

export type ApiMetrics = ReturnType<typeof createApiMetrics>
