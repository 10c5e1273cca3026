import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Keeper } from '#keeper/keeper'
import { encodePayload } from '#protocol/payload'
import { attemptsOf, queueDue, whileRunning } from '../support/keeperScenes.ts'
import { type KeeperStack, type QueuedPayment, startKeeperStack } from '../support/keeperStack.ts'
import { findMisplaced } from '../support/ledger.ts'
import { until } from '../support/until.ts'
import { sendDirectly } from '../support/usdc.ts'

// One keeper gives what is due to another one's POST /submit, and strangers settle parts of it in between.

let facilitator: KeeperStack
let own: KeeperStack
beforeAll(async () => {
  facilitator = await startKeeperStack()
  own = await startKeeperStack({}, facilitator.chain)
})
afterAll(async () => {
  await own?.close()
  await facilitator?.close()
})

type Pushing = {
  payments: [QueuedPayment, QueuedPayment]
  /** Status of each answer of the facilitator. */
  answers: number[]
  /** Lets time pass for the keeper that pushes. */
  pass: (ms: number) => void
  /** The facilitator gets to work. */
  goOn: () => void
}

/** Pushes two payments to a facilitator that has stored them, and does nothing with them before it is told to. */
async function whilePushing(task: (pushing: Pushing) => Promise<void>): Promise<void> {
  const other: Keeper = facilitator.keeper({ submitTimeoutMs: 200 })
  const answers: number[] = []
  const server = serve({
    fetch: async (request: Request) => {
      const answer = await other.app.fetch(request)
      answers.push(answer.status)
      return answer
    },
    port: 0,
    hostname: '127.0.0.1',
  })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  let offset = 0
  const keeper = own.keeper({
    accounts: [],
    settings: {
      ...own.settings,
      facilitatorUrl: `http://127.0.0.1:${port}`,
      facilitatorKey: facilitator.grantedKey,
    },
    now: () => new Date(Date.now() + offset),
  })
  const [first, second] = await queueDue(own, 2)
  if (!first || !second) throw new Error('nothing queued')
  let isWorking = false
  try {
    await whileRunning(keeper, async () => {
      await until('the facilitator has them, and has not answered with a hash', () => answers.includes(503))
      await task({
        payments: [first, second],
        answers,
        pass: (ms) => {
          offset += ms
        },
        goOn: () => {
          isWorking = true
          other.start()
        },
      })
    })
  } finally {
    if (isWorking) await other.stop()
    server.close()
  }
}

async function countSubmissions(): Promise<number> {
  const [row] = await facilitator.database<[{ count: number }]>`select count(*)::int as count from submission`
  return row.count
}

/** Lets a minute pass between looks: what was pushed or refused is left alone for a while. */
async function untilSettled({ payments, pass }: Pushing): Promise<void> {
  let looks = 0
  await until('all is settled, without anybody’s help', async () => {
    if (++looks % 20 === 0) pass(60_000)
    return own.isSettled(payments)
  })
}

test('default: an answer that was lost is asked for again, and is the same submission', async () => {
  const fromBlock = (await own.served.client.getBlockNumber({ cacheTime: 0 })) + 1n
  const before = await countSubmissions()
  await whilePushing(async (pushing) => {
    const { payments, goOn, answers } = pushing
    const asked = answers.length
    await until('it has asked again since', () => answers.length > asked + 1)
    goOn()
    await until('all is settled', () => own.isSettled(payments))
    expect(await findMisplaced(own, payments, fromBlock)).toEqual([])
    expect(await attemptsOf(own, payments)).toEqual([0])
  })
  expect((await countSubmissions()) - before).toBe(1)
  expect(await own.database`select 1 from batch`).toEqual([])
  // What was given away can't be called back by a void.
  expect(await own.database`select 1 from payment where published_at is null`).toEqual([])
})

test('behavior: a stranger takes a provider half meanwhile: the facilitator gives up on all, and then settles the rest', async () => {
  const fromBlock = (await own.served.client.getBlockNumber({ cacheTime: 0 })) + 1n
  await whilePushing(async (pushing) => {
    const { payments, goOn, answers } = pushing
    await sendDirectly(own, payments[0].provider)
    goOn()
    await untilSettled(pushing)
    expect(await findMisplaced(own, payments, fromBlock)).toEqual([])
    expect(await attemptsOf(own, payments)).toEqual([0])
    // A refusal isn't asked for again and again.
    expect(answers.filter((status) => status === 409).length).toBeLessThan(6)
  })
})

test('behavior: one of many is refused by the facilitator: it ends up alone, and the others settle', async () => {
  const other = facilitator.keeper()
  other.start()
  const bodies: string[][] = []
  const buyers = await own.buyers(9, 50_000n)
  const payments = await Promise.all(
    buyers.map((buyer) => own.queue({ buyer, price: 50_000n, acceptedAt: new Date(Date.now() - 3_600_000) })),
  )
  const [bad, ...good] = payments as [QueuedPayment, ...QueuedPayment[]]
  const server = serve({
    fetch: async (request: Request) => {
      const { transfers } = (await request.clone().json()) as { transfers: string[] }
      bodies.push(transfers)
      // It has a reason of its own, which no simulation shows.
      if (transfers.includes(encodePayload(bad.provider)))
        return Response.json({ code: 'payee_refused' }, { status: 422 })
      return other.app.fetch(request)
    },
    port: 0,
    hostname: '127.0.0.1',
  })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const facilitatorUrl = `http://127.0.0.1:${port}`
  const settings = { ...own.settings, facilitatorUrl, facilitatorKey: facilitator.grantedKey }
  try {
    await whileRunning(own.keeper({ accounts: [], settings }), async () => {
      await until('the others are settled', () => own.isSettled(good))
      await until('it is left alone', () => bodies.some((transfers) => transfers.length === 2))
    })
    // 9, 5, 3, 2, 1: what a busy machine pushes twice is without it.
    expect(
      bodies.filter((transfers) => transfers.includes(encodePayload(bad.provider))).length,
    ).toBeLessThanOrEqual(5)
    expect(await own.isSettled([bad])).toBe(false)
    expect(await attemptsOf(own, payments)).toEqual([0])
  } finally {
    await other.stop()
    server.close()
  }
})

test('behavior: what is submitted to a keeper that pushes gets the other one’s answer, or its refusal', async () => {
  const other = facilitator.keeper()
  other.start()
  const server = serve({ fetch: other.app.fetch, port: 0, hostname: '127.0.0.1' })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const facilitatorUrl = `http://127.0.0.1:${port}`
  const settings = { ...own.settings, facilitatorUrl, facilitatorKey: facilitator.grantedKey }
  const keeper = own.keeper({ accounts: [], settings })
  const submit = async (payment: QueuedPayment) => {
    const response = await keeper.app.request('/submit', {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${own.apiKey}` },
      body: JSON.stringify({
        network: 'localhost',
        transfers: [payment.provider, payment.fee].map(encodePayload),
      }),
    })
    return {
      status: response.status,
      body: (await response.json()) as { txHash?: string; code?: string; transfers?: unknown },
    }
  }
  const queueOne = async () => {
    const [buyer] = await own.buyers(1, 50_000n)
    if (!buyer) throw new Error('no buyer')
    return own.queue({ buyer, price: 50_000n })
  }
  try {
    await whileRunning(keeper, async () => {
      const payment = await queueOne()
      const { status, body } = await submit(payment)
      expect(status).toBe(200)
      await until('it is settled', () => own.isSettled([payment]))
      expect((await own.halves(payment)).map((half) => half.txHash)).toEqual([body.txHash, body.txHash])
      expect((await submit(payment)).body.transfers).toEqual(
        [0, 1].map(() => ({ status: 'settled', txHash: body.txHash })),
      )

      const used = await queueOne()
      await sendDirectly(own, used.provider)
      expect(await submit(used)).toMatchObject({ status: 409, body: { code: 'authorization_used' } })

      const [buyer] = await own.buyers(1, 49_000n)
      if (!buyer) throw new Error('no buyer')
      const short = await submit(await own.queue({ buyer, price: 50_000n }))
      // Its provider half alone would be covered.
      const failures = [{ transfer: 1, code: 'insufficient_balance' }]
      expect(short).toMatchObject({ status: 402, body: { code: 'insufficient_balance', failures } })
    })
  } finally {
    await other.stop()
    server.close()
  }
})

test('error: what the other one refuses is told transfer by transfer, in the order of whoever asks', async () => {
  const [buyer] = await own.buyers(1, 50_000n)
  if (!buyer) throw new Error('no buyer')
  const payment = await own.queue({ buyer, price: 50_000n })
  const refused = encodePayload(payment.fee)
  const server = serve({
    fetch: async (request: Request) => {
      const { transfers } = (await request.json()) as { transfers: string[] }
      const failures = [{ transfer: transfers.indexOf(refused), code: 'payee_refused', detail: 'not here' }]
      return Response.json({ code: 'payee_refused', failures }, { status: 422 })
    },
    port: 0,
    hostname: '127.0.0.1',
  })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const settings = { ...own.settings, facilitatorUrl: `http://127.0.0.1:${port}` }
  const keeper = own.keeper({ accounts: [], settings })
  try {
    await whileRunning(keeper, async () => {
      for (const transfers of [
        [payment.provider, payment.fee].map(encodePayload),
        [payment.fee, payment.provider].map(encodePayload),
      ]) {
        const response = await keeper.app.request('/submit', {
          method: 'POST',
          headers: { 'content-type': 'application/json', authorization: `Bearer ${own.apiKey}` },
          body: JSON.stringify({ network: 'localhost', transfers }),
        })
        expect(response.status).toBe(422)
        expect(await response.json()).toMatchObject({
          code: 'payee_refused',
          failures: [{ transfer: transfers.indexOf(refused), code: 'payee_refused', detail: 'not here' }],
          transfers: transfers.map(() => ({ status: 'queued', txHash: null })),
        })
      }
    })
  } finally {
    server.close()
  }
})
