import type { CheckpointName } from '@tollkeeper/keeper/settings/checkpoints'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import type { Hash, Hex } from 'viem'
import { afterEach, expect, test } from 'vitest'
import { untilRecorded } from '../support/keeperScenes.ts'
import { type QueuedPayment, useKeeperStack } from '../support/keeperStack.ts'
import { findBreaches, findMisplaced } from '../support/ledger.ts'
import { until } from '../support/until.ts'
import { randomHex } from '../support/usdc.ts'
import { signPayment, type X402Payment } from '../support/x402.ts'
import { ofSubmissions, ofX402 } from './checkpoints.ts'
import { killAll, startKeeper } from './mortalKeeper.ts'

// The facilitator dies while a caller waits for its answer. If the caller asks again, it gets the correct answer, and
// nothing settles twice.

const stack = useKeeperStack({ leaseMs: 700, rebroadcastAfterMs: 300 })
afterEach(killAll)

/**
 * Checkpoints at which a real process dies by SIGKILL: the last one before each kind of answer. With `npm run test:crash`, real processes die
 * at all checkpoints.
 */
const bySignal = new Set<CheckpointName>(['before-submission-answer', 'before-settle-answer'])
const howAt = (checkpoint: CheckpointName) =>
  process.env.CRASH_RUNS || bySignal.has(checkpoint) ? 'signal' : 'cut'

async function post(port: number, path: string, body: unknown) {
  const response = await fetch(`http://127.0.0.1:${port}/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${stack.apiKey}` },
    body: JSON.stringify(body),
  })
  return { status: response.status, body: (await response.json()) as Record<string, unknown> }
}

async function submit(port: number, { provider, fee }: QueuedPayment) {
  const transfers = [provider, fee].map(encodePayload)
  const { status, body } = await post(port, 'submit', { network: 'localhost', transfers })
  // The status of each transfer is left out, because it changes while the transaction is mined and indexed.
  const { txHash } = body as { txHash?: Hash }
  return { status, ...(txHash && { txHash }) }
}

async function ask(port: number, path: 'verify' | 'settle', payment: X402Payment) {
  return (await post(port, path, payment.body)).body
}

/** Asks until the answer isn't `settlement_pending`, as sellers should. */
async function settle(port: number, payment: X402Payment) {
  for (;;) {
    const answer = await ask(port, 'settle', payment)
    if (answer.errorReason !== 'settlement_pending') return answer
  }
}

test.each([
  ...ofSubmissions,
  // Checkpoints that a keeper reaches for any payment. Here, a caller waits for the answer.
  'after-claim',
  'after-write-ahead',
  'after-broadcast',
] satisfies CheckpointName[])(
  'behavior: if the keeper dies at %s, the next keeper settles a submission once and answers the repeated submission with the transaction',
  async (checkpoint) => {
    const fromBlock = (await stack.served.client.getBlockNumber({ cacheTime: 0 })) + 1n
    const dying = await startKeeper(stack, checkpoint, { how: howAt(checkpoint) })
    const [buyer] = await stack.buyers(1, 100_000n)
    const payment = await stack.queue({ buyer, price: 50_000n })
    await expect(submit(await dying.port, payment)).rejects.toThrow()
    await dying.died

    const { port } = await startKeeper(stack, null)
    const answer = await submit(await port, payment)
    expect(answer).toMatchObject({ status: 200, txHash: expect.stringMatching(/^0x[0-9a-f]{64}$/) })
    expect(await submit(await port, payment)).toEqual(answer)
    await until('it is settled', () => stack.isSettled([payment]))
    expect((await stack.halves(payment)).map((half) => half.txHash)).toEqual([answer.txHash, answer.txHash])
    expect(await submit(await port, payment)).toEqual(answer)
    expect(await findMisplaced(stack, [payment], fromBlock)).toEqual([])
    expect(await findBreaches(stack.database)).toEqual([])
  },
)

test.each([
  ...ofX402,
  // Checkpoints that a keeper reaches for any payment. Here, several x402 sellers wait for the answer.
  'after-claim',
  'before-write-ahead',
  'after-write-ahead',
  'after-broadcast',
  'after-mined-recorded',
] satisfies CheckpointName[])(
  'behavior: if the keeper dies at %s, the next keeper settles each of five payments once and answers a repeated request with the transaction',
  async (checkpoint) => {
    const payTo = randomHex(20)
    const payments = await Promise.all(
      (await stack.buyers(5, 10_000n)).map((buyer) => signPayment(stack.served, buyer, { payTo })),
    )
    const dying = await startKeeper(stack, checkpoint, { how: howAt(checkpoint) })
    const dyingPort = await dying.port
    await Promise.allSettled(
      payments.map(async (payment) => {
        await ask(dyingPort, 'verify', payment)
        return ask(dyingPort, 'settle', payment)
      }),
    )
    await dying.died

    const port = await (await startKeeper(stack, null)).port
    const answers = await Promise.all(payments.map((payment) => settle(port, payment)))
    // At this checkpoint, the keeper may have answered a seller before it died, because the settlement was already in the index. If the seller
    // asks again, the answer is `duplicate_settlement`.
    const isToldAgain = checkpoint === 'after-mined-recorded'
    for (const answer of answers) {
      expect(answer).toMatchObject(
        isToldAgain && answer.success === false
          ? { errorReason: 'duplicate_settlement' }
          : { success: true, transaction: expect.stringMatching(/^0x[0-9a-f]{64}$/) },
      )
    }
    expect(await stack.balanceOf(payTo)).toBe(50_000n)
    for (const [index, payment] of payments.entries()) {
      const { logs } = await stack.served.client.getTransactionReceipt({
        hash: answers[index]?.transaction as Hex,
      })
      const { nonce } = payment.authorization
      expect(logs.filter(({ topics }) => topics.some((topic) => topic === nonce))).toHaveLength(1)
      expect(await ask(port, 'settle', payment)).toMatchObject({ errorReason: 'duplicate_settlement' })
    }
    await untilRecorded(stack)
    expect(await findBreaches(stack.database)).toEqual([])
  },
)
