import type { Keeper } from '@tollkeeper/keeper/keeper'
import { beforeAll, describe, expect, test } from 'vitest'
import { useFacilitator } from '../support/facilitator.ts'
import { hangUp } from '../support/hangUp.ts'
import { testClient } from '../support/keeperScenes.ts'
import { positionOf } from '../support/paymentPosition.ts'
import { countTransactions } from '../support/submit.ts'
import { until } from '../support/until.ts'
import { randomHex, sendDirectly, setBlacklisted } from '../support/usdc.ts'
import { type Answer, ask, toV1 } from '../support/x402.ts'

// The facilitator of the x402 standard as sellers' middlewares use it, on a real chain, Postgres and Ponder:
// `POST /settle`. settleNow.test.ts tests the behavior that `POST /settle` and `POST /submit` share.

const { stack, keeper, pay } = useFacilitator()
let key: string
beforeAll(() => {
  key = stack.apiKey
})

describe('POST /settle', () => {
  test('default: settles a verified payment and returns the transaction', async () => {
    const buyer = await stack.buyer()
    const payTo = randomHex(20)
    const { body, authorization } = await pay(buyer, { payTo })
    expect((await ask(keeper, '/verify', { body, key })).body).toEqual({
      isValid: true,
      payer: buyer.address.toLowerCase(),
    })
    const settled = await ask(keeper, '/settle', { body, key })
    expect(settled).toEqual({
      status: 200,
      body: {
        success: true,
        transaction: expect.stringMatching(/^0x[0-9a-f]{64}$/),
        network: 'eip155:31337',
        payer: buyer.address.toLowerCase(),
        extra: {
          batchId: expect.stringMatching(/^0x[0-9a-f]{64}$/),
          logIndex: expect.any(Number),
          nonce: authorization.nonce,
        },
      },
    })
    expect(await stack.balanceOf(payTo)).toBe(10_000n)
    const { logs } = await stack.served.client.getTransactionReceipt({
      hash: settled.body.transaction as `0x${string}`,
    })
    const { logIndex } = settled.body.extra as { logIndex: number }
    expect(logs.find((log) => log.logIndex === logIndex)?.address).toBe(stack.served.token)

    const again = await ask(keeper, '/settle', { body, key })
    expect(again.body).toMatchObject({
      success: false,
      errorReason: 'duplicate_settlement',
      transaction: settled.body.transaction,
    })
    expect((await ask(keeper, '/verify', { body, key })).body.isValid).toBe(false)
  })

  test('behavior: /settle itself verifies a payment that was never sent to /verify', async () => {
    const { body } = await pay(await stack.buyer())
    expect((await ask(keeper, '/settle', { body, key })).body.success).toBe(true)
    const poor = await pay(await stack.buyer(0n))
    expect(await ask(keeper, '/settle', { body: poor.body, key })).toMatchObject({
      status: 200,
      body: { success: false, errorReason: 'insufficient_funds', transaction: '', network: 'eip155:31337' },
    })
  })

  test('behavior: exactly one of ten simultaneous calls for a payment succeeds', async () => {
    const { body } = await pay(await stack.buyer())
    const answers = await Promise.all(Array.from({ length: 10 }, () => ask(keeper, '/settle', { body, key })))
    expect(answers.filter((answer) => answer.body.success)).toHaveLength(1)
    const others = answers.filter((answer) => !answer.body.success)
    expect(new Set(others.map((answer) => answer.body.errorReason))).toEqual(
      new Set(['duplicate_settlement']),
    )
  })

  test('behavior: does not settle a payment for a resource or seller that differs from the verified one', async () => {
    const buyer = await stack.buyer()
    const { body } = await pay(buyer)
    expect((await ask(keeper, '/verify', { body, key })).body.isValid).toBe(true)
    const other = structuredClone(body) as { paymentPayload: { resource: { url: string } } }
    other.paymentPayload.resource.url = 'https://seller.example/gold'
    const cases = [
      { body: other, key },
      { body, key: stack.grantedKey },
    ]
    for (const one of cases)
      expect((await ask(keeper, '/settle', one)).body.errorReason).toBe('duplicate_settlement')
    expect((await ask(keeper, '/settle', { body, key })).body.success).toBe(true)
  })

  test('behavior: settles a hundred simultaneous payments in at most three transactions', async () => {
    const buyers = await stack.buyers(100, 10_000n)
    const payments = await Promise.all(buyers.map((buyer) => pay(buyer)))
    for (const answer of await Promise.all(payments.map(({ body }) => ask(keeper, '/verify', { body, key }))))
      expect(answer.body).toMatchObject({ isValid: true })
    const before = await countTransactions(stack)
    await stack.chain.setMining(1_000)
    const answers = await Promise.all(payments.map(({ body }) => ask(keeper, '/settle', { body, key })))
    await stack.chain.setMining(0)
    expect(answers.filter((answer) => answer.body.success)).toHaveLength(100)
    expect((await countTransactions(stack)) - before).toBeLessThanOrEqual(3)
  })

  test('error: if a payment has failed, repeats the response and never settles the payment later', async () => {
    const buyer = await stack.buyer(10_000n)
    const payment = await pay(buyer)
    expect((await ask(keeper, '/verify', { body: payment.body, key })).body.isValid).toBe(true)
    // The buyer moves its money away by another authorization.
    const other = await pay(buyer, { value: 10_000n })
    await sendDirectly(stack, other.authorization)
    for (let times = 0; times < 2; times++) {
      expect((await ask(keeper, '/settle', { body: payment.body, key })).body).toMatchObject({
        success: false,
        errorReason: 'insufficient_funds',
      })
    }
    await stack.chain.mintUsdc([buyer.address], 10_000n)
    const [row] = await stack.database<[{ paymentId: string }]>`
      select id as "paymentId" from payment where payer = ${buyer.address.toLowerCase()}`
    expect(await positionOf(stack.database, row)).toMatchObject({ stage: null, kind: 'failed' })
  })
})

test('behavior: a seller that USDC has blacklisted delays neither other sellers nor contract wallets', async () => {
  const saysYes = '0x631626ba7e60e01b5f5260205ff3'
  const [plain, wallet, third] = await stack.buyers(3, 10_000n)
  await testClient(stack).setCode({ address: wallet.address, bytecode: saysYes })
  const blocked = randomHex(20)
  const payments = [await pay(plain), await pay(wallet), await pay(third, { payTo: blocked })]
  for (const { body } of payments)
    expect((await ask(keeper, '/verify', { body, key })).body).toMatchObject({ isValid: true })
  await setBlacklisted(stack.chain, blocked, true)
  const answers = await Promise.all(payments.map(({ body }) => ask(keeper, '/settle', { body, key })))
  expect(answers.map(({ body }) => [body.success, body.errorReason])).toEqual([
    [true, undefined],
    [true, undefined],
    [false, 'invalid_transaction_state'],
  ])
  expect(await stack.balanceOf(third.address)).toBe(10_000n)
  // After this response, verification rejects the seller's payments.
  const later = await pay(third, { payTo: blocked })
  expect((await ask(keeper, '/verify', { body: later.body, key })).body).toMatchObject({
    isValid: false,
    invalidReason: 'invalid_transaction_state',
    invalidMessage: expect.stringContaining('blacklisted'),
  })
})

describe('a settlement that is not mined in time', () => {
  test('behavior: returns settlement_pending and the transaction to a v2 caller, keeps a v1 caller waiting, and settles both payments in that transaction', async () => {
    const impatient = stack.keeper({ facilitator: { timeoutMs: 1_000, holdMs: 120_000 } })
    const hasty = stack.keeper({ facilitator: { holdMs: 1 } })
    const [two, one] = [await pay(await stack.buyer()), await pay(await stack.buyer())]
    const [v2, v1] = [two.body, toV1(one)]
    for (const body of [v2, v1])
      expect((await ask(keeper, '/verify', { body, key })).body).toMatchObject({ isValid: true })
    await testClient(stack).setAutomine(false)
    let transaction: unknown
    let waiting: Promise<Answer>[]
    try {
      waiting = [ask(keeper, '/settle', { body: v1, key })]
      const first = await ask(impatient, '/settle', { body: v2, key })
      expect(first).toMatchObject({
        status: 200,
        body: { success: false, errorReason: 'settlement_pending' },
      })
      transaction = first.body.transaction
      expect(transaction).toMatch(/^0x[0-9a-f]{64}$/)
      expect(await ask(impatient, '/settle', { body: v2, key })).toEqual(first)
      // A payment that may still be mined isn't rejected, however long that takes.
      waiting.push(ask(hasty, '/settle', { body: v1, key }))
    } finally {
      await testClient(stack).setAutomine(true)
      await testClient(stack).mine({ blocks: 1 })
    }
    let answer = await ask(impatient, '/settle', { body: v2, key })
    while (answer.body.errorReason === 'settlement_pending')
      answer = await ask(impatient, '/settle', { body: v2, key })
    expect(answer.body).toMatchObject({ success: true, transaction })
    const bodies = (await Promise.all(waiting)).map(({ body }) => body)
    for (const body of bodies) expect(body).toMatchObject({ transaction, network: 'localhost' })
    expect(bodies.map(({ errorReason }) => errorReason ?? '').toSorted()).toEqual([
      '',
      'duplicate_settlement',
    ])
  })
})

describe('which caller gets the success', () => {
  const expectSuccessOnce = async (body: unknown, served: Pick<Keeper, 'app'> = keeper) => {
    const answer = await ask(served, '/settle', { body, key })
    expect(answer.body).toMatchObject({ success: true, transaction: expect.stringMatching(/^0x/) })
    expect((await ask(served, '/settle', { body, key })).body).toMatchObject({
      success: false,
      errorReason: 'duplicate_settlement',
      transaction: answer.body.transaction,
    })
  }

  const breakOff = (served: Keeper, body: unknown, broken: Promise<unknown>) =>
    hangUp(served, '/settle', { body, key }, broken)

  test('behavior: returns success only once per payment identifier, and 409 to another payment with the same identifier', async () => {
    const buyer = await stack.buyer()
    const paymentIdentifier = `order_${randomHex(16)}`
    const { body } = await pay(buyer, { paymentIdentifier })
    await expectSuccessOnce(body)
    const other = await pay(buyer, { paymentIdentifier })
    for (const path of ['/verify', '/settle'] as const)
      expect((await ask(keeper, path, { body: other.body, key })).status).toBe(409)
    expect((await ask(keeper, '/verify', { body, key })).body.isValid).toBe(false)
  })

  test('behavior: if a waiting caller’s connection breaks, returns success once, to the next caller', async () => {
    const { body, authorization } = await pay(await stack.buyer())
    await testClient(stack).setAutomine(false)
    try {
      const isOut = until('it is sent', async () => {
        const [row] = await stack.database`
          select from queue join signed_authorization using (payment_id)
          where nonce = ${authorization.nonce} and stage = 'sent'`
        return row !== undefined
      })
      await breakOff(keeper, body, isOut)
    } finally {
      await testClient(stack).setAutomine(true)
      await testClient(stack).mine({ blocks: 1 })
    }
    await expectSuccessOnce(body)
  })

  test('behavior: if the connection breaks after the settlement is recorded but before the response, returns success to the next caller', async () => {
    const { body } = await pay(await stack.buyer())
    const marked = Promise.withResolvers<void>()
    const goOn = Promise.withResolvers<void>()
    const other = stack.keeper({
      async checkpoint(name) {
        if (name !== 'before-settle-answer') return
        marked.resolve()
        await goOn.promise
      },
    })
    // The next caller asks another keeper while the first one still gets its response.
    const next = marked.promise.then(() => expectSuccessOnce(body))
    await breakOff(other, body, marked.promise)
    goOn.resolve()
    await next
  })

  test('behavior: returns success to exactly one of several simultaneous calls to two keepers', async () => {
    const { body } = await pay(await stack.buyer())
    const twin = stack.keeper()
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, index) =>
        ask([keeper, twin][index % 2] ?? keeper, '/settle', { body, key }),
      ),
    )
    expect(answers.filter((one) => one.body.success)).toHaveLength(1)
    const reasons = answers.flatMap((one) => one.body.errorReason ?? [])
    expect(reasons).toEqual(Array.from({ length: 9 }, () => 'duplicate_settlement'))
  })
})

// This must be the last test, because it moves the chain's clock ahead.
test('behavior: rejects a version 1 payment once it has expired, however long its transaction takes', async () => {
  const chain = testClient(stack)
  const payment = await pay(await stack.buyer())
  const hasty = stack.keeper({ facilitator: { holdMs: 1 } })
  await chain.setAutomine(false)
  const first = ask(keeper, '/settle', { body: toV1(payment), key })
  await until('it is sent', async () => {
    const block = await chain.getBlock({ blockTag: 'pending' })
    return block.transactions.length > 0
  })
  const waiting = ask(hasty, '/settle', { body: toV1(payment), key })
  await chain.setNextBlockTimestamp({ timestamp: payment.authorization.validBefore })
  await chain.mine({ blocks: 1 })
  await chain.setAutomine(true)
  for (const { body } of await Promise.all([first, waiting]))
    expect(body).toMatchObject({
      success: false,
      errorReason: 'invalid_exact_evm_payload_authorization_valid_before',
    })
})
