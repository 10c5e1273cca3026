import { changeSales } from '@tollkeeper/ledger/registry/salesStop'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import type { Locator, Page } from 'playwright-core'
import { expect, test } from 'vitest'
import { desktop, phone, violationsInBothSchemes } from '../../support/browser.ts'
import { setRecordBack } from '../../support/setBack.ts'
import type { TestStack } from '../../support/stack.ts'
import { until } from '../../support/until.ts'

export type OperatorTools = {
  stack: () => TestStack
  operatorKey: string
  /** Opens a new tab at the sign-in page. */
  open: (options: object) => Promise<Page>
  expectErrors: (lines: RegExp) => void
}

/**
 * Adds tests of what the operator sees of the scene: one provider with payments, and the keeper that settled
 * them.
 */
export function addOperatorTests({ stack, operatorKey, open, expectErrors }: OperatorTools): void {
  const signIn = async (options: object, key = operatorKey) => {
    const page = await open(options)
    await page.getByLabel('API key').fill(key)
    await page.getByRole('button', { name: 'Sign in' }).click()
    return page
  }
  /**
   * Returns the row of the scene's provider. The list shows the newest providers first, and other tests have registered some since, so older
   * pages may have to be opened.
   */
  const findShop = async (page: Page) => {
    const providers = page.getByRole('region', { name: 'Providers' })
    const shop = providers.getByRole('row').filter({ hasText: 'Test API' })
    const older = page.getByRole('button', { name: 'Show older ones' })
    await until('the list shows the scene’s provider', async () => {
      if ((await shop.count()) > 0) return true
      // The button disappears once all providers are shown, which may just have happened.
      if (await older.isVisible()) await older.click({ timeout: 1_000 }).catch(() => {})
      return false
    })
    return shop
  }
  const inBothSchemes = async (page: Page) => {
    expect([page.url(), await violationsInBothSchemes(page)]).toEqual([page.url(), []])
  }

  test.each([
    ['desktop', desktop],
    ['phone', { ...phone, viewport: { width: 360, height: 740 } }],
  ] as const)(
    'default: shows keepers, queue, index and all providers to the operator, on a %s',
    async (_, options) => {
      const page = await signIn(options)
      await page.getByRole('heading', { level: 1, name: 'Operation' }).waitFor()
      await page.getByRole('region', { name: 'Readiness' }).getByText('ok').waitFor()
      await page.getByText('index current').waitFor()
      const keeper = page.getByRole('region', { name: 'Keepers on localhost' }).getByRole('row').nth(1)
      await keeper.getByText('at work').waitFor()
      const queue = page.getByRole('region', { name: 'Queue on localhost' })
      const waiting = queue.getByRole('row').filter({ hasText: 'Test API' })
      const cells = waiting.getByRole('cell')
      // On a phone, a row hides most of its cells until it is opened.
      const openRow = async (row: Locator) => {
        if (options.viewport.width < 720) await row.getByRole('button', { name: 'Show more' }).click()
      }
      await openRow(waiting)
      // Four payments wait, and one is to be retried. The provider gets 0.0114 USDC for each.
      await expect
        .poll(async () => (await cells.allTextContents()).slice(1, 6))
        .toEqual(['Test API', '4', '1', expect.any(String), '0.057000'])
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(options.viewport.width)
      await inBothSchemes(page)

      await page.getByRole('link', { name: 'Providers' }).click()
      const shop = await findShop(page)
      await openRow(shop)
      // Nine of fifteen payments have settled, each with a fee of 5% of 0.012 USDC (conformance 2.9-2).
      await expect
        .poll(async () => (await shop.getByRole('cell').allTextContents()).slice(1, 5))
        .toEqual(['15', '0.180000', '0.102600', '0.005400'])
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(options.viewport.width)
      await inBothSchemes(page)
      await page.getByRole('radio', { name: 'Real money' }).check()
      await openRow(await findShop(page))
      await expect.poll(async () => (await shop.getByRole('cell').allTextContents())[1]).toBe('0')
      await page.getByRole('button', { name: 'Sign out' }).click()
      await page.getByLabel('API key').waitFor()
      expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
    },
  )

  test('behavior: shows that a wallet is low on gas money and that the index is behind, and still shows all other data', async () => {
    const { rpc, databaseUrl } = stack()
    const sql = openDatabase({ url: databaseUrl, max: 1, applicationName: 'test' })
    const [lease] = await sql`select address from wallet_lease where expires_at > now()`
    const address = lease?.address
    const balance = await rpc.getBalance({ address })
    const setBalance = (wei: bigint) =>
      rpc.request({ method: 'hardhat_setBalance', params: [address, `0x${wei.toString(16)}`] } as never)
    const catchUp = await setRecordBack(sql, stack().chain.chainId)
    try {
      await setBalance(1_000_000_000_000_000n)
      const page = await signIn(desktop)
      const keeper = page.getByRole('row').filter({ hasText: 'at work' })
      await keeper.getByText('0.001', { exact: true }).waitFor()
      await page.getByText('index behind: it went back to an earlier block').waitFor()
      await inBothSchemes(page)
      await page.getByRole('link', { name: 'Providers' }).click()
      // The sums come from the record, independently of the index.
      await (await findShop(page)).getByText('0.102600').waitFor()
    } finally {
      await catchUp()
      await setBalance(balance)
      await sql.end()
    }
  })

  test('default: the operator can stop and allow a provider’s sales, and queue a failed payment again', async () => {
    expectErrors(/status of 404/)
    const page = await signIn(desktop)
    await page.getByRole('button', { name: 'Queue a payment again' }).click()
    await page.getByLabel('Payment', { exact: true }).fill(`pay_${'0'.repeat(32)}`)
    await page.getByRole('button', { name: 'Queue again', exact: true }).click()
    await page.getByText('unknown_payment').waitFor()
    await page.getByRole('button', { name: 'Cancel' }).click()
    await page.getByRole('link', { name: 'Providers' }).click()
    const shop = await findShop(page)
    for (const [verb, next] of [
      ['Suspend', 'Reinstate'],
      ['Reinstate', 'Suspend'],
    ]) {
      await shop.getByRole('button', { name: `${verb} Test API` }).click()
      await page.getByRole('button', { name: `${verb} it` }).click()
      await shop.getByRole('button', { name: `${next} Test API` }).waitFor()
    }
  })

  test('behavior: every page reports to every visitor that the operator has stopped sales', async () => {
    const { databaseUrl, api } = stack()
    const sql = openDatabase({ url: databaseUrl, max: 1, applicationName: 'test' })
    const stop = async (isStopped: boolean) => {
      const reason = isStopped ? 'moving to a new chain node' : ''
      await changeSales(sql, { isStopped, reason, changedBy: 'test' })
      await until('the gateway has read the switch', async () => {
        const { sales } = (await (await fetch(api.url)).json()) as { sales: { stopped: boolean } | null }
        return sales?.stopped === isStopped
      })
    }
    try {
      await stop(true)
      const page = await open(phone)
      const banner = page.getByRole('status').filter({ hasText: 'The operator has stopped sales' })
      await banner.getByText('moving to a new chain node').waitFor()
      await page.goto(`${api.url}/dashboard/#/market`)
      await page.getByRole('heading', { level: 1, name: 'Market' }).waitFor()
      await banner.getByText('Accepted payments still settle.').waitFor()
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(phone.viewport.width)
      await inBothSchemes(page)
      await stop(false)
      await page.reload()
      await page.getByRole('heading', { level: 1, name: 'Market' }).waitFor()
      await page.getByText('Live', { exact: true }).waitFor()
      expect(await banner.count()).toBe(0)
    } finally {
      await stop(false)
      await sql.end()
    }
  })

  test('error: rejects a wrong operator key', async () => {
    expectErrors(/status of 401/)
    const page = await signIn(desktop, `${operatorKey.slice(0, -1)}_`)
    await page.getByRole('alert').getByText('This API key is unknown or revoked').waitFor()
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
  })
}
