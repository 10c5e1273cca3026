import type { Server } from 'node:http'
import { promisify } from 'node:util'
import { createAdaptorServer } from '@hono/node-server'
import { issueApiKey } from '@tollkeeper/api/registry/apiKeys'
import { findProviderPayments } from '@tollkeeper/api/views/providerPaymentQueries'
import type { Keeper } from '@tollkeeper/keeper/keeper'
import { readCaller, releaseReservations } from '@tollkeeper/ledger/acceptance/facilitations'
import { findKeyOwner, setGasGrant } from '@tollkeeper/ledger/registry/apiKeys'
import { setSuspended } from '@tollkeeper/ledger/registry/suspendProvider'
import { audit } from '@tollkeeper/sdk/audit/audit'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { createTestClient, http, type PrivateKeyAccount, parseEther } from 'viem'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { listen, urlOf } from '../../sdk/test/serve.ts'
import { createStackGateway } from '../support/keeperGateway.ts'
import { mine, moveMoney, raiseBaseFee, reorg, testClient, untilIndexed } from '../support/keeperScenes.ts'
import { useKeeperStack } from '../support/keeperStack.ts'
import { settle } from '../support/paidReceipts.ts'
import { untilInRecord } from '../support/recorder.ts'
import { giveUp, standingOf } from '../support/standing.ts'
import { countTransactions } from '../support/submit.ts'
import { until } from '../support/until.ts'
import { cancelDirectly, randomHex, sendDirectly, setBlacklisted } from '../support/usdc.ts'
import { type Answer, ask, signPayment, toV1 } from '../support/x402.ts'

// The facilitator of the x402 standard as sellers' middlewares ask it, on a real chain, Postgres and Ponder.

// What waits to be mined is told by its first transaction: none is replaced.
const stack = useKeeperStack({ replaceAfterMs: 600_000 })
let keeper: Keeper
let key: string
const facilitator = { timeoutMs: 200_000, holdMs: 250_000 }
beforeAll(async () => {
  key = stack.apiKey
  keeper = stack.keeper({ facilitator })
  keeper.start()
})
afterAll(async () => {
  await keeper?.stop()
})

const pay = async (buyer: PrivateKeyAccount, options: Partial<Parameters<typeof signPayment>[2]> = {}) =>
  signPayment(stack.served, buyer, { payTo: randomHex(20), ...options })

/** What the payer's row says was accepted of it. */
async function acceptedOf(buyer: PrivateKeyAccount): Promise<bigint> {
  const [row] = await stack.database<[{ total: bigint }?]>`
    select accepted_total as total from payer where address = ${buyer.address.toLowerCase()}`
  return BigInt(row?.total ?? 0n)
}

describe('GET /supported', () => {
  test('default: both versions of every served network, extensions, and who sends the transactions', async () => {
    const { status, body } = await ask(keeper, '/supported')
    expect(status).toBe(200)
    const extra = { name: 'USD Coin', version: '2', decimals: 6, primaryType: 'TransferWithAuthorization' }
    expect(body).toEqual({
      kinds: [
        { x402Version: 2, scheme: 'exact', network: 'eip155:31337', extra },
        { x402Version: 1, scheme: 'exact', network: 'localhost', extra },
      ],
      extensions: ['payment-identifier', 'bazaar'],
      signers: { 'eip155:*': [expect.stringMatching(/^0x[0-9a-fA-F]{40}$/)] },
    })
  })
})

describe('the key of a seller that sends no header of ours', () => {
  const basic = (pair: string) => `Basic ${Buffer.from(pair).toString('base64')}`

  test('default: by path and by Basic auth it is the same caller; what isn’t a key is 401', async () => {
    const { body } = await pay(await stack.buyer())
    const url = `/k/${key}` as const
    expect((await ask(keeper, `${url}/supported`)).body).toEqual((await ask(keeper, '/supported')).body)
    expect(await ask(keeper, `${url}/verify`, { body })).toMatchObject({ body: { isValid: true } })
    const settled = await ask(keeper, '/settle', { body, authorization: basic(`seller:${key}`) })
    expect(settled.body).toMatchObject({ success: true })
    const again = await pay(await stack.buyer())
    expect(await ask(keeper, '/verify', { body: again.body, authorization: basic(`${key}:`) })).toMatchObject(
      {
        body: { isValid: true },
      },
    )
    const [row] = await stack.database`
      select count(distinct provider_id)::int as callers, count(*)::int as payments from facilitation
      where payment_id in (select payment_id from signed_authorization where nonce in ${stack.database(
        [body, again.body].map(
          (one) =>
            (one.paymentPayload as { payload: { authorization: { nonce: string } } }).payload.authorization
              .nonce,
        ),
      )})`
    expect(row).toEqual({ callers: 1, payments: 2 })
    const wrong = key.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'))
    for (const path of [`/k/${wrong}/verify`, '/k/x/settle', `/k/${wrong}/accepts`] as const)
      expect((await ask(keeper, path, { body })).status).toBe(401)
    for (const authorization of [basic(`seller:${wrong}`), basic(''), 'Basic !', `Basic ${key}`])
      expect((await ask(keeper, '/verify', { body, authorization })).status).toBe(401)
    // Another program's own header beside it changes nothing.
    expect((await ask(keeper, `${url}/verify`, { body, authorization: 'Bearer theirs' })).status).toBe(200)
  })
})

describe('POST /accepts', () => {
  test('default: in the form that was asked in; 400 what is no form or isn’t served', async () => {
    const asked = { scheme: 'exact', network: 'eip155:31337', amount: '10000', payTo: randomHex(20) }
    const body = { x402Version: 2, resource: { url: 'https://seller.example/' }, accepts: [asked] }
    expect(await ask(keeper, '/accepts', { body, key })).toMatchObject({
      status: 200,
      body: { accepts: [{ ...asked, asset: stack.served.token, extra: { name: 'USD Coin' } }] },
    })
    const priced = { resourceUrl: 'https://seller.example/', network: 'eip155:31337', price: '$0.01' }
    const withWallet = { ...priced, serverWalletAddress: asked.payTo }
    expect(await ask(keeper, `/k/${key}/accepts`, { body: withWallet })).toMatchObject({
      status: 402,
      body: { accepts: [{ maxAmountRequired: '10000' }] },
    })
    const elsewhere = { ...withWallet, network: 'eip155:1' }
    const statuses = [priced, '{', elsewhere].map(
      async (one) => (await ask(keeper, '/accepts', { body: one, key })).status,
    )
    expect(await Promise.all(statuses)).toEqual([400, 400, 400])
    expect((await ask(keeper, '/accepts', { body })).status).toBe(401)
  })
})

describe('what a payment declares', () => {
  const resource = 'https://tides.example/today'
  const declaration = {
    info: {
      input: { type: 'http', method: 'GET', queryParams: { sea: 'Baltic' } },
      output: { type: 'json', example: {} },
    },
    schema: {
      type: 'object',
      properties: { input: { type: 'object', required: ['type', 'method'] }, output: { type: 'object' } },
      required: ['input'],
    },
  }
  const declare = async (bazaar: unknown, more: object = {}) => {
    const payTo = randomHex(20)
    const { body } = await pay(await stack.buyer(), { payTo, resource })
    const { paymentPayload } = body as { paymentPayload: { resource: object } }
    Object.assign(paymentPayload, { extensions: { bazaar } })
    Object.assign(paymentPayload.resource, { description: 'Tides', mimeType: 'application/json', ...more })
    return { payTo, body }
  }
  const send = async (path: '/verify' | '/settle', body: unknown) => {
    const response = await keeper.app.request(path, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
    })
    const told = response.headers.get('extension-responses')
    return {
      body: (await response.json()) as Record<string, unknown>,
      listing: told === null ? null : JSON.parse(Buffer.from(told, 'base64').toString()),
    }
  }
  const sold = async (payTo: string) => {
    const response = await stack.keeper({ facilitator }).app.request(`/discovery/merchant?payTo=${payTo}`)
    return ((await response.json()) as { resources: object[] }).resources
  }

  test('default: it is listed once it settles, under the wallet that was paid, and not before', async () => {
    const { payTo, body } = await declare(declaration, {
      serviceName: 'Tides',
      tags: ['sea', 'x'.repeat(33)],
    })
    expect(await send('/verify', body)).toMatchObject({
      body: { isValid: true },
      listing: { bazaar: { status: 'processing' } },
    })
    expect(await sold(payTo)).toEqual([])
    expect(await send('/settle', body)).toMatchObject({
      body: { success: true },
      listing: { bazaar: { status: 'success' } },
    })
    expect(await sold(payTo)).toMatchObject([
      {
        resource,
        type: 'http',
        x402Version: 2,
        description: 'Tides',
        serviceName: 'Tides',
        tags: ['sea'],
        accepts: [
          { scheme: 'exact', network: 'eip155:31337', amount: '10000', payTo, maxTimeoutSeconds: 300 },
        ],
        extensions: { bazaar: declaration },
        quality: { proven: false },
      },
    ])
    const found = await keeper.app.request('/discovery/search?query=tides')
    expect(await found.json()).toMatchObject({ resources: [{ resource }] })
  })

  test.each([
    [{ ...declaration, info: { input: { type: 'ftp' } } }, {}, 'info.input.type'],
    [{ ...declaration, info: { input: { type: 'http' } } }, {}, 'info breaks schema'],
    [{ ...declaration, schema: { $ref: 'https://internal.example/' } }, {}, 'references are not followed'],
    ['text', {}, 'info.input.type'],
    [{ ...declaration, info: { input: { type: 'http', method: { toString: 1 } } } }, {}, 'info.input.method'],
    [JSON.parse(`${'['.repeat(2_000)}${']'.repeat(2_000)}`), {}, 'at most 64 levels'],
    [declaration, { description: 'x'.repeat(501) }, 'at most 500 characters'],
    [{ ...declaration, padding: 'x'.repeat(17_000) }, {}, 'at most 16384 bytes'],
  ])(
    'error: what can’t be listed is paid all the same, and its seller hears why: %#',
    async (bazaar, more, why) => {
      const { payTo, body } = await declare(bazaar, more)
      const rejected = { bazaar: { status: 'rejected', rejectedReason: expect.stringContaining(why) } }
      expect(await send('/verify', body)).toMatchObject({ body: { isValid: true }, listing: rejected })
      expect(await send('/settle', body)).toMatchObject({ body: { success: true }, listing: rejected })
      expect(await sold(payTo)).toEqual([])
    },
  )

  test('args: version 1 declares it by outputSchema', async () => {
    const payTo = randomHex(20)
    const body = toV1(await pay(await stack.buyer(), { payTo })) as { paymentRequirements: object }
    const input = { type: 'http', method: 'POST', discoverable: true, bodyFields: { sea: 'Baltic' } }
    Object.assign(body.paymentRequirements, {
      outputSchema: { input, output: { tide: 'low' } },
      maxTimeoutSeconds: 60,
    })
    expect(await send('/settle', body)).toMatchObject({
      body: { success: true },
      listing: { bazaar: { status: 'success' } },
    })
    expect(await sold(payTo)).toMatchObject([
      {
        x402Version: 1,
        accepts: [{ network: 'localhost', maxAmountRequired: '10000', maxTimeoutSeconds: 60 }],
        extensions: {
          bazaar: { info: { input: { method: 'POST', bodyType: 'json', body: { sea: 'Baltic' } } } },
        },
      },
    ])
  })

  test('behavior: a payment that declares nothing says nothing; off, nothing is listed', async () => {
    const { body } = await pay(await stack.buyer())
    expect((await send('/verify', body)).listing).toBeNull()
    const silent = stack.keeper({ facilitator, discovery: null })
    expect((await silent.app.request('/discovery/resources')).status).toBe(404)
    expect(await (await silent.app.request('/supported')).json()).toMatchObject({
      extensions: ['payment-identifier'],
    })
  })
})

describe('POST /verify', () => {
  test('behavior: of ten copies of a payment at once, one is valid', async () => {
    const { body } = await pay(await stack.buyer())
    const answers = await Promise.all(Array.from({ length: 10 }, () => ask(keeper, '/verify', { body, key })))
    expect(answers.every(({ status }) => status === 200)).toBe(true)
    expect(answers.filter((answer) => answer.body.isValid)).toHaveLength(1)
    const refused = answers.filter((answer) => !answer.body.isValid)
    expect(new Set(refused.map((answer) => answer.body.invalidReason))).toEqual(
      new Set(['duplicate_settlement']),
    )
  })

  test('behavior: of ten payments at once on a balance for one, one is valid', async () => {
    const buyer = await stack.buyer(10_000n)
    const payments = await Promise.all(Array.from({ length: 10 }, () => pay(buyer)))
    const answers = await Promise.all(payments.map(({ body }) => ask(keeper, '/verify', { body, key })))
    expect(answers.filter((answer) => answer.body.isValid)).toHaveLength(1)
    expect(answers.find((answer) => !answer.body.isValid)?.body.invalidReason).toBe('insufficient_funds')
    expect(await acceptedOf(buyer)).toBe(10_000n)
  })

  test('behavior: a reservation that lapsed gives authorization and balance back, also before the upkeep', async () => {
    const brief = stack.keeper({ facilitator: { reserveMs: 1 } })
    const buyer = await stack.buyer(10_000n)
    const [first, second] = [await pay(buyer), await pay(buyer)]
    for (const { body } of [first, first, second, first]) {
      expect((await ask(brief, '/verify', { body, key })).body).toMatchObject({ isValid: true })
      await until('it has lapsed', async () => {
        const [row] = await stack.database<[{ over: boolean }]>`
          select coalesce(bool_and(next_at < now()), true) as over from queue where payer = ${buyer.address.toLowerCase()}`
        return row.over
      })
    }
  })

  test('behavior: money that left the wallet buys nothing any more, however it left', async () => {
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
    // The reservation that its buyer used lapses: what it was for is gone all the same.
    await stack.database`
      update queue set next_at = now() - interval '1 second'
      where payment_id = (select payment_id from signed_authorization where nonce = ${used.authorization.nonce})`
    await releaseReservations(stack.database, new Date())
    expect(await verify(third)).toMatchObject(short)
    expect(await acceptedOf(buyer)).toBe(20_000n)

    const rich = await stack.buyer(1_000_000n)
    expect(await verify(await pay(rich))).toMatchObject({ isValid: true })
    await sendDirectly(stack, (await pay(rich, { value: 990_000n })).authorization)
    expect(await verify(await pay(rich))).toMatchObject(short)
  })

  test('error: what is wrong with a payment gets the standard’s word for it, and HTTP 200', async () => {
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

  test('error: a payer in debt gets a verdict, like every other', async () => {
    const buyer = await stack.buyer()
    const { paymentId } = await stack.queue({ buyer, price: 50_000n, acceptedAt: new Date() })
    await giveUp(stack.database, [paymentId], 'insufficient_balance')
    const { body } = await pay(buyer)
    expect(await ask(keeper, '/verify', { body, key })).toMatchObject({
      status: 200,
      body: { isValid: false, invalidReason: 'invalid_transaction_state' },
    })
  })

  test('error: no verdict on what is malformed or asked without a key', async () => {
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

  test('error: a read-only key reserves and settles nothing, and submits nothing', async () => {
    const providerId = (await findKeyOwner(stack.database, key)) as string
    const { apiKey: reading } = await issueApiKey(stack.database, providerId, { scope: 'read' })
    const { body } = await pay(await stack.buyer())
    for (const path of ['/verify', '/settle', '/submit'] as const)
      expect(await ask(keeper, path, { body, key: reading })).toMatchObject({
        status: 403,
        body: { code: 'forbidden' },
      })
  })

  test('behavior: what is reserved is settled by nobody else through us', async () => {
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

describe('POST /settle', () => {
  test('default: verified, settled, and answered with the transaction', async () => {
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

  test('behavior: without a verification before, it verifies', async () => {
    const { body } = await pay(await stack.buyer())
    expect((await ask(keeper, '/settle', { body, key })).body.success).toBe(true)
    const poor = await pay(await stack.buyer(0n))
    expect(await ask(keeper, '/settle', { body: poor.body, key })).toMatchObject({
      status: 200,
      body: { success: false, errorReason: 'insufficient_funds', transaction: '', network: 'eip155:31337' },
    })
  })

  test('behavior: of ten calls at once for one payment, one succeeds', async () => {
    const { body } = await pay(await stack.buyer())
    const answers = await Promise.all(Array.from({ length: 10 }, () => ask(keeper, '/settle', { body, key })))
    expect(answers.filter((answer) => answer.body.success)).toHaveLength(1)
    const others = answers.filter((answer) => !answer.body.success)
    expect(new Set(others.map((answer) => answer.body.errorReason))).toEqual(
      new Set(['duplicate_settlement']),
    )
  })

  test('behavior: a payment verified for one resource is not settled for another, nor for another seller', async () => {
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

  test('behavior: a hundred at once settle in at most three transactions', async () => {
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

  test('error: what fails is over: it is answered the same again, and never settled later', async () => {
    const buyer = await stack.buyer(10_000n)
    const payment = await pay(buyer)
    expect((await ask(keeper, '/verify', { body: payment.body, key })).body.isValid).toBe(true)
    // The buyer takes its money elsewhere, by another authorization.
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
    expect(await standingOf(stack.database, row)).toMatchObject({ stage: null, kind: 'failed' })
  })
})

test('behavior: a seller that USDC has blacklisted stops neither other sellers nor payers with code', async () => {
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
  // From then on it is refused at the door.
  const later = await pay(third, { payTo: blocked })
  expect((await ask(keeper, '/verify', { body: later.body, key })).body).toMatchObject({
    isValid: false,
    invalidReason: 'invalid_transaction_state',
    invalidMessage: expect.stringContaining('blacklisted'),
  })
})

describe('what is not mined in time', () => {
  test('behavior: v2 hears settlement_pending, and by which transaction; v1 waits; both are settled by it', async () => {
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
      // However long it takes: what may be mined yet isn't refused.
      waiting.push(ask(hasty, '/settle', { body: v1, key }))
    } finally {
      await testClient(stack).setAutomine(true)
      await testClient(stack).mine({ blocks: 1 })
    }
    let told = await ask(impatient, '/settle', { body: v2, key })
    while (told.body.errorReason === 'settlement_pending')
      told = await ask(impatient, '/settle', { body: v2, key })
    expect(told.body).toMatchObject({ success: true, transaction })
    const bodies = (await Promise.all(waiting)).map(({ body }) => body)
    for (const body of bodies) expect(body).toMatchObject({ transaction, network: 'localhost' })
    expect(bodies.map(({ errorReason }) => errorReason ?? '').toSorted()).toEqual([
      '',
      'duplicate_settlement',
    ])
  })

  test('behavior: what was never signed is given up before its seller hears so, and never settled', async () => {
    const idle = stack.keeper({ facilitator: { timeoutMs: 1, holdMs: 50 } })
    await keeper.stop()
    const payTo = randomHex(20)
    const [given, other] = [
      await pay(await stack.buyer(), { payTo }),
      await pay(await stack.buyer(), { payTo }),
    ]
    const refusal = {
      body: {
        success: false,
        errorReason: 'unexpected_settle_error',
        transaction: '',
        errorMessage: expect.stringContaining('will not be sent'),
      },
    }
    expect(await ask(idle, '/settle', { body: given.body, key })).toMatchObject(refusal)
    keeper = stack.keeper({ facilitator })
    keeper.start()
    expect((await ask(keeper, '/settle', { body: other.body, key })).body.success).toBe(true)
    expect(await ask(keeper, '/settle', { body: given.body, key })).toMatchObject(refusal)
    expect(await stack.balanceOf(payTo)).toBe(10_000n)
  })
})

describe('a no that stays true', () => {
  test('behavior: what its payer cancels is given up before its seller hears so: a reorg of that settles nothing', async () => {
    const [buyer, other] = [await stack.buyer(), await stack.buyer()]
    const [payment, later] = [await pay(buyer), await pay(other)]
    expect((await ask(keeper, '/verify', { body: payment.body, key })).body.isValid).toBe(true)
    const snapshot = await testClient(stack).snapshot()
    await cancelDirectly(stack, buyer, payment.authorization.nonce)
    expect((await ask(keeper, '/settle', { body: payment.body, key })).body).toMatchObject({
      success: false,
      errorReason: 'invalid_transaction_state',
    })
    await reorg(stack, snapshot)
    expect((await ask(keeper, '/settle', { body: later.body, key })).body.success).toBe(true)
    expect(await stack.balanceOf(buyer.address)).toBe(1_000_000n)
  })

  test.each(['is final', 'is gone'])(
    'behavior: what failed in a transaction of ours is refused once that is final: when its block %s',
    async (fate) => {
      const chain = testClient(stack)
      const buyer = await stack.buyer(10_000n)
      await chain.setBalance({ address: buyer.address, value: parseEther('10') })
      const payment = await pay(buyer)
      const patient = stack.keeper({ facilitator: { timeoutMs: 2_000 } })
      const settle = () => ask(patient, '/settle', { body: payment.body, key })
      const pending = { success: false, errorReason: 'settlement_pending' }
      await untilIndexed(stack)
      const snapshot = await chain.snapshot()
      await chain.setAutomine(false)
      expect((await settle()).body).toMatchObject(pending)
      // Its money goes elsewhere in the block before.
      await moveMoney(stack, buyer, 10_000n)
      await chain.mine({ blocks: 1 })
      await chain.setAutomine(true)
      await until('it failed', async () => {
        const [row] = await stack.database`
          select from outcome join signed_authorization using (payment_id)
          where nonce = ${payment.authorization.nonce} and kind = 'failed'`
        return row !== undefined
      })
      expect((await settle()).body).toMatchObject(pending)
      if (fate === 'is gone') await reorg(stack, snapshot)
      let answer = await settle()
      while (answer.body.errorReason === 'settlement_pending') {
        await untilIndexed(stack)
        await mine(stack, 10)
        answer = await settle()
      }
      if (fate === 'is gone') expect(answer.body).toMatchObject({ success: true })
      else expect(answer.body).toMatchObject({ success: false, errorReason: 'insufficient_funds' })
    },
  )
})

describe('the gas', () => {
  test('behavior: a key’s is its provider’s grant, or else what all share; what is given is never overdrawn', async () => {
    const drawn = async () =>
      Object.fromEntries(
        (await stack.database<{ drawer: string; drawn: bigint }[]>`select drawer, drawn from gas_draw`).map(
          (row) => [row.drawer.slice(0, 4), row.drawn],
        ),
      )
    await raiseBaseFee(stack)
    const poor = stack.keeper({
      settings: { ...stack.settings, gasAllowance: 0n },
      facilitator: { isOpen: true },
    })
    const { body } = await pay(await stack.buyer())
    for (const path of ['/verify', '/settle'] as const) {
      for (const by of [{}, { key }]) {
        const refused = await ask(poor, path, { body, ...by })
        expect(refused.status).toBe(200)
        expect(JSON.stringify(refused.body)).toContain(`unexpected_${path.slice(1)}_error`)
        expect(JSON.stringify(refused.body)).toContain('covers its gas')
      }
    }
    const before = await drawn()
    const providerId = (await findKeyOwner(stack.database, key)) ?? ''
    await setGasGrant(stack.database, providerId, 1_000_000_000n)
    expect((await ask(poor, '/verify', { body, key })).body.isValid).toBe(true)
    const reserved = await drawn()
    expect(reserved.comm).toBe(before.comm)
    expect(reserved.prov).toBeGreaterThan(before.prov ?? 0n)
    // What was verified is settled, and gives back what it didn't cost.
    expect((await ask(keeper, '/settle', { body, key })).body.success).toBe(true)
    expect((await drawn()).prov).toBeLessThan(reserved.prov ?? 0n)
    await setGasGrant(stack.database, providerId, 0n)
  })

  test('behavior: without an API key only plain accounts pay, where that is open', async () => {
    const open = stack.keeper({
      facilitator: { isOpen: true },
    })
    const buyer = await stack.buyer()
    const { body } = await pay(buyer)
    expect((await ask(open, '/settle', { body })).body.success).toBe(true)
    const wallet = await stack.buyer()
    const delegated = await pay(wallet)
    const node = createTestClient({ mode: 'hardhat', transport: http(stack.chain.url) })
    await node.setCode({ address: wallet.address, bytecode: '0x00' })
    expect((await ask(open, '/verify', { body: delegated.body })).body.invalidReason).toBe(
      'invalid_exact_evm_payload_signature',
    )
  })
})

describe('callers', () => {
  test('behavior: of a suspended provider nothing new is taken, and what was verified before settles', async () => {
    const providerId = (await findKeyOwner(stack.database, key)) ?? ''
    const [verified, later] = [await pay(await stack.buyer()), await pay(await stack.buyer())]
    expect((await ask(keeper, '/verify', { body: verified.body, key })).body.isValid).toBe(true)
    expect(await setSuspended(stack.database, providerId, new Date())).toBe(true)
    // What a keeper knows of a caller is a second old at most; another one asks for the first time.
    const other = stack.keeper()
    for (const path of ['/verify', '/settle'] as const) {
      const { body } = await ask(other, path, { body: later.body, key })
      expect(JSON.stringify(body)).toContain('this provider is disabled')
    }
    // A new key of its owner's doesn't help for its wallet.
    const toWallet = await pay(await stack.buyer(), { payTo: stack.payee })
    const { body: refused } = await ask(other, '/verify', { body: toWallet.body, key: stack.grantedKey })
    expect(JSON.stringify(refused)).toContain('this provider is disabled')
    expect((await ask(other, '/settle', { body: verified.body, key })).body.success).toBe(true)
    expect(await setSuspended(stack.database, providerId, null)).toBe(true)
    const again = stack.keeper()
    expect((await ask(again, '/verify', { body: later.body, key })).body.isValid).toBe(true)
  })

  test('behavior: keys of nobody, and requests without one, are counted by address; a seller is not held up', async () => {
    const open = stack.keeper({
      facilitator: { isOpen: true },
    })
    const { body } = await pay(await stack.buyer())
    const guess = () => ask(open, '/verify', { body, key: `tk_${randomHex(16).slice(2)}_${'a'.repeat(43)}` })
    // A minute may end in between, once.
    const statuses: number[] = []
    while (!statuses.includes(429) && statuses.length <= 1_200) {
      const answers = await Promise.all(Array.from({ length: 100 }, guess))
      statuses.push(...answers.map(({ status }) => status))
    }
    expect(new Set(statuses)).toEqual(new Set([401, 429]))
    // Known by now, so that nothing needs to be looked up.
    expect((await ask(keeper, '/verify', { body, key })).body.isValid).toBe(true)
    expect((await ask(keeper, '/settle', { body, key })).body.success).toBe(true)
  })
})

describe('who is told that it is settled', () => {
  const expectTold = async (body: unknown, served: Pick<Keeper, 'app'> = keeper) => {
    const told = await ask(served, '/settle', { body, key })
    expect(told.body).toMatchObject({ success: true, transaction: expect.stringMatching(/^0x/) })
    expect((await ask(served, '/settle', { body, key })).body).toMatchObject({
      success: false,
      errorReason: 'duplicate_settlement',
      transaction: told.body.transaction,
    })
  }

  /** Asks over a connection, and breaks it when `broken` comes. */
  async function hangUp(served: Keeper, body: unknown, broken: Promise<unknown>): Promise<void> {
    const server = createAdaptorServer({ fetch: served.app.fetch }) as Server
    await listen(server)
    const connection = new AbortController()
    const asked = fetch(`${urlOf(server)}/settle`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
      body: JSON.stringify(body),
      signal: connection.signal,
    })
    await broken
    connection.abort()
    await expect(asked).rejects.toThrow()
    const countConnections = promisify(server.getConnections.bind(server))
    await until('the server knows', async () => (await countConnections()) === 0)
    server.close()
  }

  test('behavior: a payment identifier repeats no success; another payment under it 409', async () => {
    const buyer = await stack.buyer()
    const paymentIdentifier = `order_${randomHex(16)}`
    const { body } = await pay(buyer, { paymentIdentifier })
    await expectTold(body)
    const other = await pay(buyer, { paymentIdentifier })
    for (const path of ['/verify', '/settle'] as const)
      expect((await ask(keeper, path, { body: other.body, key })).status).toBe(409)
    expect((await ask(keeper, '/verify', { body, key })).body.isValid).toBe(false)
  })

  test('behavior: whose connection broke while it waited was not told: the next is, and nobody after', async () => {
    const { body, authorization } = await pay(await stack.buyer())
    await testClient(stack).setAutomine(false)
    try {
      const isOut = until('it is sent', async () => {
        const [row] = await stack.database`
          select from queue join signed_authorization using (payment_id)
          where nonce = ${authorization.nonce} and stage = 'sent'`
        return row !== undefined
      })
      await hangUp(keeper, body, isOut)
    } finally {
      await testClient(stack).setAutomine(true)
      await testClient(stack).mine({ blocks: 1 })
    }
    await expectTold(body)
  })

  test('behavior: nor was whose connection broke between the mark and the answer', async () => {
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
    // The next asks while the first is being told, by another keeper.
    const next = marked.promise.then(() => expectTold(body))
    await hangUp(other, body, marked.promise)
    goOn.resolve()
    await next
  })

  test('behavior: of twins at two keepers one is told', async () => {
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

describe('the provider’s views', () => {
  test('behavior: its payments are in revenue, statement, export, status and webhooks like all others', async () => {
    // A seller that has sold nothing yet.
    const otherKey = stack.grantedKey
    const providerId = await findKeyOwner(stack.database, otherKey)
    const payTo = randomHex(20)
    const gateway = createStackGateway(stack)
    const get = async (path: string) => {
      const answer = await gateway.request(path, { headers: { authorization: `Bearer ${otherKey}` } })
      expect(answer.status, path).toBe(200)
      const text = await answer.text()
      return text.startsWith('{') ? JSON.parse(text) : text
    }
    const today = new Date().toISOString().slice(0, 10)
    const { body } = await pay(await stack.buyer(), { payTo, value: 77_777n })
    const { transaction } = (await ask(keeper, '/settle', { body, key: otherKey })).body
    await untilIndexed(stack)
    const own = {
      payments: 1,
      settledPayments: 1,
      gross_usdc: '0.077777',
      fee_usdc: '0.000000',
      net_usdc: '0.077777',
    }
    const { revenue } = await get(`/providers/${providerId}/revenue`)
    expect(revenue).toMatchObject([own])
    expect(await get(`/providers/${providerId}/statement?month=${today.slice(0, 7)}`)).toMatchObject({
      networks: [own],
    })
    const csv = await get(`/providers/${providerId}/statement?month=${today.slice(0, 7)}&format=csv`)
    expect(csv).toContain(`${transaction}`)
    expect(await get(`/settlements/export?wallet=${payTo}&start=${today}&end=2100-01-01`)).toContain(
      `,0.077777,`,
    )
    expect(await get(`/settlements/batches?wallet=${payTo}`)).toMatchObject({
      batches: [{ payment_count: 1, total_usdc: '0.077777', tx_hash: transaction }],
    })
    await mine(stack, 3)
    await until('the webhook is on its way', async () => {
      const rows = await stack.database<
        { event: string }[]
      >`select event from outbox where tx_hash = ${String(transaction)}`
      return rows.some(({ event }) => event === 'payment.settled')
    })
  })

  test('behavior: an auditor finds it without a receipt, under the transaction and nonce of the answer', async () => {
    const payTo = randomHex(20)
    const buyer = await stack.buyer()
    const { body } = await pay(buyer, { payTo })
    const { transaction, extra } = (await ask(keeper, '/settle', { body, key })).body
    const report = await audit({
      receipts: [],
      jwks: { keys: [] },
      rpcUrls: [stack.chain.url],
      deployments: stack.chain.deployments,
      confirmations: 0,
      wallets: [payTo],
    })
    const { nonce } = extra as { nonce: string }
    const found = { direction: 'in', from: buyer.address.toLowerCase(), value: 10_000n, nonce }
    expect(report).toMatchObject({
      reconciled: false,
      wallets: [
        { transfers: 1, plainTransfers: 0, unreceipted: [{ ...found, transactionHash: transaction }] },
      ],
    })
  })

  test('behavior: its payments are in its list, apart from the gateway’s by their source', async () => {
    const buyer = await stack.buyer()
    const { body } = await pay(buyer)
    const reserved = await pay(buyer)
    const settled = await ask(keeper, '/settle', { body, key })
    expect((await ask(keeper, '/verify', { body: reserved.body, key })).body.isValid).toBe(true)
    const [{ providerId }] = await stack.database<[{ providerId: string }]>`
      select provider_id as "providerId" from facilitation where payer = ${buyer.address.toLowerCase()} limit 1`
    const payer = buyer.address.toLowerCase() as `0x${string}`
    const { payments } = await findProviderPayments(stack.database, {
      providerId,
      payer,
      after: null,
      limit: 10,
      now: new Date(),
    })
    // What is only reserved is nobody's payment yet.
    expect(payments).toHaveLength(1)
    expect(payments[0]).toMatchObject({
      source: 'facilitator',
      endpointId: null,
      payment_status: 'settled',
      transactionHash: settled.body.transaction,
      providerUsdc: 10_000n,
      platformUsdc: 0n,
    })
  })
})

describe('a crowd', () => {
  test('behavior: beside 320 open settlements of one key, two honest ones go out with the next batch', async () => {
    await keeper.stop()
    const buyers = await stack.buyers(322, 10_000n)
    // Earlier tests verified what nobody settles: that would lapse while this one counts.
    await releaseReservations(stack.database, new Date(Date.now() + 3_600_000))
    const { open } = await readCaller(stack.database, (await findKeyOwner(stack.database, key)) ?? '')
    const maxOpen = open + 320
    const crowd = stack.keeper({ facilitator: { ...facilitator, maxOpen } })
    const payments = await Promise.all(buyers.map((buyer) => pay(buyer)))
    const isDue = (count: number) =>
      until(`${count} wait`, async () => {
        const [row] = await stack.database<[{ due: number }]>`
          select count(*)::int as due from queue where stage = 'waiting' and due_at is not null`
        return row.due === count
      })
    const settling = payments.slice(0, 320).map(({ body }) => ask(crowd, '/settle', { body, key }))
    await isDue(320)
    // Over its limit it is told so.
    const refused = await ask(crowd, '/verify', { body: (await pay(await stack.buyer())).body, key })
    expect(refused.body).toMatchObject({
      isValid: false,
      invalidReason: 'unexpected_verify_error',
      invalidMessage: expect.stringContaining(`${maxOpen} payments open: try again`),
    })
    const honest = payments.slice(320)
    settling.push(...honest.map(({ body }) => ask(crowd, '/settle', { body, key: stack.grantedKey })))
    await isDue(322)
    keeper = stack.keeper({ facilitator })
    const [{ last }] = await stack.database<
      [{ last: bigint }]
    >`select coalesce(max(id), 0) as last from batch`
    keeper.start()
    for (const { body } of await Promise.all(settling)) expect(body).toMatchObject({ success: true })
    const nonces = honest.map(({ authorization }) => authorization.nonce)
    const rows = await stack.database<{ place: number }[]>`
      select (select count(*)::int from batch earlier where earlier.id > ${last} and earlier.id <= i.batch_id) as place
      from batch_item i join signed_authorization using (payment_id) where nonce = any(${nonces}::text[])`
    expect(rows).toEqual([{ place: 1 }, { place: 1 }])
  })
})

// Last: the chain's clock is ahead from then on.
test('behavior: version 1 is refused once it has run out, however long its transaction takes', async () => {
  const chain = testClient(stack)
  const payment = await pay(await stack.buyer())
  const hasty = stack.keeper({ facilitator: { holdMs: 1 } })
  await chain.setAutomine(false)
  const first = ask(keeper, '/settle', { body: toV1(payment), key })
  await until('it is out', async () => {
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
