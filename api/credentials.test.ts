import { attenuateMacaroon, mintMacaroon, parseMacaroon } from '@tollkeeper/sdk/protocol/macaroon'
import { expect, test } from 'vitest'
import { call, fetchChallenge, signedBody, type VerifyBody } from '../test/support/gateway.ts'
import { useGateway, useShop } from '../test/support/useGateway.ts'
import type { App } from './http/app.ts'
import { hmacSha256 } from './http/hmac.ts'

const gateway = useGateway()
const shop = useShop(gateway)

const newBody = async () => signedBody(gateway, shop, await gateway.buyer(1_000_000n))

async function verdict(app: App, json: VerifyBody): Promise<unknown[]> {
  const { status, body } = await call(app, 'POST', '/verify', { json })
  return [status, body.code]
}

test('behavior: during a rotation of the macaroon secret, new challenges are signed with the new secret, and challenges signed with either secret can be paid', async () => {
  const [old] = gateway.settings.macaroonSecrets
  const next = { kid: 'next', key: Buffer.alloc(32, 9) }
  if (old === undefined) throw new Error('the gateway has no secret')
  const rotating = gateway.another({ macaroonSecrets: [next, old] })
  const rotated = gateway.another({ macaroonSecrets: [next] })

  const minted = await fetchChallenge(rotating, shop)
  expect(parseMacaroon(minted.macaroon).terms.kid).toBe('next')
  expect(await verdict(rotating, await newBody())).toEqual([200, undefined])
  expect(await verdict(rotated, await newBody())).toEqual([402, 'macaroon_invalid'])
  const body = await signedBody({ ...gateway, app: rotating }, shop, await gateway.buyer(1_000_000n))
  expect(await verdict(gateway.app, body)).toEqual([402, 'macaroon_invalid'])
  expect(await verdict(rotated, body)).toEqual([200, undefined])
})

test('args: MACAROON_NOT_BEFORE: refuses macaroons from before a restore, because the restored database may lack their payments', async () => {
  const before = await newBody()
  const seconds = Math.floor(Date.now() / 1000)
  expect(await verdict(gateway.another({ macaroonNotBefore: seconds + 60 }), before)).toEqual([
    402,
    'macaroon_invalid',
  ])
  const { mintedAt } = parseMacaroon(before.macaroon).terms
  expect(await verdict(gateway.another({ macaroonNotBefore: mintedAt }), before)).toEqual([200, undefined])
})

test('error: refuses a macaroon of another network under the same secret', async () => {
  const body = await newBody()
  const [secret] = gateway.settings.macaroonSecrets
  const { terms } = parseMacaroon(body.macaroon)
  const { providerId, endpointId } = shop
  if (secret === undefined) throw new Error('the gateway has no secret')
  for (const changed of [{ chainId: 84_532 }, { asset: `0x${'ab'.repeat(20)}` as const }]) {
    const macaroon = mintMacaroon({
      secret,
      terms: { ...terms, ...changed },
      caveats: { providerId, endpointId, expiry: terms.mintedAt + 300 },
      hmac: hmacSha256,
    })
    expect(await verdict(gateway.app, { ...body, macaroon })).toEqual([422, 'network_not_served'])
  }
})

test('behavior: accepts a macaroon to which its holder has added caveats that allow this payment', async () => {
  const payer = await gateway.buyer(1_000_000n)
  const body = await signedBody(gateway, shop, payer)
  const expiry = Math.floor(Date.now() / 1000) + 60
  const caveats = { expiry, payer: payer.address, maxAmount: 50_000n }
  const macaroon = attenuateMacaroon(body.macaroon, caveats, hmacSha256)
  expect(await verdict(gateway.app, { ...body, macaroon })).toEqual([200, undefined])
})

test('behavior: a provider can have several keys, each shown once, stored as a hash, and revoked separately', async () => {
  const at = `/providers/${shop.providerId}`
  const { body: issued } = await call<{ keyId: string; apiKey: string }>(gateway.app, 'POST', `${at}/keys`, {
    key: shop.key,
    json: { label: 'second' },
  })
  const opens = async (key: string) => (await call(gateway.another(), 'GET', at, { key })).status
  expect([await opens(shop.key), await opens(issued.apiKey)]).toEqual([200, 200])

  const listed = await call(gateway.app, 'GET', `${at}/keys`, { key: shop.key })
  expect(JSON.stringify(listed.body)).toContain(issued.keyId)
  const rows = await gateway.database`select row_to_json(api_key)::text as row from api_key`
  const secret = issued.apiKey.slice(-32)
  expect(rows.length).toBeGreaterThanOrEqual(2)
  for (const text of [JSON.stringify(listed.body), ...rows.map(({ row }) => String(row))]) {
    expect(text).not.toContain(secret)
    expect(text).not.toContain(Buffer.from(secret).toString('hex'))
  }

  await call(gateway.app, 'DELETE', `${at}/keys/${issued.keyId}`, { key: shop.key })
  expect([await opens(shop.key), await opens(issued.apiKey)]).toEqual([200, 401])
})
