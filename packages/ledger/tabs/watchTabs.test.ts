import { RpcRequestError } from 'viem'
import { beforeEach, expect, test } from 'vitest'
import { collectBadRows } from '../../../test/support/badRows.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { openTabUpkeep } from '../../../test/support/tabUpkeep.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { pagesAtOnce } from './watchTabs.ts'

const gateway = useGateway()
const shop = useShop(gateway)
const pageSize = 150
const tabCount = pageSize * pagesAtOnce + 20

type Question = { args: [unknown, { account: string }[]] }

/** Returns a network whose node answers each query, unless `refuse` throws. */
function watched(refuse: (accounts: string[]) => void = () => {}) {
  const asked: string[][] = []
  const { client } = gateway.served
  const readContract = async (question: Question) => {
    const accounts = question.args[1].map(({ account }) => account)
    asked.push(accounts)
    refuse(accounts)
    return client.readContract(question as never)
  }
  const served = {
    ...gateway.served,
    client: { ...client, readContract },
  } as unknown as typeof gateway.served
  const reports = collectBadRows()
  const upkeep = openTabUpkeep(gateway, Date.now(), { ...reports, networks: [served] })
  return { asked, bad: reports.bad, watch: () => upkeep.watch(served) }
}

/** Opens one tab each for very many payers. */
beforeEach(async () => {
  await gateway.database`delete from tabs.tab`
  const tab = openTab(gateway, await gateway.buyer(5_000_000n))
  await tab.buy(shop)
  await gateway.database`
    insert into tabs.tab select (jsonb_populate_record(t, jsonb_build_object(
      'payer', '\\x' || left(md5(n::text) || md5(n::text), 40), 'charged', '{}'::bigint[]))).*
    from tabs.tab t, generate_series(2, ${tabCount}::integer) n`
})

test('behavior: a step checks a few pages, and the next step continues where this step stopped', async () => {
  const { asked, watch } = watched()
  expect(await watch()).toBe('busy')
  expect(asked.flat().length).toBeLessThanOrEqual(pageSize * pagesAtOnce)
  expect(await watch()).toBe('idle')
  expect([asked.flat().length, new Set(asked.flat()).size]).toEqual([tabCount, tabCount])
  // The next round begins with the first payer.
  await watch()
  expect(asked.flat()[tabCount]).toBe(asked.flat()[0])
})

test('error: if the node refuses a page of payers, does not query them one by one, and continues with the next page in the next step', async () => {
  let refused: string[] | undefined
  const { asked, bad, watch } = watched((accounts) => {
    refused ??= accounts
    if (refused.includes(accounts[0] as string))
      throw new RpcRequestError({ body: {}, url: '', error: { code: -32_603, message: 'internal error' } })
  })
  await expect(watch()).rejects.toThrow('internal error')
  expect(asked).toHaveLength(1)
  while ((await watch()) === 'busy');
  expect(new Set(asked.flat()).size).toBe(tabCount)
  expect(bad).toEqual([])
})
