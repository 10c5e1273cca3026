import { endPayments } from '@tollkeeper/ledger/queue/stages'
import { setGasGrant } from '@tollkeeper/ledger/registry/apiKeys'
import { changeSales } from '@tollkeeper/ledger/registry/salesStop'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { encodePayload, parsePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { decodeReceipt } from '@tollkeeper/sdk/protocol/receipt'
import { refundNonce } from '@tollkeeper/sdk/protocol/refund'
import { type Address, type Hex, zeroHash } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { beforeAll, expect, test } from 'vitest'
import { type Answer, call, gatewayIssuer, pay, settleDirectly } from '../../../test/support/gateway.ts'
import { testClient } from '../../../test/support/keeperScenes.ts'
import { expire, failPayments } from '../../../test/support/paymentPosition.ts'
import { storePayments } from '../../../test/support/seedPayments.ts'
import { randomHex, readBalance, signAuthorization } from '../../../test/support/usdc.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { findProviderRefunds, sumRefunds } from '../records/refunds.ts'

const gateway = useGateway()
const shop = useShop(gateway)
let wallet: PrivateKeyAccount

beforeAll(async () => {
  wallet = await gateway.buyer(1_000_000n)
  await call(gateway.app, 'POST', `/providers/${shop.providerId}/wallets`, {
    json: { network: 'localhost', address: wallet.address },
    key: shop.key,
  })
})

/** Code of two contract wallets: the first accepts any signature (ERC-1271), the second answers with zeros. */
const [saysYes, saysNo] = ['0x631626ba7e60e01b5f5260205ff3', '0x5f5f5260205ff3'] as const

type Paid = { paymentId: string; payer: PrivateKeyAccount; payloads: readonly string[] }

async function paySettled(): Promise<Paid> {
  const paid = await pay(gateway, shop)
  for (const payload of paid.payloads) await settleDirectly(gateway, payload)
  await gateway.served.client.request({ method: 'evm_mine', params: [] } as never)
  await gateway.index()
  return paid
}

type Change = Partial<SignedAuthorization> & { number?: number; signer?: PrivateKeyAccount }

async function signRefund({ paymentId, payer }: Paid, change: Change = {}): Promise<string> {
  const { number = 1, signer = wallet, ...rest } = change
  const signed = await signAuthorization(gateway.served, signer, {
    from: signer.address.toLowerCase() as Address,
    to: payer.address.toLowerCase() as Address,
    value: 50_000n,
    validAfter: 0n,
    validBefore: BigInt(Math.floor(Date.now() / 1000) + 86_400),
    nonce: refundNonce(gatewayIssuer, paymentId, number),
    ...rest,
  })
  return encodePayload(signed)
}

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const at = ({ paymentId }: Paid) => `/providers/${shop.providerId}/payments/${paymentId}/refunds`
const list = async (paid: Paid) => (await call<Body>(gateway.app, 'GET', at(paid), { key: shop.key })).body
const post = (paid: Paid, payload: string): Promise<Answer<Body>> =>
  call<Body>(gateway.app, 'POST', at(paid), { key: shop.key, json: { payload } })
const ask = async (paid: Paid, change?: Change) => post(paid, await signRefund(paid, change))

/** Writes the keeper's record of a refund that can't move any more: it expired, or its nonce was used elsewhere. */
async function bury(paid: Paid, number: number): Promise<void> {
  const paymentId = (await refundsOf(paid))[number - 1] ?? ''
  await expire(gateway.database, { paymentId })
  const ending = { paymentId, kind: 'failed', code: 'authorization_expired', isFinal: true } as const
  await endPayments(gateway.database, [ending], new Date())
}

/** Reads the ids of a payment's refunds, in the order of their numbers. */
async function refundsOf({ paymentId }: Paid): Promise<string[]> {
  const rows = await gateway.database<{ id: string }[]>`
    select payment_id as id from refund where of_payment_id = ${paymentId} order by number`
  return rows.map(({ id }) => id)
}

test('default: refunds a settled payment; the same request again returns the same refund', async () => {
  const paid = await paySettled()
  const payer = paid.payer.address.toLowerCase()
  const nonce = refundNonce(gatewayIssuer, paid.paymentId, 1)
  expect(await list(paid)).toMatchObject({
    paymentId: paid.paymentId,
    network: 'localhost',
    asset: gateway.served.token,
    payer,
    paidUsdc: '50000',
    refundableUsdc: '50000',
    minimumUsdc: '5000',
    refunds: [],
    next: { number: 1, nonce },
  })
  const payload = await signRefund(paid)
  const answer = await post(paid, payload)
  const refund = { number: 1, refund_status: 'verified', to: payer, valueUsdc: '50000', nonce }
  expect(answer).toMatchObject({ status: 201, body: { ...refund, transactionHash: null } })
  expect(await post(paid, payload)).toEqual(answer)
  expect(await list(paid)).toMatchObject({ refundableUsdc: '0', refunds: [refund], next: { number: 2 } })
  expect((await call<Body>(gateway.app, 'GET', `/payments/${paid.paymentId}`)).body).toMatchObject({
    payment_status: 'settled',
    refunds: [refund],
  })

  await settleDirectly(gateway, payload)
  const [settled] = (await list(paid)).refunds
  const { receipt } = (await call<Body>(gateway.app, 'GET', `/receipts/${paid.paymentId}`)).body
  expect(decodeReceipt(receipt)).toMatchObject({
    status: 'settled',
    refunds: [{ number: 1, from: settled.from, value: '50000', nonce, transactionHash: zeroHash }],
  })
  expect(settled).toMatchObject({ refund_status: 'settled', settledAt: expect.any(String) })
  // The refund isn't in the provider's lists and sums of payments, but is shown with its payment and in the statement.
  const view = async (path: string) => {
    const { providerId, key } = shop
    return (await call<Body>(gateway.app, 'GET', `/providers/${providerId}/${path}`, { key })).body
  }
  expect((await view('payments')).payments).toMatchObject([
    { paymentId: paid.paymentId, payment_status: 'settled', refundedUsdc: '50000' },
  ])
  expect(await view(`payments/${paid.paymentId}/timeline`)).toMatchObject({ refunds: [settled] })
  expect(await view('revenue?interval=total')).toMatchObject({
    revenue: [{ payments: 1, gross_usdc: '0.050000', settled_usdc: '0.047500' }],
  })
  const month = settled.acceptedAt.slice(0, 7)
  const sums = { payments: 1, settled_usdc: '0.047500', refunds: 1, refunds_outstanding_usdc: '0.000000' }
  expect((await view(`statement?month=${month}`)).networks).toMatchObject([
    { ...sums, refunded_usdc: '0.050000' },
  ])
  const linesOf = async (): Promise<string[]> =>
    (await view(`statement?month=${month}&format=csv`)).split('\r\n')
  const lines = await linesOf()
  expect(lines.map((line) => line.split(',').slice(0, 3).join())).toEqual([
    'kind,payment_id,refund',
    `payment,${paid.paymentId},`,
    `refund,${paid.paymentId},1`,
    '',
  ])
  expect(lines[2]).toContain(
    `,settled,0.000000,0.000000,0.000000,0.000000,0.000000,0.050000,${settled.settledAt},`,
  )
  await gateway.database`delete from authorization_event where tx_hash = ${settled.transactionHash}`
  expect((await list(paid)).refunds).toMatchObject([{ refund_status: 'verified', transactionHash: null }])
  expect((await view(`statement?month=${month}`)).networks).toMatchObject([
    { ...sums, refunded_usdc: '0.000000', refunds_outstanding_usdc: '0.050000' },
  ])
  expect((await linesOf())[2]).toContain(',verified,0.000000,0.000000,0.000000,0.000000,0.000000,0.000000,,')
})

test('behavior: refuses a refund until its payment is confirmed', async () => {
  const paid = await pay(gateway, shop)
  for (const payload of paid.payloads) await settleDirectly(gateway, payload)
  await gateway.index()
  expect((await ask(paid)).body.code).toBe('payment_not_settled')
  await gateway.served.client.request({ method: 'evm_mine', params: [] } as never)
  await gateway.index()
  expect((await ask(paid)).status).toBe(201)
})

test('behavior: never refunds more than was paid, in any combination', async () => {
  const paid = await paySettled()
  const halves = await Promise.all([1, 2, 3].map((number) => signRefund(paid, { number, value: 20_000n })))
  const answers = await Promise.all([...halves, ...halves].map((payload) => post(paid, payload)))
  const codes = answers.map(({ status, body }) => body.code ?? status)
  expect(new Set(codes)).toEqual(new Set([201, 'refund_exceeds_payment']))
  expect(await list(paid)).toMatchObject({ refundableUsdc: '10000', refunds: [{}, {}] })
  // The database rejects it as well.
  await expect(
    gateway.database`update refund_total set amount = 50001 where payment_id = ${paid.paymentId}`,
  ).rejects.toMatchObject({ code: '23514' })

  // If a refund with this number exists, the number accepts neither another amount nor another wallet.
  const [{ number }] = (await list(paid)).refunds
  expect((await ask(paid, { number, value: 5_000n })).body.code).toBe('payment_replayed')
  const other = await gateway.buyer(1_000_000n)
  await call(gateway.app, 'POST', `/providers/${shop.providerId}/wallets`, {
    json: { network: 'localhost', address: other.address },
    key: shop.key,
  })
  expect((await ask(paid, { number, value: 20_000n, signer: other })).body.code).toBe('payment_replayed')
})

test('behavior: a failed refund counts as refunded until it can no longer move; a payment has at most three refunds', async () => {
  const paid = await paySettled()
  const payload = await signRefund(paid)
  await post(paid, payload)
  await failPayments(gateway.database, await refundsOf(paid), 'insufficient_balance')
  expect(await list(paid)).toMatchObject({
    refundableUsdc: '0',
    refunds: [{ refund_status: 'failed', failureCode: 'insufficient_balance' }],
  })
  expect((await ask(paid, { number: 2 })).body.code).toBe('refund_exceeds_payment')
  // If a failed refund is requested again, it is retried.
  expect((await post(paid, payload)).body).toMatchObject({ refund_status: 'verified', attempts: 0 })
  await bury(paid, 1)
  expect(await list(paid)).toMatchObject({ refundableUsdc: '50000', refunds: [{ refund_status: 'failed' }] })
  expect((await ask(paid, { number: 2 })).status).toBe(201)
  await bury(paid, 2)
  expect((await ask(paid, { number: 3, value: 30_000n })).status).toBe(201)
  const ever = { providerId: shop.providerId, from: new Date(0), to: new Date(Date.now() + 1) }
  const fresh = await sumRefunds(gateway.database, ever)
  const [expected] = await gateway.database<{ refunds: number; outstanding: bigint }[]>`
    select count(*)::int as refunds, sum(p.provider_amount) filter (
        where not exists (select from authorization_event e where e.payment_id = p.id)
      ) as outstanding
    from refund r join payment p on p.id = r.payment_id left join payment_result o on o.payment_id = p.id
    where r.provider_id = ${shop.providerId} and coalesce(o.kind, '') <> 'failed'`
  expect(fresh).toMatchObject([{ ...expected }])
  // A time range contains its first moment but not its last one.
  const [at, next] = (await list(paid)).refunds.map((one: Body) => new Date(one.acceptedAt))
  const period = { providerId: shop.providerId, from: at, to: next }
  const page = { after: null, limit: 10, now: new Date() }
  expect(await findProviderRefunds(gateway.database, period, page)).toMatchObject([
    { paymentId: paid.paymentId, number: 1 },
  ])
  expect(await sumRefunds(gateway.database, period)).toMatchObject([{ refunds: 0, outstanding: 0n }])
  expect(await sumRefunds(gateway.database, { ...period, to: at })).toEqual([])
  const byId = await refundsOf(paid)
  for (const id of byId) expect((await call(gateway.app, 'GET', `/payments/${id}`)).status).toBe(404)
  expect(await list(paid)).toMatchObject({ refundableUsdc: '20000', next: null })
  expect((await ask(paid, { number: 4, value: 20_000n })).body.code).toBe('refund_nonce_mismatch')
})

test('behavior: the balance must cover all refunds that the wallet has signed', async () => {
  const poor = await gateway.buyer(60_000n)
  await call(gateway.app, 'POST', `/providers/${shop.providerId}/wallets`, {
    json: { network: 'localhost', address: poor.address },
    key: shop.key,
  })
  const payments = [await paySettled(), await paySettled()]
  const payloads = await Promise.all(payments.map((paid) => signRefund(paid, { signer: poor })))
  const answers = await Promise.all(payments.map((paid, i) => post(paid, payloads[i] ?? '')))
  expect(answers.map(({ status }) => status).toSorted()).toEqual([201, 402])
  const refused = answers.findIndex(({ status }) => status === 402)
  expect(answers[refused]?.body.code).toBe('insufficient_balance')
  // The refused refund left no trace.
  expect(await list(payments[refused] as Paid)).toMatchObject({ refundableUsdc: '50000', refunds: [] })
})

test('behavior: a refund from a contract wallet needs a signature that the contract accepts (ERC-1271); its key’s signature is refused', async () => {
  const paid = await paySettled()
  const contract = await gateway.buyer(50_000n)
  const json = { network: 'localhost', address: contract.address }
  await call(gateway.app, 'POST', `/providers/${shop.providerId}/wallets`, { key: shop.key, json })
  const { address } = contract
  const ofKey = await signRefund(paid, { signer: contract })
  await testClient(gateway).setCode({ address, bytecode: saysNo })
  expect(await post(paid, ofKey)).toMatchObject({ status: 402, body: { code: 'invalid_signature' } })
  expect(await list(paid)).toMatchObject({ refundableUsdc: '50000', refunds: [] })

  await testClient(gateway).setCode({ address, bytecode: saysYes })
  const payload = encodePayload({ ...parsePayload(ofKey), signature: `0x${'5a'.repeat(195)}` })
  expect(await post(paid, payload)).toMatchObject({ status: 201, body: { refund_status: 'verified' } })
  const [row] = await gateway.database`
    select q.has_code as "hasCode" from queue q join refund r using (payment_id) where r.of_payment_id = ${paid.paymentId}`
  expect(row).toEqual({ hasCode: true })
  // USDC asks the same contract whether the signature is valid, and moves the money.
  await settleDirectly(gateway, payload)
  expect((await list(paid)).refunds).toMatchObject([
    { refund_status: 'settled', from: address.toLowerCase() },
  ])
  expect(await readBalance(gateway.served.client, gateway.served.token, address)).toBe(0n)
})

test('error: refuses invalid refunds with their reasons', async () => {
  const paid = await paySettled()
  const stranger = await gateway.buyer(1_000_000n)
  const now = BigInt(Math.floor(Date.now() / 1000))
  const refusals: [string, Change][] = [
    ['refund_nonce_mismatch', { nonce: zeroHash }],
    ['refund_nonce_mismatch', { nonce: refundNonce('https://other.example', paid.paymentId, 1) as Hex }],
    ['payees_mismatch', { to: wallet.address.toLowerCase() as Address }],
    ['amount_too_low', { value: 4_999n }],
    ['refund_exceeds_payment', { value: 50_001n }],
    ['authorization_expires_too_soon', { validBefore: now + 60n }],
    ['authorization_not_yet_valid', { validAfter: now + 600n }],
    ['unknown_wallet', { signer: stranger }],
    ['invalid_signature', { signer: stranger, from: wallet.address.toLowerCase() as Address }],
  ]
  for (const [code, change] of refusals)
    expect([code, (await ask(paid, change)).body.code]).toEqual([code, code])
  expect(await list(paid)).toMatchObject({ refundableUsdc: '50000', refunds: [] })

  const unsettled = await pay(gateway, shop)
  expect(await ask(unsettled)).toMatchObject({ status: 409, body: { code: 'payment_not_settled' } })
  await settleDirectly(gateway, unsettled.payloads[0])
  // The payment's fee has not moved.
  expect(await ask(unsettled)).toMatchObject({ status: 409, body: { code: 'payment_not_settled' } })

  const paymentId = newId('pay')
  const { providerId, wallet: recipient } = shop
  const { network, token } = gateway.served
  const signed = { nonce: randomHex(32), signature: randomHex(65), acceptedBlock: 1n }
  await storePayments(gateway.database, [
    {
      id: paymentId,
      providerId,
      endpointId: null,
      chainId: network.chainId,
      token,
      payer: randomHex(20),
      resource: shop.url,
      acceptedAt: new Date(),
      halves: [{ recipient, value: 50_000n, validAfter: 0n, validBefore: 2n ** 33n, ...signed }],
      facilitation: { providerId, paymentIdentifier: null },
      first: { stage: 'due', since: Date.now() },
    },
  ])
  expect((await ask({ ...paid, paymentId })).body.code).toBe('refund_refused')
  expect((await ask({ ...paid, paymentId: `pay_${'0'.repeat(32)}` })).body.code).toBe('unknown_payment')
})

test('error: refuses a refund if neither a grant nor the shared pool has gas money left today, and accepts it after a new grant', async () => {
  const poor = gateway.another({ gasAllowance: 0n })
  const paid = await paySettled()
  const payload = await signRefund(paid)
  const askPoor = () => call<Body>(poor, 'POST', at(paid), { key: shop.key, json: { payload } })
  const refused = await askPoor()
  expect(refused).toMatchObject({
    status: 422,
    body: {
      code: 'gas_not_covered',
      detail: expect.stringContaining(`tollkeeper provider grant --provider ${shop.providerId}`),
      left_usd: '0.000000',
      limit_usd: '0.000000',
      resets_at: expect.stringMatching(/T00:00:00.000Z$/),
    },
  })
  expect((await list(paid)).refunds).toEqual([])
  await setGasGrant(gateway.database, shop.providerId, 1_000_000_000n)
  expect((await askPoor()).status).toBe(201)
  const metrics = await (await poor.request('/metrics')).text()
  for (const result of ['ok', 'gas_not_covered'])
    expect(metrics).toContain(`tollkeeper_api_refunds_total{result="${result}"} 1`)
  const drawn =
    await gateway.database`select drawer from gas_draw where drawn > 0 and drawer = ${`${shop.providerId}:test`}`
  expect(drawn).toHaveLength(1)
  await setGasGrant(gateway.database, shop.providerId, 0n)
})

test('behavior: refunds still work while the operator has stopped sales', async () => {
  const paid = await paySettled()
  const change = (isStopped: boolean) =>
    changeSales(gateway.database, { isStopped, reason: '', changedBy: 'a test' })
  await change(true)
  const payload = await signRefund(paid)
  const answer = await call<Body>(gateway.another(), 'POST', at(paid), { key: shop.key, json: { payload } })
  await change(false)
  expect(answer.status).toBe(201)
})

test('behavior: accepts 20 open refunds with the default settings on Base, and the view shows the remaining allowance', async () => {
  // Base's usual gas price: 0.01 gwei. The default of GAS_ALLOWANCE_USD is 1.
  const base = gateway.another({ gasAllowance: 1_000_000n, priorityFeePerGas: 10_000_000n })
  await gateway.chain.mintUsdc([wallet.address], 1_000_000n)
  const paid: Paid[] = []
  for (let i = 0; i < 20; i++) paid.push(await paySettled())
  const [first] = paid as [Paid]
  const view = async () => (await call<Body>(base, 'GET', at(first), { key: shop.key })).body.gas
  const before = await view()
  expect(before).toMatchObject({ limitUsdc: '250000', hasGrant: false })
  const answers = await Promise.all(
    paid.map(async (one) =>
      call<Body>(base, 'POST', at(one), { key: shop.key, json: { payload: await signRefund(one) } }),
    ),
  )
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 201))
  const [reserved, needed] = [before.leftUsdc - (await view()).leftUsdc, Number(before.neededUsdc)]
  expect(reserved).toBeGreaterThan(19 * needed)
  expect(reserved).toBeLessThan(21 * needed)
})
