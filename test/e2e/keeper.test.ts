import { afterAll, beforeAll, expect, test } from 'vitest'
import { type KeeperStack, platformWallet, type QueuedPayment, randomHex, startKeeperStack, until } from '../support/keeperStack.ts'

let stack: KeeperStack
beforeAll(async () => {
  stack = await startKeeperStack()
})
afterAll(() => stack?.close())

async function batches() {
  return stack.database<{ trigger: string; state: string; outcome: string | null; items: number }[]>`
    select trigger, state, outcome, (select count(*)::int from batch_item i where i.batch_id = b.id) as items
    from batch b order by id`
}

test('default: 100 payments fire `count`, settle in one transaction, and leave the queue', async () => {
  const keeper = stack.keeper()
  const payee = randomHex(20)
  const buyers = await stack.buyers(3, 1_000_000n)
  const payments: QueuedPayment[] = []
  for (let i = 0; i < 100; i++) {
    const buyer = buyers[i % buyers.length]
    if (buyer) payments.push(await stack.queue({ buyer, payee, price: 5_000n }))
  }
  keeper.start()
  await until('all are settled', () => stack.isSettled(payments))
  await until('the batch is mined', async () => (await batches())[0]?.state === 'mined')
  await keeper.stop()
  expect(await batches()).toEqual([{ trigger: 'count', state: 'mined', outcome: null, items: 100 }])
  expect(await stack.balanceOf(payee)).toBe(450_000n)
  expect(await stack.balanceOf(platformWallet)).toBe(50_000n)
})
