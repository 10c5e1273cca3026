import type { Hex } from 'viem'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import type { CheckpointName } from '#keeper/settings/checkpoints'
import { untilRecorded } from '../support/keeperScenes.ts'
import { type KeeperStack, platformWallet, startKeeperStack, walletKey } from '../support/keeperStack.ts'
import { findBreaches } from '../support/ledger.ts'
import { randomHex } from '../support/usdc.ts'
import { signPayment, type X402Payment } from '../support/x402.ts'
import { ofX402 } from './checkpoints.ts'
import { death, kill, killAll, portOf, startChild } from './children.ts'
import type { CrashingKeeperOptions, Turn } from './crashingKeeper.ts'

// The facilitator is killed while sellers wait: whoever asks again gets the truth, and nothing is settled twice.

let stack: KeeperStack
beforeAll(async () => {
  stack = await startKeeperStack({ leaseMs: 700, rebroadcastAfterMs: 300 })
})
afterEach(killAll)
afterAll(() => stack?.close())

function startKeeper(crashAt: CheckpointName | null) {
  const { databaseUrl, deploymentsFile, chain, settings } = stack
  const keeper = startChild('crashingKeeper.ts', {
    ...{ databaseUrl, deploymentsFile, settings },
    rpcUrl: chain.url,
    privateKeys: [walletKey(0)],
    platformWallet,
  } satisfies CrashingKeeperOptions)
  keeper.send({ crashAt } satisfies Turn)
  return keeper
}

async function ask(port: number, path: 'verify' | 'settle', { body }: X402Payment) {
  const response = await fetch(`http://127.0.0.1:${port}/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${stack.apiKey}` },
    body: JSON.stringify(body),
  })
  return (await response.json()) as Record<string, unknown>
}

/** Asks on while it is pending, as the answer tells a seller to. */
async function settle(port: number, payment: X402Payment) {
  for (;;) {
    const answer = await ask(port, 'settle', payment)
    if (answer.errorReason !== 'settlement_pending') return answer
  }
}

test.each([
  ...ofX402,
  // What it does in between is any keeper's path, with a group of sellers waiting for the answer.
  'after-claim',
  'before-write-ahead',
  'after-write-ahead',
  'after-broadcast',
  'after-mined-recorded',
] satisfies CheckpointName[])(
  'behavior: it dies at %s: asked again, each of a group is settled once, and hears by which transaction',
  async (checkpoint) => {
    const payTo = randomHex(20)
    const payments = await Promise.all(
      (await stack.buyers(5, 10_000n)).map((buyer) => signPayment(stack.served, buyer, { payTo })),
    )
    const dying = startKeeper(checkpoint)
    const died = death(dying)
    const port = await portOf(dying)
    await Promise.allSettled(
      payments.map(async (payment) => {
        await ask(port, 'verify', payment)
        return ask(port, 'settle', payment)
      }),
    )
    await died

    const next = startKeeper(null)
    const nextPort = await portOf(next)
    const answers = await Promise.all(payments.map((payment) => settle(nextPort, payment)))
    // Once the index has seen the transaction, a seller may have been answered before the keeper died of recording it.
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
      expect(await ask(nextPort, 'settle', payment)).toMatchObject({ errorReason: 'duplicate_settlement' })
    }
    await untilRecorded(stack)
    expect(await findBreaches(stack.database)).toEqual([])
    await kill(next)
  },
)
