import { createRoute, z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { TabReads } from '@tollkeeper/ledger/tabs/tabReads'
import type { App } from '../../http/app.ts'
import { jsonAnswer } from '../../http/problems.ts'
import { Refusal } from '../../http/refusal.ts'
import { route } from '../../http/route.ts'
import type { GatewaySettings } from '../../http/settings.ts'
import * as wire from '../../http/wire.ts'
import type { GatewayNetworks } from '../../registry/networks.ts'
import type { ReceiptKeys } from '../receipts/keys.ts'
import type { RecordedHeads } from '../records/recordedHeads.ts'
import { findPaymentOrTab } from '../records/tabPayments.ts'
import { currentReceipt } from './currentReceipt.ts'
import { didDocument, didPathOf } from './did.ts'
import { jwksMaxAgeSeconds } from './keys.ts'

export const receipt = z.object({ paymentId: wire.paymentId, receipt: z.string() }).openapi('Receipt')

export const jwks = z
  .object({
    keys: z.array(
      z.object({
        kty: z.literal('EC'),
        crv: z.literal('P-256'),
        x: z.string(),
        y: z.string(),
        kid: z.string(),
        use: z.literal('sig'),
        alg: z.literal('ES256'),
      }),
    ),
  })
  .openapi('JwkSet')

const getReceipt = route('get', '/receipts/{id}', {
  summary: 'Get a receipt in its current state',
  description:
    "Signed again at each call. `transactionHash` and `blockHash` are those of the provider's half, once it has the " +
    'network’s confirmations; until then the hash is 32 zero bytes. For a tab, this is the receipt of the whole tab, from its ' +
    'first request on: the tab’s id replaces provider and endpoint, because there may be many. Each request has a separate receipt.',
  tags: ['Receipts'],
  params: z.object({ id: wire.paymentId }),
  responses: { 200: jsonAnswer('The receipt', receipt) },
})

const getJwks = createRoute({
  method: 'get',
  path: '/.well-known/jwks.json',
  summary: 'Public keys that verify receipts, current and retired',
  tags: ['Receipts'],
  responses: { 200: jsonAnswer('The JWK set', jwks) },
})

const publicKeyJwk = z.object({
  kty: z.literal('EC'),
  crv: z.literal('P-256'),
  x: z.string(),
  y: z.string(),
  kid: z.string(),
})

const did = z
  .object({
    '@context': z.array(z.string()),
    id: z.string().openapi({ example: 'did:web:gateway.example' }),
    verificationMethod: z.array(
      z.object({ id: z.string(), type: z.literal('JsonWebKey2020'), controller: z.string(), publicKeyJwk }),
    ),
    assertionMethod: z.array(z.string()),
  })
  .openapi('DidDocument')

const getDid = (issuer: string) =>
  createRoute({
    method: 'get',
    path: didPathOf(issuer),
    summary: "The gateway's DID document: the same keys, for x402 receipts",
    tags: ['Receipts'],
    responses: { 200: jsonAnswer('The DID document', did) },
  })

export type ReceiptRouteOptions = {
  sql: Database
  tabReads: TabReads
  heads: RecordedHeads
  networks: GatewayNetworks
  receiptKeys: ReceiptKeys
  settings: Pick<GatewaySettings, 'issuer'>
  now: () => number
}

export function addReceiptRoutes(
  app: App,
  { sql, tabReads, heads, networks, receiptKeys, settings, now }: ReceiptRouteOptions,
): void {
  app.openapi(getReceipt, async (c) => {
    const signedAt = now()
    const payment = await findPaymentOrTab({ sql, tabReads }, c.req.valid('param').id, new Date(signedAt))
    if (payment === undefined) throw new Refusal('unknown_payment')
    const { network } = networks.ofChain(payment.chainId).served
    const indexedBlock = await heads.of(payment.chainId)
    const { issuer } = settings
    const receipt = currentReceipt(payment, {
      network,
      indexedBlock,
      issuer,
      signedAt,
      key: receiptKeys.current,
    })
    if (receipt === null)
      throw new Refusal(
        'unknown_payment',
        'Payments through the facilitator have no receipt from this gateway',
      )
    return c.json({ paymentId: payment.paymentId, receipt }, 200)
  })

  app.openapi(getJwks, (c) => {
    c.header('cache-control', `public, max-age=${jwksMaxAgeSeconds}`)
    return c.json(receiptKeys.jwks, 200)
  })

  app.openapi(getDid(settings.issuer), (c) => {
    c.header('cache-control', `public, max-age=${jwksMaxAgeSeconds}`)
    return c.json(didDocument(settings.issuer, receiptKeys.jwks.keys), 200)
  })
}
