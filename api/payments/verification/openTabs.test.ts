import { createOpenTabLimit, maxOpenTabs } from '@tollkeeper/ledger/tabs/openTabLimit'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import type { PrivateKeyAccount } from 'viem'
import { expect, test } from 'vitest'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'

// The number of a payer's open tabs is limited, because each open tab is checked on chain every few seconds, even if its amount is small.

const gateway = useGateway()
const shop = useShop(gateway)

/** Stores `count` tabs of a payer. The first `closed` of them are closed, the rest are open. */
async function seedTabs({ address }: PrivateKeyAccount, count: number, closed = 0): Promise<void> {
  const bytes = (hex: string) => Buffer.from(hex.slice(2), 'hex')
  const { chainId } = gateway.served.network
  for (let n = 0; n < count; n++) {
    await gateway.database`
      insert into tabs.tab (payer, id, chain_id, token, contract, platform, reward_share, nonce, expires_at, has_code, payment_id,
        opened_at, closed_at, close_reason, reserved, lent, used_at)
      values (${bytes(address)}, ${bytes(randomHex(16))}, ${chainId}, ${bytes(gateway.served.token)}, ${bytes(randomHex(20))},
        ${bytes(randomHex(20))}, 0, ${bytes(randomHex(32))}, 4102444800, false, ${`pay_${n}`}, now(),
        ${n < closed ? gateway.database`now()` : null}, ${n < closed ? 'idle' : null}, 0, 0, now())`
  }
}

test('error: a payer with the maximum number of open tabs can’t open another until one is closed', async () => {
  const payer = await gateway.buyer(1_000_000n)
  await seedTabs(payer, maxOpenTabs)
  expect(await openTab(gateway, payer).buy(shop)).toMatchObject({
    status: 402,
    body: { code: 'tab_limit_exceeded' },
  })
  const other = openTab(gateway, await gateway.buyer(1_000_000n))
  expect((await other.buy(shop)).status).toBe(200)
})

test('behavior: doesn’t count closed tabs, and still accepts purchases on open tabs', async () => {
  const payer = await gateway.buyer(1_000_000n)
  const tab = openTab(gateway, payer)
  expect((await tab.buy(shop)).status).toBe(200)
  await seedTabs(payer, maxOpenTabs, maxOpenTabs)
  expect((await openTab(gateway, payer).buy(shop)).status).toBe(200)
  await seedTabs(payer, maxOpenTabs)
  expect((await tab.buy(shop)).status).toBe(200)
})

test('behavior: tabs that are opened concurrently count as well', async () => {
  const payer = await gateway.buyer(5_000_000n)
  await seedTabs(payer, maxOpenTabs - 3)
  const answers = await Promise.all(Array.from({ length: 8 }, () => openTab(gateway, payer).buy(shop)))
  const codes = answers.map(({ body }) => body.code ?? 'verified').toSorted()
  expect(codes).toEqual([...Array(5).fill('tab_limit_exceeded'), ...Array(3).fill('verified')])
})

test('behavior: concurrent requests that open the same tab count as one tab', async () => {
  const { address: payer } = await gateway.buyer(1_000_000n)
  const requireRoom = createOpenTabLimit(onOnePostgres(gateway.database))
  const tabId = `tab_${'1'.repeat(32)}`
  await Promise.all(Array.from({ length: maxOpenTabs + 1 }, () => requireRoom({ payer, tabId })))
  await requireRoom({ payer, tabId: `tab_${'2'.repeat(32)}` })
})

test('behavior: tabs that were refused don’t count', async () => {
  const buyer = await gateway.buyer(1_000_000n)
  await seedTabs(buyer, maxOpenTabs)
  const requireRoom = createOpenTabLimit(onOnePostgres(gateway.database), () => 0)
  const tabOf = (n: number) => ({ payer: buyer.address, tabId: `tab_${String(n).repeat(32)}` })
  for (const n of [1, 2]) await expect(requireRoom(tabOf(n))).rejects.toThrow('close some first')
  await gateway.database`
    update tabs.tab set closed_at = now(), close_reason = 'idle' where (payer, id) in (
      select payer, id from tabs.tab where payer = ${Buffer.from(buyer.address.slice(2), 'hex')} limit 1)`
  await requireRoom(tabOf(3))
  await expect(requireRoom(tabOf(4))).rejects.toThrow('close some first')
})
