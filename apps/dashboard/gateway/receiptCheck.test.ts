import { expect, test } from 'vitest'
import { call, pay } from '../../../test/support/gateway.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import type { Gateway } from './gateway.ts'
import { checkReceipt } from './receiptCheck.ts'

const gateway = useGateway()
const shop = useShop(gateway)

/** A gateway client without a server. */
const reader: Pick<Gateway, 'get'> = {
  get: async <T>(path: string) => (await call<T>(gateway.app, 'GET', `/${path}`)).body,
}

test('default: reports a genuine receipt without differences from its payment', async () => {
  const { receipt } = await pay(gateway, shop)
  expect(await checkReceipt(receipt, reader)).toMatchObject({
    kind: 'genuine',
    payment: { payment_status: 'verified', tab: null },
    mismatches: [],
  })
})

test('behavior: finds the open tab of a request, and doesn’t compare the tab’s amounts with the request’s', async () => {
  const tab = openTab(gateway, await gateway.buyer(5_000_000n))
  await tab.buy(shop)
  const { receipt = '' } = (await tab.buy(shop)).body
  expect(await checkReceipt(receipt, reader)).toMatchObject({
    kind: 'genuine',
    claims: { totalUsdc: '50000' },
    payment: { payment_status: 'verified', totalUsdc: '100000', tab: { tabId: tab.tabId, isOpen: true } },
    mismatches: [],
  })
})
