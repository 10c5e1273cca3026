import { Counter, Histogram, Registry } from 'prom-client'

/** Creates the Prometheus metrics of one api process; docs/operations/alerts.yml has the rules on them. */
export function createApiMetrics() {
  const registry = new Registry()
  const shared = { registers: [registry] }
  const metrics = {
    registry,
    requests: new Histogram({
      ...shared,
      name: 'tollkeeper_api_request_seconds',
      help: 'Seconds to answer a request, by route and status',
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
      help: 'Requested challenges, by result: ok, or the code of the refusal',
      labelNames: ['result'],
    }),
    refunds: new Counter({
      ...shared,
      name: 'tollkeeper_api_refunds_total',
      help: 'Requested refunds, by result: ok, or the code of the refusal',
      labelNames: ['result'],
    }),
    webhookAttempts: new Counter({
      ...shared,
      name: 'tollkeeper_api_webhook_attempts_total',
      help: 'Webhook messages sent, by outcome: delivered, failed (retried later), exhausted',
      labelNames: ['outcome'],
    }),
    hookQuestions: new Counter({
      ...shared,
      name: 'tollkeeper_api_hook_questions_total',
      help: "Decisions of providers' hooks about payments, by outcome: the decision, cached, failed, paused or busy",
      labelNames: ['outcome'],
    }),
    mails: new Counter({
      ...shared,
      name: 'tollkeeper_api_mails_total',
      help: 'Mails to providers, by outcome: sent, failed (retried later), exhausted',
      labelNames: ['outcome'],
    }),
    badRows: new Counter({
      ...shared,
      name: 'tollkeeper_api_bad_rows_total',
      help: 'Rows that background work could not process and retries later, by step',
      labelNames: ['step'],
    }),
    backgroundErrors: new Counter({
      ...shared,
      name: 'tollkeeper_api_background_errors_total',
      help: 'Steps of background work that failed and are retried',
      labelNames: ['loop'],
    }),
  }
  // Prometheus sees no increase in a series whose first value isn't 0, so without these zeros the first event would fire no alert.
  for (const outcome of ['delivered', 'failed', 'exhausted']) metrics.webhookAttempts.inc({ outcome }, 0)
  for (const outcome of ['sent', 'failed', 'exhausted']) metrics.mails.inc({ outcome }, 0)
  for (const result of ['ok', 'gas_not_covered']) metrics.refunds.inc({ result }, 0)
  return metrics
}

export type ApiMetrics = ReturnType<typeof createApiMetrics>
