import { issueApiKey } from '@tollkeeper/api/registry/apiKeys'
import { releaseReservations } from '@tollkeeper/ledger/acceptance/facilitations'
import { findKeyOwner } from '@tollkeeper/ledger/registry/apiKeys'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { beforeAll, describe, expect, test } from 'vitest'
import { acceptedOf, useFacilitator } from '../support/facilitator.ts'
import { settle } from '../support/paidReceipts.ts'
import { failPayments } from '../support/paymentPosition.ts'
import { untilInRecord } from '../support/recorder.ts'
import { until } from '../support/until.ts'
import { randomHex, sendDirectly } from '../support/usdc.ts'
import { ask } from '../support/x402.ts'

// The facilitator of the x402 standard as sellers' middlewares use it, on a real chain, Postgres and Ponder:
// `POST /verify`.

const { stack, keeper, pay } = useFacilitator()
let key: string
beforeAll(() => {
  key = stack.apiKey
})

describe('POST /verify', () => {
  test('behavior: if a payment is sent ten times simultaneously, accepts it once', async () => {
    const { body } = await pay(await stack.buyer())
    const answers = await Promise.all(Array.from({ length: 10 }, () => ask(keeper, '/verify', { body, key })))
    expect(answers.every(({ status }) => status === 200)).toBe(true)
    expect(answers.filter((answer) => answer.body.isValid)).toHaveLength(1)
    const refused = answers.filter((answer) => !answer.body.isValid)
    expect(new Set(refused.map((answer) => answer.body.invalidReason))).toEqual(
      new Set(['duplicate_settlement']),
    )
  })

  test('behavior: accepts only one of ten simultaneous payments if the buyer’s balance covers one payment', async () => {
    const buyer = await stack.buyer(10_000n)
    const payments = await Promise.all(Array.from({ length: 10 }, () => pay(buyer)))
    const answers = await Promise.all(payments.map(({ body }) => ask(keeper, '/verify', { body, key })))
    expect(answers.filter((answer) => answer.body.isValid)).toHaveLength(1)
    expect(answers.find((answer) => !answer.body.isValid)?.body.invalidReason).toBe('insufficient_funds')
    expect(await acceptedOf(stack, buyer)).toBe(10_000n)
  })

  test('behavior: releases an expired reservation’s authorization and balance even before the upkeep runs', async () => {
    const brief = stack.keeper({ facilitator: { reserveMs: 1 } })
    const buyer = await stack.buyer(10_000n)
    const [first, second] = [await pay(buyer), await pay(buyer)]
    for (const { body } of [first, first, second, first]) {
      expect((await ask(brief, '/verify', { body, key })).body).toMatchObject({ isValid: true })
      await until('it has expired', async () => {
        const [row] = await stack.database<[{ over: boolean }]>`
          select coalesce(bool_and(next_at < now()), true) as over from queue where payer = ${buyer.address.toLowerCase()}`
        return row.over
      })
    }
  })

  test('behavior: does not reserve money that a settlement or a direct transfer has moved out of the wallet', async () => {
    const verify = async ({ body }: Awaited<ReturnType<typeof pay>>) =>
      (await ask(keeper, '/verify', { body, key })).body
    const short = { isValid: false, invalidReason: 'insufficient_funds' }
    const buyer = await stack.buyer(30_000n)
    const [used, second, third] = [await pay(buyer), await pay(buyer), await pay(buyer)]
    expect(await verify(used)).toMatchObject({ isValid: true })
    await sendDirectly(stack, (await pay(buyer, { value: 10_000n })).authorization)
    await settle(stack.chain, [{ authorization: used.authorization }])
    await untilInRecord(stack)
    expect(await verify(second)).toMatchObject({ isValid: true })
    // The reservation of the used payment expires, but its money has left the wallet anyway.
    await stack.database`
      update queue set next_at = now() - interval '1 second'
      where payment_id = (select payment_id from signed_authorization where nonce = ${used.authorization.nonce})`
    await releaseReservations(stack.database, new Date())
    expect(await verify(third)).toMatchObject(short)
    expect(await acceptedOf(stack, buyer)).toBe(20_000n)

    const rich = await stack.buyer(1_000_000n)
    expect(await verify(await pay(rich))).toMatchObject({ isValid: true })
    await sendDirectly(stack, (await pay(rich, { value: 990_000n })).authorization)
    expect(await verify(await pay(rich))).toMatchObject(short)
  })

  test('error: returns the standard’s reason for an invalid payment, with HTTP 200', async () => {
    const buyer = await stack.buyer()
    const good = await pay(buyer)
    const change = (path: string, value: unknown) => {
      const copy = structuredClone(good.body)
      const names = path.split('.')
      const last = names.pop() as string
      const target = names.reduce((at, name) => at[name] as Record<string, unknown>, copy)
      target[last] = value
      return copy
    }
    const later = await pay(buyer, { validFor: 10 })
    const cases: [string, unknown][] = [
      ['invalid_exact_evm_payload_recipient_mismatch', change('paymentRequirements.payTo', randomHex(20))],
      [
        'invalid_exact_evm_payload_authorization_value_mismatch',
        change('paymentRequirements.amount', '10001'),
      ],
      [
        'invalid_exact_evm_payload_authorization_value_mismatch',
        change('paymentRequirements.amount', '9999'),
      ],
      ['invalid_payment_requirements', change('paymentRequirements.asset', randomHex(20))],
      ['invalid_network', change('paymentPayload.accepted.network', 'eip155:8453')],
      ['invalid_scheme', change('paymentPayload.accepted.scheme', 'upto')],
      [
        'invalid_exact_evm_payload_signature',
        change('paymentPayload.payload.authorization.nonce', randomHex(32)),
      ],
      [
        'invalid_exact_evm_payload_authorization_valid_after',
        change('paymentPayload.payload.authorization.validAfter', '2000000000'),
      ],
      ['invalid_exact_evm_payload_authorization_valid_before', later.body],
      ['insufficient_funds', (await pay(await stack.buyer(0n))).body],
    ]
    for (const [reason, body] of cases) {
      const payer = (
        body as typeof good.body & { paymentPayload: { payload: { authorization: { from: string } } } }
      ).paymentPayload.payload.authorization.from
      expect(await ask(keeper, '/verify', { body, key }), reason).toMatchObject({
        status: 200,
        body: { isValid: false, invalidReason: reason, payer },
      })
    }
  })

  test('error: if a payer is in debt, rejects the payment with HTTP 200 and a reason from the standard', async () => {
    const buyer = await stack.buyer()
    const { paymentId } = await stack.queue({ buyer, price: 50_000n, acceptedAt: new Date() })
    await failPayments(stack.database, [paymentId], 'insufficient_balance')
    const { body } = await pay(buyer)
    expect(await ask(keeper, '/verify', { body, key })).toMatchObject({
      status: 200,
      body: { isValid: false, invalidReason: 'invalid_transaction_state' },
    })
  })

  test('error: rejects a malformed request, or a request without a key, and gives no verdict on the payment', async () => {
    const { body } = await pay(await stack.buyer())
    expect(await ask(keeper, '/verify', { body: '{', key })).toMatchObject({ status: 400 })
    expect(await ask(keeper, '/verify', { body: { x402Version: 2 }, key })).toMatchObject({
      status: 400,
      body: { isValid: false, invalidReason: 'invalid_payload' },
    })
    expect(await ask(keeper, '/verify', { body })).toMatchObject({ status: 401 })
    const long = { ...body, extra: 'x'.repeat(70_000) }
    expect(await ask(keeper, '/verify', { body: long, key })).toMatchObject({ status: 413 })
    expect(await ask(keeper, '/verify', { body, key: `${key}x` })).toMatchObject({ status: 401 })
  })

  test('error: a read-only key can’t reserve, settle or submit', async () => {
    const providerId = (await findKeyOwner(stack.database, key)) as string
    const { apiKey: reading } = await issueApiKey(stack.database, providerId, { scope: 'read' })
    const { body } = await pay(await stack.buyer())
    for (const path of ['/verify', '/settle', '/submit'] as const)
      expect(await ask(keeper, path, { body, key: reading })).toMatchObject({
        status: 403,
        body: { code: 'forbidden' },
      })
  })

  test('behavior: only the caller that reserved a payment can submit it', async () => {
    const buyer = await stack.buyer()
    const { body, authorization } = await pay(buyer, { payTo: stack.payee })
    expect((await ask(keeper, '/verify', { body, key })).body.isValid).toBe(true)
    const response = await keeper.app.request('/submit', {
      method: 'POST',
      headers: { authorization: `Bearer ${stack.grantedKey}` },
      body: JSON.stringify({ network: 'localhost', transfers: [encodePayload(authorization)] }),
    })
    expect(await response.json()).toMatchObject({ code: 'payment_replayed' })
  })
})
