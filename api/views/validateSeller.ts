import { z } from '@hono/zod-openapi'
import { methodsOfSellers } from '@tollkeeper/ledger/discovery/bazaar'
import type { Catalogue } from '@tollkeeper/ledger/discovery/catalogue'
import { type ListingState, readListingStates } from '@tollkeeper/ledger/discovery/listingState'
import type { Listing } from '@tollkeeper/ledger/discovery/listings'
import { readDeclaredProofs, readProofs, rereadListings } from '@tollkeeper/ledger/discovery/originProofs'
import { askedMethod } from '@tollkeeper/ledger/discovery/sellerAnswer'
import type { Database } from '@tollkeeper/ledger/store/database'
import { clientAddress } from '@tollkeeper/runtime/clientAddress'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { App } from '../http/app.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import type { GatewaySettings } from '../http/settings.ts'
import * as wire from '../http/wire.ts'
import { findRegistered, listingState, proof, sellerFinding, toProof } from '../registry/listedUrl.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { type ProbeLimits, probesPerCaller } from '../registry/probeLimits.ts'
import { probeThoroughly } from '../registry/probeSeller.ts'

const asked = z
  .strictObject({
    url: wire.fullUrl.openapi({ example: 'https://weather.example/forecast' }),
    method: z
      .enum(methodsOfSellers)
      .optional()
      .openapi({ description: 'Method of the endpoint. Default: GET' }),
  })
  .openapi('SellerQuestion')

const offer = z.object({
  network: wire.networkName,
  scheme: z.enum(['exact', 'tab']),
  form: z
    .enum(['tollkeeper', 'x402-v2', 'x402-v1'])
    .openapi({ description: 'Source of the terms: our body, the header of x402 v2, or the body of x402 v1' }),
  price_usdc: wire.decimalUsdc,
  payTo: wire.addressOut,
  seller: wire.addressOut.openapi({ description: 'The wallet that finally receives the money' }),
})

const listing = z.object({
  kind: z.enum(['endpoint', 'declared']).openapi({
    description: 'Whether the resource was registered here, or a payment through the facilitator declared it',
  }),
  endpointId: wire.endpointId.nullable(),
  resource: z.string(),
  isOwn: z.boolean().openapi({
    description:
      "Whether the endpoint belongs to the caller. Without the owner's key, endpoints that are not listed are not shown",
  }),
  ...listingState.shape,
  price_usdc: wire.decimalUsdc.nullable(),
  proof: proof.nullable(),
  l30DaysTotalCalls: z.int().openapi({ description: 'Number of payments that settled in 30 days' }),
  lastCalledAt: z.string().nullable().openapi({ description: 'Hour of the newest settled payment' }),
})

const validation = z
  .object({
    url: z.string(),
    method: z.string(),
    sent: z.enum(['GET', 'POST']).openapi({ description: 'The method that we sent' }),
    httpStatus: z.int().nullable().openapi({ description: 'Null if there was no answer' }),
    isListable: z.boolean().openapi({ description: 'Whether none of the findings is an `error`' }),
    isListableByX402: z.boolean().openapi({
      description:
        'Whether it is listable and also declares the extension `bazaar`, which x402 catalogs require',
    }),
    findings: z.array(sellerFinding),
    offers: z.array(offer),
    listings: z.array(listing).openapi({ description: "The listings of the URL in this gateway's catalog" }),
  })
  .openapi('SellerValidation')

const validate = route('post', '/discovery/validate', {
  summary: 'Check any x402 seller: request its payment terms and show what catalogs would find',
  description:
    'Nothing is paid or listed. The URL is requested with GET, or with POST and the body `{}`. If it answers 402, the request is repeated as a web page ' +
    'would send it, OPTIONS is sent, and after GET also HEAD. Redirects are not followed. ' +
    `At most ${probesPerCaller} checks per minute for each client address. Each checked host also has a limit for all callers together.`,
  tags: ['Discovery'],
  body: asked,
  responses: { 200: jsonAnswer('The findings', validation) },
})

export type ValidateSellerOptions = {
  sql: Database
  networks: GatewayNetworks
  /** Null: the gateway has no catalog, and checks no sellers. */
  catalogue: Catalogue | null
  probeLimits: ProbeLimits
  settings: Pick<GatewaySettings, 'issuer' | 'trustedProxies'>
}

/** Adds `POST /discovery/validate`. */
export function addValidateSellerRoute(
  app: App,
  { sql, networks, catalogue, probeLimits, settings }: ValidateSellerOptions,
): void {
  if (catalogue === null) return
  const gateway = new URL(settings.issuer)
  const served = [...networks.byChainId.values()].map((one) => one.served)

  app.openapi(validate, async (c) => {
    const { url: given, method = 'GET' } = c.req.valid('json')
    const url = new URL(given)
    url.hash = ''
    const limited = { caller: clientAddress(c, settings.trustedProxies), host: url.host }
    const { httpStatus, report } = await probeLimits.run(limited, (guard) =>
      probeThoroughly({ url: url.href, method }, { guard, networks: served }),
    )
    const { findings, offers, declaration } = report
    const registered = await findRegistered(sql, url, method, ownerIn(url))
    if (report.forms.length > 0) {
      const seen = offers.map(({ network, seller, amount }) => ({
        chainId: network.chainId,
        payTo: seller,
        amount,
      }))
      const endpointIds = registered.map(({ endpointId }) => endpointId)
      await rereadListings(sql, { url: url.href, endpointIds }, seen)
    }
    const isListable = findings.every(({ severity }) => severity !== 'error')
    return c.json(
      {
        url: url.href,
        method,
        sent: askedMethod(method),
        httpStatus,
        isListable,
        isListableByX402: isListable && declaration !== null,
        findings,
        offers: offers.map(({ network, scheme, form, amount, payTo, seller }) => ({
          network: network.name,
          scheme,
          form,
          price_usdc: formatUsdc(amount),
          payTo,
          seller,
        })),
        listings: [
          ...(await readEndpoints(registered, c.get('caller'))),
          ...(await readDeclared(url, c.get('caller'))),
        ],
      },
      200,
    )
  })

  /** Returns the provider under whose proxy path the URL is; null for URLs at other addresses than the gateway's own. */
  function ownerIn(url: URL): string | null {
    if (url.host !== gateway.host) return null
    const path = url.pathname.slice(gateway.pathname.replace(/\/$/, '').length)
    return path.split('/')[2] ?? ''
  }

  /** Reads the listed endpoints of a URL, and the caller's own endpoints even if they aren't listed. */
  async function readEndpoints(
    registered: Awaited<ReturnType<typeof findRegistered>>,
    caller: string | undefined,
  ) {
    const ids = registered.map(({ endpointId }) => endpointId)
    const [states, proofs, listings] = await Promise.all([
      readListingStates(sql, catalogue, ids),
      readProofs(sql, ids),
      list((one) => one.endpointId !== null && ids.includes(one.endpointId)),
    ])
    const listed = new Map(listings.map((one) => [one.endpointId, one]))
    return registered.flatMap(({ endpointId, providerId, url }) => {
      const state = states.get(endpointId)
      const isOwn = providerId === caller
      if (state === undefined || (state.status !== 'listed' && !isOwn)) return []
      return [
        {
          kind: 'endpoint' as const,
          endpointId,
          resource: url,
          isOwn,
          ...state,
          proof: toProof(proofs.get(endpointId)),
          ...trafficOf(listed.get(endpointId)),
        },
      ]
    })
  }

  async function readDeclared(url: URL, caller: string | undefined) {
    const listings = await list(({ endpointId, resource }) => endpointId === null && resource === url.href)
    const proofs = await readDeclaredProofs(sql, url.href)
    return listings.map((one) => ({
      kind: 'declared' as const,
      endpointId: null,
      resource: one.resource,
      isOwn: one.providerId !== null && one.providerId === caller,
      ...isListed,
      proof: toProof(proofs.get(one.id)),
      ...trafficOf(one),
    }))
  }

  const list = async (isAsked: (one: Listing) => boolean): Promise<Listing[]> =>
    (await catalogue?.list(isAsked)) ?? []
}

const isListed: ListingState = { status: 'listed', reasons: [] }

function trafficOf(listed: Listing | undefined) {
  return {
    price_usdc: listed ? formatUsdc(listed.price) : null,
    l30DaysTotalCalls: listed?.payments ?? 0,
    lastCalledAt: listed?.lastSettledAt?.toISOString() ?? null,
  }
}
