import { createRoute, z } from '@hono/zod-openapi'
import type { SalesSwitch } from '@tollkeeper/ledger/registry/salesStop'
import type { App } from '../http/app.ts'
import { gatewayDocument } from '../http/document.ts'
import { jsonAnswer } from '../http/problems.ts'
import { salesState, salesStateOf } from '../http/salesState.ts'
import type { GatewaySettings } from '../http/settings.ts'
import * as wire from '../http/wire.ts'
import { writerOf } from '../http/writer.ts'
import type { Mailer } from '../notifications/mailer.ts'
import type { GatewayNetworks } from '../registry/networks.ts'

export const home = z
  .object({
    name: z.literal('Tollkeeper'),
    gatewayUrl: z.url().openapi({ description: 'URL that clients and middleware use as `gatewayUrl`' }),
    networks: z.array(z.object({ network: wire.networkName, testnet: wire.testnet })).openapi({
      description: 'Networks on which it can be paid; the first one is used if a request names none',
    }),
    registration: z
      .enum(['open', 'token', 'closed'])
      .openapi({ description: 'Who may register as a provider' }),
    sales: salesState.nullable().openapi({ description: 'Null if the database does not answer' }),
    mail: z
      .boolean()
      .openapi({ description: 'Whether it notifies providers of failures by mail (`SMTP_URL`)' }),
    links: z.record(z.string(), z.url()),
  })
  .openapi('Home')

const write = writerOf(home)

const getHome = createRoute({
  method: 'get',
  path: '/',
  summary: 'Describe this gateway and where its interfaces are',
  description: 'Browsers are redirected to the dashboard.',
  tags: ['Operations'],
  responses: {
    200: jsonAnswer('The gateway', home),
    302: { description: 'Redirect to the dashboard, for clients that accept text/html' },
  },
})

export type HomeRouteOptions = {
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'issuer' | 'registration'>
  /** Null: this gateway sends no mail. */
  mailer: Mailer | null
  sales: SalesSwitch
}

export function addHomeRoute(app: App, { networks, settings, mailer, sales }: HomeRouteOptions) {
  const { issuer, registration } = settings
  const body = {
    name: 'Tollkeeper' as const,
    gatewayUrl: issuer,
    networks: [...networks.byChainId.values()].map(({ served: { network } }) => ({
      network: network.name,
      testnet: network.testnet,
    })),
    registration: registration.mode,
    mail: mailer !== null,
    links: {
      dashboard: `${issuer}/dashboard/`,
      openapi: `${issuer}${gatewayDocument}`,
      receiptKeys: `${issuer}/.well-known/jwks.json`,
      health: `${issuer}/healthz`,
      readiness: `${issuer}/readyz`,
    },
  }
  app.openapi(getHome, async (c) => {
    c.header('Vary', 'Accept')
    // The redirect is relative, so that it works under any path prefix of a proxy.
    if (c.req.header('accept')?.includes('text/html')) return c.redirect('dashboard/', 302)
    return c.json(write({ ...body, sales: await salesStateOf(sales) }), 200)
  })
}
