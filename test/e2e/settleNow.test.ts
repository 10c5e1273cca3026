import { readEvidence } from '@tollkeeper/chain/evidence'
import type { Keeper } from '@tollkeeper/keeper/keeper'
import { recordEvents } from '@tollkeeper/ledger/facts/record'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { type Address, type Hex, parseEther } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { expect, test } from 'vitest'
import { hangUp } from '../support/hangUp.ts'
import {
  mine,
  moveMoney,
  reorg,
  testClient,
  untilIndexed,
  untilRecorded,
  whileRunning,
} from '../support/keeperScenes.ts'
import { type KeeperOverrides, useKeeperStack } from '../support/keeperStack.ts'
import { findBreaches } from '../support/ledger.ts'
import { signPair } from '../support/submit.ts'
import { until } from '../support/until.ts'
import { cancelDirectly, randomHex } from '../support/usdc.ts'
import { type Answer, ask, signPayment, toV1 } from '../support/x402.ts'

// The two routes that settle immediately and wait for the result, `POST /submit` and x402's `POST /settle`, go through the same
// scenes. Each row of the table states the responses of both routes.

// Transactions are replaced only in the scene about replacement.
const stack = useKeeperStack({ rebroadcastAfterMs: 300, replaceAfterMs: 600_000 })

/** A response reduced to one word, and the transaction that it names. */
type ShortAnswer = { word: string; hash: unknown }

/** A request to settle, which is sent unchanged each time. */
type Request = {
  path: '/submit' | '/settle'
  body: unknown
  nonce: Hex
  payTo: Address
  /** The payee's share of 50,000. */
  value: bigint
  read: (answer: Answer) => ShortAnswer
}

const routes = {
  async submit(buyer: PrivateKeyAccount): Promise<Request> {
    const pair = await signPair(stack, buyer, { to: randomHex(20) })
    const [{ nonce, to: payTo, value }] = pair
    const body = { network: 'localhost', transfers: pair.map(encodePayload) }
    return { path: '/submit', body, nonce, payTo, value, read: readSubmitted }
  },
  async settle(buyer: PrivateKeyAccount): Promise<Request> {
    const payTo = randomHex(20)
    const { body, authorization } = await signPayment(stack.served, buyer, { payTo, value: 50_000n })
    return { path: '/settle', body, nonce: authorization.nonce, payTo, value: 50_000n, read: readSettled }
  },
}

function readSubmitted({ status, body }: Answer): ShortAnswer {
  if (status === 200) return { word: 'transaction', hash: body.txHash }
  return { word: String(body.code), hash: undefined }
}

function readSettled({ body }: Answer): ShortAnswer {
  return {
    word: body.success ? 'transaction' : String(body.errorReason),
    hash: body.transaction || undefined,
  }
}

type Scene = {
  request: Request
  buyer: PrivateKeyAccount
  /** Sends the request to a keeper once. */
  ask: (keeper: Keeper) => Promise<ShortAnswer>
  /** Sends the request until the response isn't `settlement_pending`, and mines blocks in between. */
  askOn: (keeper: Keeper) => Promise<ShortAnswer>
}

/** Opens a keeper. Until it is started, it stores requests and waits, but settles nothing; the scenes call such a keeper idle. */
const openKeeper = (overrides: KeeperOverrides = {}) =>
  stack.keeper({ submitLimits: { perCaller: 1_000 }, ...overrides })

const chain = () => testClient(stack)

async function whileMiningStops<T>(task: () => Promise<T>): Promise<T> {
  await chain().setAutomine(false)
  try {
    return await task()
  } finally {
    await chain().setAutomine(true)
    await chain().mine({ blocks: 1 })
  }
}

function untilDue({ buyer }: Pick<Scene, 'buyer'>): Promise<void> {
  return until('it is stored as due', async () => {
    const rows = await stack.database`
      select from queue where payer = ${buyer.address.toLowerCase()} and due_at is not null`
    return rows.length > 0
  })
}

/** Returns the transactions that were signed for a buyer's payment, oldest first. */
async function transactionsOf(buyer: PrivateKeyAccount): Promise<Hex[]> {
  const rows = await stack.database<{ hash: Hex }[]>`
    select t.hash from transaction t join batch_item i on i.batch_id = t.batch_id join payment p on p.id = i.payment_id
    where p.payer = ${buyer.address.toLowerCase()} and t.broadcast_at is not null
    order by t.created_at`
  return rows.map(({ hash }) => hash)
}

/** The payer moves its money away in the previous block, so our transaction settles nothing. A reorg may revert that transfer. */
async function revert(scene: Scene, fate: 'stays' | 'is gone'): Promise<ShortAnswer[]> {
  const { buyer, ask, askOn } = scene
  const keeper = openKeeper({ facilitator: { timeoutMs: 2_000 } })
  await chain().setBalance({ address: buyer.address, value: parseEther('10') })
  return whileRunning(keeper, async () => {
    await untilIndexed(stack)
    const snapshot = await chain().snapshot()
    const first = await whileMiningStops(async () => {
      const answer = await ask(keeper)
      await moveMoney(stack, buyer, 50_000n)
      return answer
    })
    await until('it failed', async () => {
      const rows = await stack.database`
        select from payment_result where payer = ${buyer.address.toLowerCase()} and kind = 'failed'`
      return rows.length > 0
    })
    const doubtful = await ask(keeper)
    if (fate === 'is gone') await reorg(stack, snapshot)
    return [first, doubtful, await askOn(keeper)]
  })
}

type Row = {
  scene: string
  play: (scene: Scene) => Promise<ShortAnswer[]>
  submit: string[]
  settle: string[]
}

const rows: Row[] = [
  {
    scene: 'a settled request is sent again',
    async play({ ask }) {
      const keeper = openKeeper()
      return whileRunning(keeper, async () => [await ask(keeper), await ask(keeper)])
    },
    submit: ['transaction', 'transaction'],
    settle: ['transaction', 'duplicate_settlement'],
  },
  {
    scene: 'the same request is sent four times at once, to two keepers, with money for one payment',
    async play({ ask }) {
      const [keeper, twin] = [openKeeper(), openKeeper()]
      const answers = await whileRunning(keeper, () =>
        Promise.all([keeper, twin, keeper, twin].map((one) => ask(one))),
      )
      expect(new Set(answers.map(({ hash }) => hash)).size).toBe(1)
      return answers.toSorted((one, other) => other.word.localeCompare(one.word))
    },
    submit: Array(4).fill('transaction'),
    settle: ['transaction', ...Array(3).fill('duplicate_settlement')],
  },
  {
    scene: 'the transaction isn’t mined in time',
    async play({ ask, askOn }) {
      const keeper = openKeeper({ facilitator: { timeoutMs: 1_000 } })
      return whileRunning(keeper, async () => [
        await whileMiningStops(() => ask(keeper)),
        await askOn(keeper),
      ])
    },
    submit: ['transaction', 'transaction'],
    settle: ['settlement_pending', 'transaction'],
  },
  {
    scene: 'a transaction with a higher fee replaces the first',
    async play({ buyer, ask, askOn }) {
      const settings = { ...stack.settings, replaceAfterMs: 1_000 }
      const keeper = openKeeper({ settings, facilitator: { timeoutMs: 500 } })
      return whileRunning(keeper, async () => {
        const first = await whileMiningStops(async () => {
          const answer = await ask(keeper)
          await until('it is replaced', async () => (await transactionsOf(buyer)).length > 1)
          return answer
        })
        await untilRecorded(stack)
        const last = await askOn(keeper)
        expect((await transactionsOf(buyer)).indexOf(last.hash as Hex)).toBeGreaterThan(0)
        return [first, last]
      })
    },
    submit: ['transaction', 'transaction'],
    settle: ['settlement_pending', 'transaction'],
  },
  {
    scene: 'the payment fails on chain',
    play: (scene) => revert(scene, 'stays'),
    submit: ['transaction', 'settlement_pending', 'settlement_failed'],
    settle: ['settlement_pending', 'settlement_pending', 'insufficient_funds'],
  },
  {
    scene: 'the payment fails on chain in a block that a reorg removes',
    play: (scene) => revert(scene, 'is gone'),
    submit: ['transaction', 'settlement_pending', 'transaction'],
    settle: ['settlement_pending', 'settlement_pending', 'transaction'],
  },
  {
    scene: 'the payer cancels before the payment is sent, and a reorg removes the cancellation',
    async play(scene) {
      const { buyer, request, ask } = scene
      const idle = openKeeper()
      await hangUp(idle, request.path, { body: request.body, key: stack.apiKey }, untilDue(scene))
      await untilIndexed(stack)
      const snapshot = await chain().snapshot()
      const cancelled = await cancelDirectly(stack, buyer, request.nonce)
      const { token, network } = stack.served
      const evidence = readEvidence(cancelled, stack.served, 1n)
      await recordEvents(stack.database, { chainId: network.chainId, token }, evidence, 'lookup')
      const refused = await ask(idle)
      await reorg(stack, snapshot)
      const keeper = openKeeper()
      return whileRunning(keeper, async () => {
        const other = await routes.submit(await stack.buyer())
        expect(other.read(await post(keeper, other)).word).toBe('transaction')
        return [refused, await ask(keeper)]
      })
    },
    submit: ['authorization_used', 'payment_voided'],
    settle: ['invalid_transaction_state', 'unexpected_settle_error'],
  },
  {
    scene: 'the payment isn’t sent in time',
    async play({ ask }) {
      const first = await ask(openKeeper({ submitTimeoutMs: 200, facilitator: { timeoutMs: 1, holdMs: 50 } }))
      const keeper = openKeeper()
      return whileRunning(keeper, async () => [first, await ask(keeper)])
    },
    submit: ['dependency_unavailable', 'transaction'],
    settle: ['unexpected_settle_error', 'unexpected_settle_error'],
  },
  {
    scene: 'the caller hangs up and asks again',
    async play(scene) {
      const { request, ask } = scene
      await hangUp(openKeeper(), request.path, { body: request.body, key: stack.apiKey }, untilDue(scene))
      const keeper = openKeeper()
      return whileRunning(keeper, async () => [await ask(keeper), await ask(keeper)])
    },
    submit: ['transaction', 'transaction'],
    settle: ['transaction', 'duplicate_settlement'],
  },
  {
    scene: 'the keeper stops, and the caller asks another keeper',
    async play(scene) {
      const { ask } = scene
      const idle = openKeeper()
      const asked = ask(idle)
      await untilDue(scene)
      await idle.stop()
      const keeper = openKeeper()
      const first = await asked
      return whileRunning(keeper, async () => [first, await ask(keeper)])
    },
    submit: ['dependency_unavailable', 'transaction'],
    settle: ['settlement_pending', 'transaction'],
  },
]

const post = (keeper: Keeper, { path, body }: Pick<Request, 'path' | 'body'>) =>
  ask(keeper, path, { body, key: stack.apiKey })

async function open(route: keyof typeof routes): Promise<Scene> {
  const buyer = await stack.buyer(50_000n)
  const request = await routes[route](buyer)
  const askOnce = async (keeper: Keeper) => request.read(await post(keeper, request))
  return {
    request,
    buyer,
    ask: askOnce,
    async askOn(keeper) {
      for (;;) {
        const answer = await askOnce(keeper)
        if (answer.word !== 'settlement_pending') return answer
        await untilIndexed(stack)
        await mine(stack, 10)
      }
    },
  }
}

test.each(rows.flatMap((row) => (['submit', 'settle'] as const).map((route) => ({ ...row, route }))))(
  'behavior: /$route returns the expected responses if $scene',
  async ({ route, play, ...row }) => {
    const scene = await open(route)
    const answers = await play(scene)
    expect(answers.map(({ word }) => word)).toEqual(row[route])
    const { payTo, value } = scene.request
    const last = answers.at(-1)
    if (last?.word === 'transaction' || last?.word === 'duplicate_settlement') {
      const hash = last.hash as Hex
      const receipt = await stack.served.client.waitForTransactionReceipt({ hash })
      expect(receipt.status).toBe('success')
      expect(receipt.logs.some(({ topics }) => topics.some((topic) => topic?.endsWith(payTo.slice(2))))).toBe(
        true,
      )
      expect(await stack.balanceOf(payTo)).toBe(value)
    } else expect(await stack.balanceOf(payTo)).toBe(0n)
    expect(await findBreaches(stack.database)).toEqual([])
  },
)

test('behavior: a keeper that stops answers a waiting v1 caller with 503, because that caller would treat any result as final', async () => {
  const buyer = await stack.buyer(50_000n)
  const payment = await signPayment(stack.served, buyer, { payTo: randomHex(20), value: 50_000n })
  const { authorization } = payment
  const body = toV1(payment)
  const idle = openKeeper()
  const asked = ask(idle, '/settle', { body, key: stack.apiKey })
  await untilDue({ buyer })
  await idle.stop()
  expect(await asked).toMatchObject({ status: 503, body: { code: 'settlement_pending' } })
  const keeper = openKeeper()
  const answer = await whileRunning(keeper, () => ask(keeper, '/settle', { body, key: stack.apiKey }))
  expect(answer.body).toMatchObject({ success: true, extra: { nonce: authorization.nonce } })
})
