import { openDatabase } from '@tollkeeper/ledger/store/database'
import type { Page } from 'playwright-core'
import { expect, test } from 'vitest'
import { desktop, phone, violationsInBothSchemes } from '../../support/browser.ts'
import { setRecordBack } from '../../support/setBack.ts'
import type { TestStack } from '../../support/stack.ts'

export type OperatorTools = {
  stack: () => TestStack
  operatorKey: string
  /** A tab of its own, at the sign-in. */
  open: (options: object) => Promise<Page>
  expectErrors: (lines: RegExp) => void
}

/** What the operator sees of the played scene: one provider with payments, and the keeper that settled them. */
export function addOperatorTests({ stack, operatorKey, open, expectErrors }: OperatorTools): void {
  const signIn = async (options: object, key = operatorKey) => {
    const page = await open(options)
    await page.getByLabel('API key').fill(key)
    await page.getByRole('button', { name: 'Sign in' }).click()
    return page
  }
  const inBothSchemes = async (page: Page) => {
    expect([page.url(), await violationsInBothSchemes(page)]).toEqual([page.url(), []])
  }

  test.each([
    ['desktop', desktop],
    ['phone', { ...phone, viewport: { width: 360, height: 740 } }],
  ] as const)(
    'default: the operator sees keepers, queue, index and all providers, on a %s',
    async (_, options) => {
      const page = await signIn(options)
      await page.getByRole('heading', { level: 1, name: 'Operation' }).waitFor()
      await page.getByRole('region', { name: 'Readiness' }).getByText('ok').waitFor()
      await page.getByText('index current').waitFor()
      const keeper = page.getByRole('region', { name: 'Keepers on localhost' }).getByRole('row').nth(1)
      await keeper.getByText('at work').waitFor()
      const queue = page.getByRole('region', { name: 'Queue on localhost' })
      const cells = queue.getByRole('row').filter({ hasText: 'Test API' }).getByRole('cell')
      // Four wait, and one is retried later: 0.0114 USDC each.
      await expect
        .poll(async () => (await cells.allTextContents()).slice(1, 6))
        .toEqual(['Test API', '4', '1', expect.any(String), '0.057000'])
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(options.viewport.width)
      await inBothSchemes(page)

      await page.getByRole('link', { name: 'Providers' }).click()
      const shop = page.getByRole('row').filter({ hasText: 'Test API' })
      // Nine settled of fifteen: 5% of 0.012 each (conformance 2.9-2).
      await expect
        .poll(async () => (await shop.getByRole('cell').allTextContents()).slice(1, 5))
        .toEqual(['15', '0.180000', '0.102600', '0.005400'])
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(options.viewport.width)
      await inBothSchemes(page)
      await page.getByRole('radio', { name: 'Real money' }).check()
      await expect.poll(async () => (await shop.getByRole('cell').allTextContents())[1]).toBe('0')
      await page.getByRole('button', { name: 'Sign out' }).click()
      await page.getByLabel('API key').waitFor()
      expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
    },
  )

  test('behavior: a wallet without gas money and a record that was set back are shown, and nothing is hidden', async () => {
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
      await page.getByText('index behind: it was set back').waitFor()
      await inBothSchemes(page)
      await page.getByRole('link', { name: 'Providers' }).click()
      // The sums are of what is recorded, whatever the index does.
      await page.getByRole('row').filter({ hasText: 'Test API' }).getByText('0.102600').waitFor()
    } finally {
      await catchUp()
      await setBalance(balance)
      await sql.end()
    }
  })

  test("default: the operator stops a provider's sales, allows them again, and queues what failed", async () => {
    expectErrors(/status of 404/)
    const page = await signIn(desktop)
    await page.getByRole('button', { name: 'Queue a payment again' }).click()
    await page.getByLabel('Payment', { exact: true }).fill(`pay_${'0'.repeat(32)}`)
    await page.getByRole('button', { name: 'Queue again', exact: true }).click()
    await page.getByText('unknown_payment').waitFor()
    await page.getByRole('button', { name: 'Cancel' }).click()
    await page.getByRole('link', { name: 'Providers' }).click()
    const shop = page.getByRole('row').filter({ hasText: 'Test API' })
    for (const [verb, next] of [
      ['Suspend', 'Reinstate'],
      ['Reinstate', 'Suspend'],
    ]) {
      await shop.getByRole('button', { name: `${verb} Test API` }).click()
      await page.getByRole('button', { name: `${verb} it` }).click()
      await shop.getByRole('button', { name: `${next} Test API` }).waitFor()
    }
  })

  test("error: a wrong operator's key", async () => {
    expectErrors(/status of 401/)
    const page = await signIn(desktop, `${operatorKey.slice(0, -1)}_`)
    await page.getByRole('alert').getByText('This API key is not in force').waitFor()
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
  })
}
