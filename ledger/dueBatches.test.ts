import { afterAll, beforeAll, expect, test } from 'vitest'
import { openShop, pay, startGateway, type TestGateway } from '../test/support/gateway.ts'
import { createDueBatches } from './dueBatches.ts'
import { defaultTriggers } from './triggers.ts'

let gateway: TestGateway
beforeAll(async () => {
  gateway = await startGateway()
})
afterAll(() => gateway.close())

test('behavior: a payment of high value travels alone on its retries as well, and makes nothing else due', async () => {
  const { app, database: sql, served } = gateway
  const shop = await openShop(app)
  const { paymentId: great } = await pay(gateway, shop)
  const { paymentId: small } = await pay(gateway, shop)
  const { paymentId: young } = await pay(gateway, shop)
  const now = new Date()
  // Of that size while this test's threshold holds, so that no more than a USDC is needed.
  const triggers = { ...defaultTriggers, highValue: 1_000_000n }
  const settings = { triggers, priorityFeePerGas: 0n, maxFeePerGas: 10n ** 12n, gasTokenUsd: 3_000_000_000n }
  await sql`update payment set provider_amount = 1000000 where id = ${great}`
  const fail = (id: string, next: Date) => sql`
    update payment set attempts = 1, first_failed_at = ${now}, next_attempt_at = ${next} where id = ${id}`
  const read = createDueBatches(sql, served)
  const due = async () =>
    (await read({ settings, from: gateway.settings.platformWallet, now })).map(({ lane, payments }) => [
      lane,
      payments.map(({ id }) => id),
    ])

  await fail(great, new Date(now.getTime() + 1_000))
  expect(await due()).toEqual([])
  await fail(great, now)
  expect(await due()).toEqual([['high_value', [great]]])
  await fail(small, now)
  expect(await due()).toEqual([
    ['high_value', [great]],
    ['shared', [small, young]],
  ])
})
