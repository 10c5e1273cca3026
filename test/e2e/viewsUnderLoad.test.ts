import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newBuyer, openShop, type Shop, type TestBuyer } from '../support/shop.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'

let stack: TestStack
let database: Database
let shop: Shop

beforeAll(async () => {
  // A batch for every few payments, so that the keeper acts on new blocks all the time.
  stack = await startTestStack({ env: { keeper: { TRIGGER_COUNT: '2' } } })
  database = openDatabase({ url: stack.databaseUrl, max: 4, applicationName: 'test' })
  shop = await openShop(stack)
})
afterAll(async () => {
  await shop?.close()
  await database?.end()
  await stack?.close()
})

test('behavior: the gateway serves every view, and names the indexed block of the view, while batches are mined continuously', async () => {
  const buyers = [await newBuyer(stack, '100'), await newBuyer(stack, '100')]
  const { paymentId = '' } = await (buyers[0] as TestBuyer).client.request(shop.url)
  const own = `/providers/${shop.providerId}`
  const paths = [
    `/payments/${paymentId}`,
    `/receipts/${paymentId}`,
    `/settlements/status?wallet=${shop.address}`,
    `/settlements/batches?wallet=${shop.address}`,
    `${own}/payments`,
    `${own}/revenue`,
    `${own}/payers`,
    `${own}/payer-activity`,
    `${own}/endpoint-activity`,
    `${own}/queue`,
    `${own}/batches`,
    `${own}/payments/${paymentId}/timeline`,
  ]
  const batchesWanted = 6
  let isEnough = false
  let answers = 0
  /** Number of responses whose indexed block was older than the newest batch that the keeper had recorded as mined. */
  let answersBeforeIndex = 0
  const refusals: string[] = []

  async function buy(buyer: TestBuyer): Promise<void> {
    while (!isEnough) await buyer.client.request(shop.url)
  }

  async function look(first: number): Promise<void> {
    for (let turn = first; !isEnough; turn++) {
      const path = paths[turn % paths.length] as string
      const mined = await readMinedBlock()
      const answer = await fetch(new URL(path, stack.api.url), {
        headers: { authorization: `Bearer ${shop.apiKey}` },
      })
      answers++
      const body = (await answer.json()) as { indexedBlock?: number; indexedBlocks?: Record<string, number> }
      if (answer.status !== 200) refusals.push(`${path}: ${answer.status} ${JSON.stringify(body)}`)
      else if (!path.startsWith('/receipts/')) {
        const indexed = body.indexedBlock ?? body.indexedBlocks?.[stack.chain.network]
        expect(indexed, path).toBeTypeOf('number')
        if (BigInt(indexed as number) < mined) answersBeforeIndex++
      }
    }
  }

  async function readMinedBlock(): Promise<bigint> {
    const [row] = await database<
      [{ block: bigint | null }]
    >`select max(mined_block) as block from transaction`
    return row.block ?? 0n
  }

  /** Ends the test after enough batches and responses. At least one response must come while a mined batch isn't indexed yet. */
  async function countBatches(): Promise<void> {
    while (!isEnough) {
      const [row] = await database<[{ count: number }]>`
        select count(*)::int as count from transaction where mined_block is not null`
      isEnough = row.count >= batchesWanted && answers > 10 * batchesWanted && answersBeforeIndex > 0
    }
  }

  await Promise.all([countBatches(), look(0), look(5), ...buyers.map(buy)])
  expect(refusals).toEqual([])
})
