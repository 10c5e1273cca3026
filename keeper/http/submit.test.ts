import { endPayments } from '@tollkeeper/ledger/queue/stages'
import { changeSales } from '@tollkeeper/ledger/registry/salesStop'
import { createLogger } from '@tollkeeper/runtime/log'
import { createRateLimiter } from '@tollkeeper/runtime/rateLimiter'
import { encodePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { Address } from 'viem'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { afterEach, describe, expect, test } from 'vitest'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { useDatabase } from '../../test/support/database.ts'
import { keeperDefaults } from '../../test/support/keeperDefaults.ts'
import { failPayments } from '../../test/support/paymentPosition.ts'
import { seedPlatform } from '../../test/support/seedPayments.ts'
import { shareServedChain } from '../../test/support/servedChain.ts'
import { randomHex, signAuthorization, validFor } from '../../test/support/usdc.ts'
import { createHttpContext } from './context.ts'
import { parseRequest } from './facilitator/request.ts'
import { reserve } from './facilitator/reserve.ts'
import { createSettle } from './facilitator/settle.ts'
import type { Connection } from './settleNow/connection.ts'
import { submitTransfers } from './submit.ts'

// The routes for signed transfers, on a real chain and a real database. No worker settles anything here, so accepted payments wait.

const sql = await useDatabase()
const { chain, served } = await shareServedChain()
const now = () => new Date()

/** Creates the context of one process. Each process has its own cache of payers. */
function openDoors(stopping?: AbortSignal) {
  return createHttpContext({
    ...keeperDefaults,
    settings: { ...keeperDefaults.settings, gasAllowance: 1_000_000_000n },
    database: sql,
    networks: [served],
    accounts: [devAccount(15)],
    platformWallets: [seedPlatform],
    // Nothing settles in this test, so don't wait.
    submitTimeoutMs: 1,
    submitLimits: { perCaller: 1_000 },
    rateLimiter: createRateLimiter({ sql: null, log: createLogger('test', 'silent'), now: Date.now }),
    log: createLogger('test', 'silent'),
    now,
    wake: () => {},
    ...(stopping && { stopping }),
  })
}
const doors = openDoors()
/** The connection of a caller that doesn't disconnect. */
const connection: Connection = { isClosed: () => false, delivered: Promise.resolve(true) }

/** Creates an account with USDC. */
async function openBuyer(usdc: bigint): Promise<PrivateKeyAccount> {
  const buyer = privateKeyToAccount(generatePrivateKey())
  await chain.mintUsdc([buyer.address], usdc)
  return buyer
}

const hour = validFor(3_600)
const sign = (
  buyer: PrivateKeyAccount,
  value: bigint,
  to: Address = randomHex(20),
  change: Partial<Pick<SignedAuthorization, 'nonce' | 'validAfter' | 'validBefore'>> = {},
) =>
  signAuthorization(served, buyer, {
    from: buyer.address.toLowerCase() as Address,
    to,
    value,
    ...hour,
    nonce: randomHex(32),
    ...change,
  })

/** Submits transfers together. Returns whether they are accepted, or the code of the refusal. */
async function submit(transfers: SignedAuthorization[], context = doors): Promise<string> {
  const body = { transfers: transfers.map(encodePayload) }
  const caller = { apiKey: null, address: '192.0.2.1' }
  return submitTransfers(context, body, caller, connection).then(
    () => 'settled',
    ({ code, message }: { code?: string; message: string }) =>
      message.startsWith('Not sent yet') ? 'accepted' : (code ?? message),
  )
}

/** Returns a payment as a request to x402's `/settle`. */
function requestOf(payment: SignedAuthorization) {
  const { signature, ...authorization } = payment
  const words = { ...authorization, validAfter: '0', validBefore: `${authorization.validBefore}` }
  const kind = { scheme: 'exact', network: served.network.caip2 }
  return parseRequest([served], {
    x402Version: 2,
    paymentPayload: {
      x402Version: 2,
      accepted: kind,
      payload: { signature, authorization: { ...words, value: `${authorization.value}` } },
    },
    paymentRequirements: {
      ...kind,
      asset: served.token,
      payTo: authorization.to,
      amount: `${authorization.value}`,
    },
  })
}

/** Presents a payment to x402's `/settle`. Returns whether it is accepted, or the code of the refusal. */
async function settle(payment: SignedAuthorization, context = doors): Promise<string> {
  return reserve(context, requestOf(payment), { providerId: null }, 'due').then(
    (id) => (id === null ? 'payment_replayed' : 'accepted'),
    ({ code, message }: { code?: string; message: string }) => code ?? message,
  )
}

/** Returns the sum of a buyer's stored payments. */
async function promisedBy({ address }: PrivateKeyAccount): Promise<bigint> {
  const [row] = await sql<[{ sum: bigint | null }]>`
    select sum(provider_amount + fee_amount) as sum from payment where payer = ${address.toLowerCase()}`
  return BigInt(row.sum ?? 0n)
}

describe('a balance', () => {
  test('default: covers transfers up to its last unit, but not beyond', async () => {
    const buyer = await openBuyer(100n)
    expect(await submit([await sign(buyer, 60n)])).toBe('accepted')
    expect(await submit([await sign(buyer, 41n)])).toBe('insufficient_balance')
    expect(await promisedBy(buyer)).toBe(60n)
    expect(await submit([await sign(buyer, 40n)])).toBe('accepted')
    expect(await submit([await sign(buyer, 1n)])).toBe('insufficient_balance')
    expect(await promisedBy(buyer)).toBe(100n)
  })

  test('error: covers all transfers of a submission together, or none of them', async () => {
    const buyer = await openBuyer(100n)
    const transfers = [await sign(buyer, 60n), await sign(buyer, 41n)]
    expect(await submit(transfers)).toBe('insufficient_balance')
    expect(await submit([await sign(buyer, 60n), await sign(buyer, 41n, seedPlatform)])).toBe(
      'insufficient_balance',
    )
    expect(await promisedBy(buyer)).toBe(0n)
    expect(await submit([await sign(buyer, 60n), await sign(buyer, 40n)])).toBe('accepted')
  })

  test.each([
    ['POST /submit twice', submit, submit],
    ['POST /submit and then /settle', submit, settle],
    ['/settle and then POST /submit', settle, submit],
    ['/settle twice', settle, settle],
  ] as const)(
    'error: covers only the first of two payments that together exceed it, if they arrive through %s',
    async (_, first, second) => {
      const buyer = await openBuyer(100n)
      const present = async (door: typeof submit | typeof settle) => {
        const transfer = await sign(buyer, 51n)
        return door === settle ? settle(transfer) : submit([transfer])
      }
      expect(await present(first)).toBe('accepted')
      expect(await present(second)).toBe('insufficient_balance')
      expect(await promisedBy(buyer)).toBe(51n)
    },
  )

  test('error: is never exceeded if several processes receive payments at the same time', async () => {
    const buyer = await openBuyer(100n)
    const processes = [doors, openDoors()]
    const transfers = await Promise.all(Array.from({ length: 12 }, () => sign(buyer, 30n)))
    const answers = await Promise.all(
      transfers.map((transfer, index) =>
        index % 3 === 0 ? settle(transfer, processes[index % 2]) : submit([transfer], processes[index % 2]),
      ),
    )
    expect(answers.toSorted()).toEqual([
      ...Array(3).fill('accepted'),
      ...Array(9).fill('insufficient_balance'),
    ])
    expect(await promisedBy(buyer)).toBe(90n)
  })
})

test('behavior: several processes that receive the same submission at once give the same answer, and store the submission once', async () => {
  const buyer = await openBuyer(100n)
  const transfer = await sign(buyer, 100n)
  const processes = [doors, openDoors(), openDoors()]
  const answers = await Promise.all(
    Array.from({ length: 9 }, (_, index) => submit([transfer], processes[index % 3])),
  )
  expect(answers).toEqual(Array(9).fill('accepted'))
  expect(await promisedBy(buyer)).toBe(100n)
})

test.each([
  [
    'failed, but can still settle',
    { kind: 'failed', code: 'deferred', isFinal: false },
    'settlement_pending',
  ],
  ['failed permanently', { kind: 'failed', code: 'deferred', isFinal: true }, 'payment_replayed'],
  ['was voided', { kind: 'voided', code: null, isFinal: false }, 'payment_voided'],
] as const)('error: rejects a submission if one of its payments %s', async (_, ending, code) => {
  const buyer = await openBuyer(100n)
  const [stored, added] = [await sign(buyer, 60n), await sign(buyer, 40n)]
  expect(await settle(stored)).toBe('accepted')
  const checkpoint = async (name: string) => {
    if (name !== 'before-submission-recorded') return
    const payments = await sql<{ paymentId: string }[]>`
      select payment_id as "paymentId" from queue where payer = ${stored.from}`
    await endPayments(
      sql,
      payments.map(({ paymentId }) => ({ paymentId, ...ending })),
      now(),
    )
  }
  expect(await submit([stored, added], { ...doors, checkpoint })).toBe(code)
})

test('behavior: answers pending if another payment held the authorization and has just been released, so that the caller tries again', async () => {
  const buyer = await openBuyer(1_000n)
  const request = requestOf(await sign(buyer, 60n))
  const accept: typeof doors.accept = async (...args) => {
    expect(await reserve(doors, request, { providerId: null }, 'reserved')).not.toBeNull()
    const verdict = await doors.accept(...args)
    await sql`delete from payment where payer = ${request.authorization.from}`
    return verdict
  }
  const answer = createSettle({ ...doors, accept })(request, { providerId: null }, connection)
  await expect(answer).rejects.toMatchObject({ reason: 'settlement_pending' })
})

describe('a submission that failed', () => {
  const failLast = async (buyer: PrivateKeyAccount) => {
    const rows = await sql<{ id: string }[]>`
      select payment_id as id from queue where payer = ${buyer.address.toLowerCase()}`
    await failPayments(
      sql,
      rows.map(({ id }) => id),
    )
  }

  /** Signs a transfer and the platform's fee for it. */
  const signPair = async (buyer: PrivateKeyAccount) => [
    await sign(buyer, 60n),
    await sign(buyer, 40n, seedPlatform),
  ]

  /** Returns a buyer's payments with their times of acceptance, and the buyer's accepted total. */
  const acceptedOf = async ({ address }: PrivateKeyAccount) => {
    const payer = address.toLowerCase()
    return [
      ...(await sql`select id, accepted_at from payment where payer = ${payer} order by id`),
      ...(await sql`select accepted_total from payer where address = ${payer}`),
    ]
  }

  test('default: is queued again as the same payment if its transfers are submitted again, and reserves its amount once', async () => {
    const buyer = await openBuyer(100n)
    const pair = await signPair(buyer)
    expect(await submit(pair)).toBe('accepted')
    const accepted = await acceptedOf(buyer)
    await failLast(buyer)
    expect(await submit(pair.toReversed())).toBe('accepted')
    expect(await acceptedOf(buyer)).toEqual(accepted)
    expect(await promisedBy(buyer)).toBe(100n)
    expect(await submit([await sign(buyer, 1n)])).toBe('insufficient_balance')
  })

  test.each([
    ['value', { value: 39n }],
    ['recipient', { to: randomHex(20) }],
    ['validAfter', { validAfter: 1n }],
    ['validBefore', { validBefore: hour.validBefore + 1n }],
  ])('error: is not replaced by a transfer with the same nonce and another %s', async (_, change) => {
    const buyer = await openBuyer(100n)
    const transfer = await sign(buyer, 40n)
    expect(await submit([transfer])).toBe('accepted')
    await failLast(buyer)
    const { to, value, ...window } = { ...transfer, ...change }
    expect(await submit([await sign(buyer, value, to, window)])).toBe('payment_replayed')
    expect(await submit([transfer])).toBe('accepted')
  })

  test('error: is not accepted again in part: neither its transfer nor its fee is accepted alone', async () => {
    const buyer = await openBuyer(100n)
    const pair = await signPair(buyer)
    expect(await submit(pair)).toBe('accepted')
    await failLast(buyer)
    for (const half of pair) expect(await submit([half])).toBe('payment_replayed')
    expect(await submit(pair)).toBe('accepted')
  })

  test('behavior: can be submitted again with more transfers; the additional transfers become another payment', async () => {
    const buyer = await openBuyer(100n)
    const [provider, fee] = await signPair(buyer)
    if (!provider || !fee) throw new Error('expected two signed authorizations')
    expect(await submit([provider])).toBe('accepted')
    await failLast(buyer)
    expect(await submit([provider, fee])).toBe('accepted')
    const payments = await sql`
      select provider_amount::int as amount, fee_amount::int as fee from payment where payer = ${provider.from} order by 1`
    expect([...payments]).toEqual([
      { amount: 40, fee: 0 },
      { amount: 60, fee: 0 },
    ])
  })

  test('behavior: keeps its part of the balance reserved while it may still settle', async () => {
    const buyer = await openBuyer(100n)
    expect(await submit([await sign(buyer, 60n)])).toBe('accepted')
    await failLast(buyer)
    expect(await submit([await sign(buyer, 41n)])).toBe('insufficient_balance')
    expect(await submit([await sign(buyer, 40n)])).toBe('accepted')
  })
})

test.each([
  ['POST /submit', submit],
  ['/settle', settle],
] as const)(
  'error: refuses a transfer with other terms if %s has accepted a transfer with the same nonce',
  async (_, door) => {
    const buyer = await openBuyer(100n)
    const transfer = await sign(buyer, 40n)
    expect(await (door === settle ? settle(transfer) : submit([transfer]))).toBe('accepted')
    const { to, nonce } = transfer
    expect(await submit([await sign(buyer, 41n, to, { nonce })])).toBe('payment_replayed')
    expect(await submit([await sign(buyer, 40n, randomHex(20), { nonce })])).toBe('payment_replayed')
    expect(await promisedBy(buyer)).toBe(40n)
  },
)

test('error: does not store a submission whose gas neither a fee nor an allowance covers', async () => {
  const buyer = await openBuyer(100n)
  expect(await submit([await sign(buyer, 100n)], { ...doors, gasAllowance: 0n })).toBe('gas_not_covered')
  expect(await promisedBy(buyer)).toBe(0n)
})

describe('while the operator has stopped sales', () => {
  const change = (isStopped: boolean) =>
    changeSales(sql, { isStopped, reason: 'Moving', changedBy: 'a test' })
  afterEach(() => change(false))

  test.each([
    ['POST /submit', submit],
    ['/settle', settle],
  ] as const)('error: %s refuses new payments, and stores nothing', async (_, door) => {
    const buyer = await openBuyer(100n)
    const present = async (context: typeof doors) => {
      const transfer = await sign(buyer, 40n)
      return door === settle ? settle(transfer, context) : submit([transfer], context)
    }
    // The first process has cached that sales are open; the other reads the switch now.
    const seen = openDoors()
    expect(await present(seen)).toBe('accepted')
    await change(true)
    expect(await present(seen)).toBe('sales_stopped')
    expect(await present(openDoors())).toBe('sales_stopped')
    expect(await promisedBy(buyer)).toBe(40n)
  })

  test('behavior: POST /submit and /settle continue payments that were accepted before', async () => {
    const buyer = await openBuyer(100n)
    const [submitted, reserved] = [await sign(buyer, 40n), await sign(buyer, 50n)]
    expect(await submit([submitted])).toBe('accepted')
    const request = requestOf(reserved)
    expect(await reserve(doors, request, { providerId: null }, 'reserved')).not.toBeNull()
    await change(true)
    const stopping = new AbortController()
    const later = openDoors(stopping.signal)
    expect(await submit([submitted], later)).toBe('accepted')
    const settled = createSettle(later)(request, { providerId: null }, connection).catch(() => {})
    const isDue = async () =>
      (
        await sql`select from queue where payer = ${reserved.from} and provider_amount = 50 and stage = 'waiting'`
      ).length
    await expect.poll(isDue).toBe(1)
    stopping.abort()
    await settled
  })
})
