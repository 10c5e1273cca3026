import type { ServerResponse } from 'node:http'
import { Webhook } from 'standardwebhooks'
import { startWebhookReceiver } from './webhookReceiver.ts'

/** The `data` of a request to a hook. */
export type Asked = {
  moment: 'offer' | 'payment'
  source: string
  providerId: string
  endpointId: string | null
  payer: string | null
  amount: string
  usdc: string
  network: string
  resource: string
  request: { method: string; url: string; headers: Record<string, string> } | null
}

/** Answers one request: a decision as JSON, or anything else through `response`. */
export type Decide = (asked: Asked, response: ServerResponse) => unknown

/** Starts a seller's hook: a real HTTP server that answers with `state.decide`, which accepts by default. */
export async function startHook() {
  const state: { decide: Decide } = { decide: () => ({ accept: true }) }
  const receiver = await startWebhookReceiver((response, count) => {
    const data = readData(receiver.received[count - 1]?.body)
    const decision = state.decide(data, response)
    if (decision === undefined) return
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(decision))
  })
  return {
    ...receiver,
    state,
    /** Returns the requests so far. */
    asked: () => receiver.received.map(({ body }) => readData(body)),
    /** Clears the requests so far. */
    clear: () => receiver.received.splice(0),
    /** Checks the signatures of the requests, and returns their ids. */
    ids: (secret: string) =>
      receiver.received.map(({ body, headers }) => {
        new Webhook(secret).verify(body, headers as Record<string, string>)
        return String(headers['webhook-id'])
      }),
  }
}

function readData(body = '{}'): Asked {
  return (JSON.parse(body) as { data: Asked }).data
}
