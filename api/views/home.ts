import { createRoute, z } from '@hono/zod-openapi'
import type { App } from '../http/app.ts'
import { gatewayDocument } from '../http/document.ts'
import { jsonAnswer } from '../http/problems.ts'
import type { GatewaySettings } from '../http/settings.ts'
import * as wire from '../http/wire.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import type { Mailer } from '../telling/mailer.ts'

export const home = z
  .object({
    name: z.literal('Tollkeeper'),
    gatewayUrl: z.url().openapi({ description: 'What clients and middleware are told as `gatewayUrl`' }),
    networks: z.array(z.object({ network: wire.networkName, testnet: wire.testnet })).openapi({
      description: 'Where it can be paid; the first one holds where a request names none',
    }),
    registration: z
      .enum(['open', 'token', 'closed'])
      .openapi({ description: 'Who may register as a provider' }),
    mail: z.boolean().openapi({ description: 'Whether it tells providers by mail what fails (`SMTP_URL`)' }),
    links: z.record(z.string(), z.url()),
  })
  .openapi('Home')

const getHome = createRoute({
  method: 'get',
  path: '/',
  summary: 'What this gateway is, and where its interfaces are',
  description: 'Browsers are led to the dashboard.',
  tags: ['Operations'],
  responses: {
    200: jsonAnswer('The gateway', home),
    302: { description: 'The dashboard, for who accepts text/html' },
  },
})

export type HomeRouteOptions = {
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'issuer' | 'registration'>
  /** Null: this gateway sends no mail. */
  mailer: Mailer | null
}

export function addHomeRoute(app: App, { networks, settings, mailer }: HomeRouteOptions) {
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
  app.openapi(getHome, (c) => {
    c.header('Vary', 'Accept')
    // Relative, so that it works under any path prefix of a proxy.
    if (c.req.header('accept')?.includes('text/html')) return c.redirect('dashboard/', 302)
    return c.json(body, 200)
  })
}
