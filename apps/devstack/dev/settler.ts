import { setTimeout as delay } from 'node:timers/promises'
import { isShown } from '@tollkeeper/ledger/queue/stages'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { Hash, PublicClient } from 'viem'
import { devPrivateKey } from '../chain/accounts.ts'
import type { Service } from '../stack/service.ts'
import type { Stack } from '../stack/stack.ts'

type Half = { transactionHash: Hash | null }
type Payment = { payment_status: PaymentStatus; provider: Half; platform: Half | null }

/** Not the keeper's account, because two keepers must not share a wallet. */
const settlerAccount = 4
const pollMs = 100

/** Creates a function that settles all waiting payments. It uses a separate keeper, for which every payment is due. */
export function createSettler(options: {
  stack: Stack
  sql: Database
  client: Pick<PublicClient, 'getTransactionReceipt'>
}) {
  const { stack, sql, client } = options
  let settler: Service | undefined

  const readPayment = async (paymentId: string): Promise<Payment | undefined> => {
    const answer = await fetch(new URL(`/payments/${paymentId}`, stack.api.url))
    return answer.ok ? ((await answer.json()) as Payment) : undefined
  }
  /** Whether the chain has every settlement that the gateway reports. After a reorg, one of them may be gone. */
  const isFinalized = async ({ payment_status, provider, platform }: Payment): Promise<boolean> => {
    if (payment_status === 'verified' || payment_status === 'settling') return false
    const hashes = [provider, platform].flatMap((half) => half?.transactionHash ?? [])
    const found = hashes.map((hash) => client.getTransactionReceipt({ hash }).catch(() => null))
    return !(await Promise.all(found)).includes(null)
  }

  /** Finds the payments that aren't finalized, and calls `seen` with the status of each finalized payment. */
  const readOpen = async (ids: readonly string[], seen: (id: string, status: PaymentStatus) => void) => {
    const open: string[] = []
    for (const id of ids) {
      const payment = await readPayment(id)
      if (payment && (await isFinalized(payment))) seen(id, payment.payment_status)
      else open.push(id)
    }
    return open
  }

  const settleNow = async (timeoutSeconds: number) => {
    const pending = await sql<{ id: string }[]>`
      select payment_id as id from queue q where ${isShown(sql)}
      union all
      select payment_id from payment_result where kind = 'spent'`
    const waiting = await readOpen(
      pending.map(({ id }) => id),
      () => {},
    )
    const payments = Object.fromEntries(waiting.map((id): [string, PaymentStatus] => [id, 'verified']))
    if (waiting.length === 0) return { payments }
    settler ??= await stack.createService('keeper', {
      KEEPER_PRIVATE_KEYS: devPrivateKey(settlerAccount),
      TRIGGER_TIME_SECONDS: '1',
    })
    const deadline = Date.now() + timeoutSeconds * 1000
    try {
      await settler.start()
      for (let open = waiting; open.length > 0 && Date.now() < deadline; await delay(pollMs)) {
        open = await readOpen(open, (id, status) => {
          payments[id] = status
        })
      }
    } finally {
      await settler.stop()
    }
    return { payments }
  }
  /** Run one settlement after another, because there is only one keeper for which every payment is due. */
  let turn: Promise<unknown> = Promise.resolve()
  const settle = (timeoutSeconds: number): ReturnType<typeof settleNow> => {
    const result = turn.then(() => settleNow(timeoutSeconds))
    turn = result.catch(() => {})
    return result
  }
  return { settle, readPayment }
}
