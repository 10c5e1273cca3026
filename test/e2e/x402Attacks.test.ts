import { encodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { asV1, attack, attacks, header, newAccount, offerOf, sign, type Target } from '../support/attacks.ts'
import { openAttackedShops, openShop, type Shop } from '../support/shop.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'

// Runs the attacks in support/attacks.ts against the real middleware and gateway.

let stack: TestStack
let target: Target & Record<'cheap' | 'dear' | 'dearest', Shop>
beforeAll(async () => {
  stack = await startTestStack({
    env: { api: { SETTLE_BEFORE_SERVE_USDC: '10', SETTLE_BEFORE_SERVE_TIMEOUT_MS: '60000' } },
  })
  target = { chain: stack.chain, ...(await openAttackedShops(stack)) }
})
afterAll(async () => {
  for (const shop of [target?.cheap, target?.dear, target?.dearest]) await shop?.close()
  await stack?.close()
})

describe.each([...new Set(attacks.map(({ kind }) => kind))])('%s', (kind) => {
  test.each(attacks.filter((one) => one.kind === kind))(
    'error: an attacker gets nothing for free by trying this: $name',
    async ({ run, answers, ourLeak }) => {
      const { statuses, served, due } = await run(target)
      expect(served - due).toBeLessThanOrEqual(ourLeak?.most ?? 0)
      expect(statuses).toEqual(answers)
    },
  )
})

describe('legitimate requests', () => {
  test('behavior: ignores additional claims next to a valid authorization', async () => {
    const { url } = target.cheap
    const payment = await sign(await newAccount(target), await offerOf(url))
    const claims = { payTo: `0x${'d'.repeat(40)}`, amount: '1', asset: `0x${'e'.repeat(40)}` }
    const lying = { ...payment, accepted: { ...payment.accepted, ...claims } }
    expect(await attack(target, [[url, header(lying)]])).toMatchObject({ statuses: [200], served: 1 })
  })

  test('behavior: accepts a valid payment in the form of x402 version 1, which doesn’t contain the challenge', async () => {
    const { url } = target.dear
    const [{ extra }] = (await offerOf(target.cheap.url)).accepts
    const payment = await sign(await newAccount(target), await offerOf(url), { extra })
    expect(await attack(target, [[url, asV1(payment)]])).toMatchObject({ statuses: [200], served: 1 })
  })

  test.each(['payment-signature', 'PAYMENT-SIGNATURE', 'Payment-Signature'])(
    'behavior: accepts the header %s',
    async (name) => {
      const { url } = target.dear
      const payment = await sign(await newAccount(target), await offerOf(url))
      const outcome = await attack(target, [[url, { [name]: encodePaymentHeader(payment) }]])
      expect(outcome).toMatchObject({ statuses: [200], served: 1 })
    },
  )

  test('behavior: the offer asks for a signature that is valid for an hour; five minutes are enough, and four minutes are rejected with the reason', async () => {
    const { url } = target.cheap
    const offer = await offerOf(url)
    expect(offer.accepts[0].maxTimeoutSeconds).toBe(3_600)
    const pay = async (maxTimeoutSeconds: number) => {
      const payment = await sign(await newAccount(target), offer, { maxTimeoutSeconds })
      return fetch(url, { headers: header(payment) as Record<string, string> })
    }
    const refused = await pay(240)
    const { error } = JSON.parse(
      Buffer.from(refused.headers.get('payment-required') ?? '', 'base64').toString(),
    )
    expect([refused.status, error]).toEqual([402, 'invalid_exact_evm_payload_authorization_valid_before'])
    expect((await pay(300)).status).toBe(200)
  })

  test('behavior: forbids shared caches from storing the offer and the paid response', async () => {
    const { url } = target.cheap
    const unpaid = await fetch(url)
    expect([unpaid.status, unpaid.headers.get('cache-control')]).toEqual([402, 'no-store'])
    const payment = await sign(await newAccount(target), await offerOf(url))
    const paid = await fetch(url, { headers: header(payment) as Record<string, string> })
    expect([paid.status, paid.headers.get('cache-control')]).toEqual([200, 'private'])
  })
})

test('behavior: voids the payment if the handler fails, and sends neither our receipt nor x402’s', async () => {
  const failing = await openShop(stack, { handler: () => new Response('failed', { status: 500 }) })
  try {
    const payment = await sign(await newAccount(target), await offerOf(failing.url))
    const { status, headers } = await fetch(failing.url, {
      headers: header(payment) as Record<string, string>,
    })
    expect([status, headers.get('service-payment-status')]).toEqual([500, 'voided'])
    expect([headers.get('service-receipt'), headers.get('payment-response')]).toEqual([null, null])
  } finally {
    await failing.close()
  }
})
