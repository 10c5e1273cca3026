import { Hono } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import { Webhook, WebhookVerificationError } from 'standardwebhooks'
import type { Asked, decideBy } from './rules.ts'

type Question = {
  data: {
    payer: Asked['payer'] | null
    request: { method: string; url: string; headers: Record<string, string> } | null
  }
}

/**
 * Creates the hook that a gateway calls with a signed question about each payment. The hook checks the signature, and decides by the same rules as
 * the middleware.
 */
export function createHook(secret: string, decide: ReturnType<typeof decideBy>): Hono {
  const verifier = new Webhook(secret)
  const app = new Hono()

  app.post('/before-accept', bodyLimit({ maxSize: 65_536 }), async (c) => {
    // The signature covers the raw body, so verify the text before parsing it.
    const body = await c.req.text()
    let question: Question
    try {
      question = verifier.verify(body, c.req.header()) as Question
    } catch (error) {
      if (error instanceof WebhookVerificationError) return c.text('signature refused', 401)
      throw error
    }
    const { payer, request } = question.data
    const headers = new Headers(request?.headers)
    return c.json(
      await decide({
        payer: payer ?? undefined,
        request: { method: request?.method ?? '', url: request?.url ?? '', headers },
      }),
    )
  })
  return app
}
