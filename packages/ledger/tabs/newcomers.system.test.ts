import { expect, test } from 'vitest'
import { createMigratedDatabase } from '../../../test/support/database.ts'
import { seedProvider } from '../../../test/support/seedPayments.ts'
import { type MarketTab, openMarket, price, wallets } from '../../../test/support/tabMarket.ts'
import { openDatabase } from '../store/database.ts'

const sql = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })

test('behavior: the default budget is enough for 1,000 paying newcomers per day, even if each hour’s tabs settle only in the next hour', async () => {
  // The budget is the default of TAB_BUDGET_USDC. Each newcomer buys for three quarters of TAB_CREDIT_USDC.
  const market = openMarket({ sql, provider: await seedProvider(sql), budget: 100_000_000n })
  const newcomers = wallets(1_000)
  let served = 0
  let bought: MarketTab[] = []
  for (let hour = 0; hour < 24; hour++) {
    const own = newcomers.slice(Math.floor((hour * 1_000) / 24), Math.floor(((hour + 1) * 1_000) / 24))
    const tabs = own.map((payer) => market.openTab(payer))
    await Promise.all(
      tabs.map(async (tab) => {
        for (let n = 0; n < 3; n++) await market.buy(tab, price)
      }),
    )
    served += tabs.length
    // The tabs of the previous hour settle only now.
    await Promise.all(bought.map((tab) => market.settle(tab)))
    await market.close()
    bought = tabs
  }
  expect(served).toBe(1_000)
})
