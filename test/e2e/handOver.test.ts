import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Keeper } from '#keeper/keeper'
import { attemptsOf, queueDue, whileRunning } from '../support/keeperScenes.ts'
import { type KeeperStack, type QueuedPayment, startKeeperStack } from '../support/keeperStack.ts'
import { findMisplaced } from '../support/ledger.ts'
import { until } from '../support/until.ts'
import { sendDirectly } from '../support/usdc.ts'

// One keeper hands its batches over to another, and strangers settle parts of them in between.

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

type Handing = {
  payments: [QueuedPayment, QueuedPayment]
  /** Status of each answer of the facilitator. */
  answers: number[]
  /** Lets a minute pass for the keeper that hands over. */
  pass: (ms: number) => void
  /** The facilitator gets to work. */
  goOn: () => void
}

/** Hands two payments over to a facilitator that has stored them, and does nothing with them before it is told to. */
async function whileHandingOver(task: (handing: Handing) => Promise<void>): Promise<void> {
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

async function batchesOf(payments: QueuedPayment[]) {
  return own.database<{ outcome: string | null }[]>`
    select outcome from batch b where id in (
      select batch_id from batch_item
      where payment_id in ${own.database(payments.map(({ paymentId }) => paymentId))})
    order by id`
}

test('behavior: a stranger takes a fee meanwhile: what is asked again is the same submission', async () => {
  const fromBlock = (await own.served.client.getBlockNumber({ cacheTime: 0 })) + 1n
  const [before] = await facilitator.database<
    [{ count: number }]
  >`select count(*)::int as count from submission`
  await whileHandingOver(async ({ payments, goOn, answers }) => {
    await sendDirectly(own, payments[0].fee)
    await until('the keeper can know it', async () => (await own.halves(payments[0]))[1]?.state === 'settled')
    const asked = answers.length
    await until('it has asked again since', () => answers.length > asked + 1)
    goOn()
    await until('all is settled', () => own.isSettled(payments))
    await until('the batch is over', async () => (await batchesOf(payments)).every(({ outcome }) => outcome))
    expect(await batchesOf(payments)).toEqual([{ outcome: 'settled' }])
    expect(await findMisplaced(own, payments, fromBlock)).toEqual([])
    expect(await attemptsOf(own, payments)).toEqual([0])
  })
  const [after] = await facilitator.database<
    [{ count: number }]
  >`select count(*)::int as count from submission`
  expect(after.count - before.count).toBe(1)
})

test('behavior: a stranger takes a provider half meanwhile: the facilitator gives up on all, and then settles the rest', async () => {
  const fromBlock = (await own.served.client.getBlockNumber({ cacheTime: 0 })) + 1n
  await whileHandingOver(async ({ payments, goOn, pass, answers }) => {
    await sendDirectly(own, payments[0].provider)
    goOn()
    await until('the facilitator has given up on it', () => answers.includes(409))
    let looks = 0
    await until('all is settled, without anybody’s help', async () => {
      // What was refused waits for a quarter of a minute.
      if (++looks % 20 === 0) pass(5_000)
      return own.isSettled(payments)
    })
    expect(await findMisplaced(own, payments, fromBlock)).toEqual([])
    expect(await attemptsOf(own, payments)).toEqual([0])
    // A refusal isn't asked for again and again.
    expect(answers.filter((status) => status === 409).length).toBeLessThan(6)
  })
})
