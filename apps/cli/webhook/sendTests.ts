import { type GatewayFlags, ownPath, request } from '../provider/gateway.ts'
import { CliError, exitStatus } from '../terminal/cliError.ts'
import { printable, printJson, printLines } from '../terminal/output.ts'

export type WebhookTestFlags = GatewayFlags & { webhook?: string }

type Webhook = { webhookId: string; url: string }

type TestResult = { delivered: boolean; status: number | null; durationMs: number; error?: string }

/** Sends a test event to each of the provider's webhooks, one after the other. @returns the exit status. */
export async function sendTests({ webhook: wanted, ...flags }: WebhookTestFlags): Promise<number> {
  const path = ownPath(flags, 'webhooks')
  const { webhooks } = (await request(flags, { method: 'GET', path })) as { webhooks: Webhook[] }
  const chosen = webhooks.filter(({ webhookId }) => wanted === undefined || webhookId === wanted)
  if (chosen.length === 0)
    throw new CliError(
      'unknown_webhook',
      wanted === undefined
        ? 'No webhook is registered. Register one: `tollkeeper provider webhook --url https://…`'
        : `--webhook: there is no webhook ${JSON.stringify(wanted)}. List them: \`tollkeeper provider webhook list\``,
    )
  const tests: (Webhook & TestResult)[] = []
  for (const { webhookId, url } of chosen) {
    const asked = { path: ownPath(flags, 'webhooks', webhookId, 'test'), status: 200 }
    const result = (await request(flags, asked)) as TestResult
    tests.push({ webhookId, url, ...result })
    if (!flags.json) printLines(describe(webhookId, url, result))
  }
  if (flags.json) printJson({ tests })
  return tests.every(({ delivered }) => delivered) ? exitStatus.ok : exitStatus.unwell
}

function describe(
  webhookId: string,
  url: string,
  { delivered, status, durationMs, error = '' }: TestResult,
): string {
  const how = status === null ? 'no answer' : `HTTP ${status}`
  const to = `${webhookId} ${url}: ${delivered ? 'delivered' : 'not delivered'}, ${how} in ${durationMs} ms`
  return printable(delivered ? to : `${to} (${error}). The receiver must return 2xx within ten seconds`)
}
