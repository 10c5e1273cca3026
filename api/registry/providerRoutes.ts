import { z } from '@hono/zod-openapi'
import { isIconUrl, serviceNamePattern } from '@tollkeeper/ledger/discovery/declarations'
import { changeRegistry } from '@tollkeeper/ledger/registry/registryChanges'
import type { Database, Transaction } from '@tollkeeper/ledger/store/database'
import { clientAddress } from '@tollkeeper/runtime/clientAddress'
import { type Address, type Hex, recoverMessageAddress } from 'viem'
import type { App } from '../http/app.ts'
import { changerOf, ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { ifMatch, isUnchanged, requireVersion, setVersion, version } from '../http/version.ts'
import * as wire from '../http/wire.ts'
import { keyScope, secretKey } from './apiKeyRoutes.ts'
import { disabledSince, findProvider, type OwnershipProof, updateProvider } from './providers.ts'
import { registerProvider } from './registerProvider.ts'
import { countRegistration, requireAdmission } from './registration.ts'
import { listWallets } from './wallets.ts'

const tags = ['Providers']

const registrationToken = z.object({ 'registration-token': wire.text(500).optional() })

const ownMiddleware = z.boolean().openapi({
  description:
    'Whether it verifies with its own middleware instead of ours. Its payments then count for triggers only once they are ' +
    'TRIGGER_MIN_AGE_SECONDS old, so that it can void payments whose answer it did not receive',
})

/** Body of `POST /providers`. */
export const newProvider = z
  .strictObject({
    name: wire.text(200).min(1),
    contact: wire.text(320).optional(),
    requiresKey: z
      .boolean()
      .optional()
      .openapi({ description: "Whether /verify for this provider's endpoints requires its API key" }),
    ownMiddleware: ownMiddleware.optional(),
  })
  .openapi('NewProvider')

const ascii = z.string().regex(serviceNamePattern, 'expected 1 to 32 printable ASCII characters')
const serviceName = ascii.openapi({ description: 'Name in catalogs', example: 'Weather' })
const tags5 = z
  .array(ascii)
  .max(5)
  .openapi({ example: ['weather', 'data'] })
const iconUrl = wire
  .text(512)
  .refine(isIconUrl, 'expected an http(s) URL with a public name')
  .openapi({ example: 'https://weather.example/icon.png' })
const proof = z.object({
  origin: z.string().openapi({ example: 'https://weather.example' }),
  address: wire.addressOut,
  signature: z.string(),
})

export const provider = z
  .object({
    providerId: wire.providerId,
    name: z.string(),
    contact: z.string().nullable(),
    contactConfirmedAt: wire.isoTime
      .nullable()
      .openapi({ description: 'When the contact was confirmed; null: not yet, so no mail is sent to it' }),
    requiresKey: z.boolean(),
    ownMiddleware,
    listed: z.boolean().openapi({ description: 'Whether its endpoints are listed for buyers' }),
    serviceName: serviceName.nullable(),
    tags: tags5,
    iconUrl: z.string().nullable(),
    ownershipProofs: z.array(proof).openapi({ description: 'Signatures of its wallets, for x402scan' }),
    version,
    createdAt: wire.isoTime,
    disabledAt: wire.isoTime
      .nullable()
      .openapi({ description: 'Since when it gets no new challenges; null: it is enabled' }),
  })
  .openapi('Provider')

export const account = provider.extend({ scope: keyScope }).openapi('Account')

export const providerWithKey = provider
  .extend({ keyId: wire.keyId, apiKey: secretKey })
  .openapi('ProviderWithKey')

const createProvider = route('post', '/providers', {
  tags,
  summary: 'Register a provider',
  description:
    'The operator decides: registration is open to anyone, needs the operator’s `Registration-Token`, or is closed.',
  headers: registrationToken,
  body: newProvider,
  refuses: [401, 403],
  responses: { 201: jsonAnswer('The provider, and its first API key', providerWithKey) },
})

const getProvider = route('get', '/providers/{id}', {
  ...ownersOnly,
  tags,
  summary: 'Read a provider',
  refuses: [404],
  responses: { 200: jsonAnswer('The provider', provider) },
})

const providerChange = z
  .strictObject({
    name: wire.text(200).min(1),
    contact: wire.text(320).nullable(),
    requiresKey: z.boolean(),
    ownMiddleware,
    listed: z.boolean().openapi({ description: 'Whether its endpoints are listed for buyers' }),
    serviceName: serviceName.nullable(),
    tags: tags5,
    iconUrl: iconUrl.nullable(),
    ownershipProofs: z
      .array(
        z.strictObject({ origin: wire.text(300), signature: wire.text(132).regex(/^0x[0-9a-fA-F]{130}$/) }),
      )
      .max(8)
      .openapi({
        description:
          'Signatures of origins, such as `https://weather.example`, by wallets of the provider (EIP-191)',
      }),
    disabled: z.boolean().openapi({ description: 'Whether new challenges are refused' }),
  })
  .partial()
  .openapi('ProviderChange')

const patchProvider = route('patch', '/providers/{id}', {
  ...ownersOnly,
  tags,
  summary: 'Change a provider, disable it or enable it',
  headers: ifMatch,
  body: providerChange,
  refuses: [404],
  responses: { 200: jsonAnswer('The provider after the change', provider) },
})

const getAccount = route('get', '/account', {
  tags,
  summary: 'Show the API key’s provider and scope',
  security: [{ apiKey: [] }],
  responses: { 200: jsonAnswer('The provider', account) },
})

export type ProviderRouteOptions = {
  sql: Database
  settings: Pick<GatewaySettings, 'registration' | 'trustedProxies'>
  now: () => number
}

export function addProviderRoutes(app: App, { sql, settings, now }: ProviderRouteOptions): void {
  const { registration, trustedProxies } = settings

  app.openapi(createProvider, async (c) => {
    const { name, contact = null, requiresKey = false, ownMiddleware = false } = c.req.valid('json')
    requireAdmission(registration, c.req.valid('header')['registration-token'])
    const answer = await sql.begin(async (tx) => {
      await countRegistration(tx, registration, clientAddress(c, trustedProxies), now())
      return registerProvider(tx, { name, contact, requiresKey, ownMiddleware }, { by: 'provider' })
    })
    return c.json(answer, 201)
  })

  app.openapi(getProvider, async (c) => {
    const found = await findProvider(sql, c.req.valid('param').id)
    if (found === undefined) throw new Refusal('unknown_provider')
    setVersion(c, found)
    return c.json(found, 200)
  })

  app.openapi(patchProvider, async (c) => {
    const providerId = c.req.valid('param').id
    const { disabled, ownershipProofs, ...fields } = c.req.valid('json')
    const { 'if-match': seen } = c.req.valid('header')
    const changed = await changeRegistry(sql, changerOf(c), async (tx, record) => {
      const before = await findProvider(tx, providerId)
      if (before === undefined) throw new Refusal('unknown_provider')
      requireVersion(seen, before)
      const orNull = <T>(given: T | undefined, was: T) => (given === undefined ? was : given)
      const next = {
        name: fields.name ?? before.name,
        contact: orNull(fields.contact, before.contact),
        requiresKey: fields.requiresKey ?? before.requiresKey,
        ownMiddleware: fields.ownMiddleware ?? before.ownMiddleware,
        listed: fields.listed ?? before.listed,
        serviceName: orNull(fields.serviceName, before.serviceName),
        tags: fields.tags ?? before.tags,
        iconUrl: orNull(fields.iconUrl, before.iconUrl),
        ownershipProofs: ownershipProofs
          ? await checkProofs(tx, providerId, ownershipProofs)
          : before.ownershipProofs,
        disabledAt: disabledSince(before, disabled, now()),
      }
      if (isUnchanged(before, next)) return before
      const after = await updateProvider(tx, { providerId, ...next })
      await record(providerId, before, after)
      return after
    })
    if (changed === undefined) throw new Refusal('unknown_provider')
    setVersion(c, changed)
    return c.json(changed, 200)
  })

  app.openapi(getAccount, async (c) => {
    const caller = c.get('caller')
    const found = caller === undefined ? undefined : await findProvider(sql, caller)
    if (found === undefined) throw new Refusal('unauthorized', 'Send an API key: Authorization: Bearer tk_…')
    return c.json({ ...found, scope: c.get('callerScope') ?? 'full' }, 200)
  })
}

/**
 * Finds which of the provider's wallets signed each origin.
 *
 * @throws {Refusal} `invalid_field` if none did. A contract wallet's signature isn't supported: without the chain, it can't be
 * distinguished from a stranger's.
 */
async function checkProofs(
  tx: Transaction,
  providerId: string,
  given: readonly { origin: string; signature: string }[],
): Promise<OwnershipProof[]> {
  const wallets = new Set((await listWallets(tx, providerId)).map(({ address }) => address))
  return Promise.all(
    given.map(async ({ origin, signature: text }, index) => {
      const field = `ownershipProofs.${index}`
      const refuse = (why: string) => new Refusal('invalid_field', `${field}: ${why}`, { details: { field } })
      const signature = text.toLowerCase() as Hex
      if (URL.parse(origin)?.origin !== origin)
        throw refuse('expected an origin, such as https://weather.example')
      const signer = await recoverMessageAddress({ message: origin, signature }).catch(() => undefined)
      const address = signer?.toLowerCase() as Address | undefined
      if (address === undefined || !wallets.has(address))
        throw refuse(`none of your wallets signed ${origin}`)
      return { origin, address, signature }
    }),
  )
}
