import { openDatabase } from '@tollkeeper/ledger/store/database'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Page } from 'playwright-core'
import { expect, onTestFinished, test } from 'vitest'
import { desktop, phone, seriousViolations, violationsInBothSchemes } from '../../support/browser.ts'
import { failPayments } from '../../support/paymentPosition.ts'
import { newBuyer, openShop, type Shop } from '../../support/shop.ts'
import type { TestStack } from '../../support/stack.ts'
import { until } from '../../support/until.ts'
import { call } from './desk.ts'
import type { Scene } from './scene.ts'

export type PaymentTools = {
  stack: () => TestStack
  scene: () => Scene
  signIn: (options?: object, key?: string) => Promise<Page>
  expectErrors: (lines: RegExp) => void
}

type Totals = { totals: { payments: number; gross_usdc: string; net_usdc: string; refunded_usdc: string }[] }

/** Adds tests of what a provider sees about payments, open tabs and payouts. */
export function addPaymentTests({ stack, scene, signIn, expectErrors }: PaymentTools): void {
  const at = (route: string) => `${stack().api.url}/dashboard/#/${route}`
  const payments = (page: Page) => page.getByRole('region', { name: 'Payments' }).getByRole('row')
  const ask = <T>(path: string, shop: Shop = scene().shop) =>
    call<T>(`${stack().api.url}/providers/${shop.providerId}/${path}`, shop.apiKey)

  async function requireFit(page: Page, name: string, width: number): Promise<void> {
    // Don't use innerWidth, because a phone widens it if the content overflows.
    expect([name, await page.evaluate(() => document.documentElement.scrollWidth)]).toEqual([name, width])
  }

  /** Opens a shop with failed payments, as if all their retries were used up. */
  async function openFailedShop(count: number): Promise<{ shop: Shop; failed: string[] }> {
    const shop = await openShop(stack(), { usdcPerUnit: '0.012' })
    onTestFinished(shop.close)
    const { client } = await newBuyer(stack(), '1')
    const failed: string[] = []
    for (let n = 0; n < count; n++) failed.push((await client.request(shop.url)).paymentId as string)
    const sql = openDatabase({ url: stack().databaseUrl, max: 1, applicationName: 'test' })
    await failPayments(sql, failed)
    await sql.end()
    return { shop, failed }
  }

  test('behavior: shows payments with the path of their endpoint, and totals of the filtered payments', async () => {
    const page = await signIn()
    for (const query of ['', 'status=settled']) {
      await page.goto(at(`payments?${query}`))
      const row = payments(page).nth(1)
      await row.getByRole('link', { name: 'GET /data' }).waitFor()
      await row.getByText('localhost (testnet funds)').waitFor()
      const { totals } = await ask<Totals>(`payments/totals?${query}`)
      const [sums] = totals
      const panel = page.getByRole('region', { name: 'Totals' })
      await expect
        .poll(async () =>
          (await panel.locator('.value').allTextContents()).map((text) => text.replace(' USDC', '')),
        )
        .toEqual([
          `${sums?.payments}`,
          ...[sums?.gross_usdc, sums?.net_usdc, sums?.refunded_usdc].map((decimal) =>
            (Number(parseUsdc(decimal as string)) / 1e6).toLocaleString('en', {
              minimumFractionDigits: 2,
              maximumFractionDigits: 6,
            }),
          ),
        ])
    }
    expect(await violationsInBothSchemes(page)).toEqual([])
  })

  test('behavior: a link restores its filters, and the Back button restores the previous filters', async () => {
    const page = await signIn()
    await page.goto(at('payments?status=settled&min_usdc=0.01'))
    const status = page.getByLabel('Status')
    await expect.poll(() => status.inputValue()).toBe('settled')
    expect(await page.getByLabel('At least, USDC').inputValue()).toBe('0.01')
    await status.selectOption('failed')
    // Data that arrives in the meantime doesn't reset the selected filter.
    await page.waitForResponse((response) => response.url().includes('/payments?'))
    await page.getByRole('button', { name: 'Search' }).click()
    await expect.poll(() => page.url()).toContain('status=failed')
    await page.goBack()
    await expect.poll(() => status.inputValue()).toBe('settled')
    await payments(page).getByText('settled', { exact: true }).first().waitFor()
    await page.getByRole('button', { name: 'Show all' }).click()
    await expect.poll(() => status.inputValue()).toBe('')
  })

  test('behavior: one search field finds a payment, a buyer or a transaction, and names what it found', async () => {
    const { settled } = scene()
    type Found = { payer: string; provider: { transactionHash: string } }
    const found: Found = await call(`${stack().api.url}/payments/${settled.at(-1)}`, scene().shop.apiKey)
    const { payer } = found
    const txHash = found.provider.transactionHash
    const page = await signIn()
    await page.goto(at('payments'))
    const find = async (text: string) => {
      await page.getByLabel('Find a payment').fill(text)
      await page.getByRole('search').getByRole('button', { name: 'Find' }).click()
    }
    await find(txHash)
    await page
      .getByText('6 of your payments settled in this transaction on localhost (testnet funds).')
      .waitFor()
    expect(await payments(page).count()).toBe(7)
    await page.getByRole('link', { name: 'See its batch' }).click()
    await page.getByRole('heading', { level: 1, name: 'Batch' }).waitFor()
    await page.goto(at('payments'))
    await find(`0x${'7e'.repeat(32)}`)
    await page.getByText('None of your payments settled in this transaction.').waitFor()
    await find(payer)
    await page.getByText(/^\d+ payments of buyer/).waitFor()
    expect(await page.getByLabel('Buyer', { exact: true }).inputValue()).toBe(payer)
    await find('pay_1')
    await page.getByRole('alert').getByText('Enter a payment’s id').waitFor()
    expect(await seriousViolations(page)).toEqual([])
    await find(settled.at(-1) as string)
    await page.getByRole('heading', { level: 1, name: 'Payment' }).waitFor()
    for (const name of ['GET /data', 'Payments that settled together'])
      await page.getByRole('link', { name }).waitFor()
    const buyer = page.getByRole('link', { name: new RegExp(`^${payer.slice(0, 10)}`) }).first()
    expect(await buyer.getAttribute('href')).toMatch(/^#\/buyers\/0x[0-9a-f]{40}$/)
  })

  test('error: marks a filter that the gateway rejects, and doesn’t report a failure', async () => {
    expectErrors(/status of 4(00|22)/)
    const page = await signIn()
    await page.goto(at('payments'))
    const field = page.getByLabel('At least, USDC')
    await field.fill('much')
    await page.getByRole('button', { name: 'Search' }).click()
    await page.getByText('expected decimal USDC').first().waitFor()
    await expect.poll(() => field.getAttribute('aria-invalid')).toBe('true')
    expect(await page.getByText('The gateway couldn’t answer').count()).toBe(0)
    expect(await seriousViolations(page)).toEqual([])
    await field.fill('0,01')
    await page.getByRole('button', { name: 'Search' }).click()
    await payments(page).nth(1).waitFor()
  })

  test('behavior: starts the days of a filter in the selected time zone', async () => {
    const page = await signIn({ ...desktop, timezoneId: 'Asia/Kolkata' })
    const asked: URLSearchParams[] = []
    page.on('request', (request) => {
      const { pathname, searchParams } = new URL(request.url())
      if (pathname.endsWith('/payments')) asked.push(searchParams)
    })
    await page.goto(at('payments?from=2026-11-02&to=2026-11-03'))
    await page.getByLabel('From, local time').waitFor()
    await expect.poll(() => asked.at(-1)?.get('from')).toBe('2026-11-01T18:30:00.000Z')
    expect(asked.at(-1)?.get('to')).toBe('2026-11-03T18:30:00.000Z')
    await page.evaluate(() => localStorage.setItem('tollkeeper.zone', 'utc'))
    await page.reload()
    await page.getByLabel('From, UTC').waitFor()
    await expect.poll(() => asked.at(-1)?.get('from')).toBe('2026-11-02T00:00:00.000Z')
    await page.evaluate(() => localStorage.removeItem('tollkeeper.zone'))
  })

  test('behavior: queues several failed payments again, and shows the result', async () => {
    const { shop, failed } = await openFailedShop(3)
    const page = await signIn(desktop, shop.apiKey)
    await page.goto(at('payments?status=failed'))
    await page.getByLabel(`Choose ${failed[0]}`).check()
    await page.getByRole('button', { name: 'Queue 1 again' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('This queues 1 failed payment again.').waitFor()
    expect(await seriousViolations(page)).toEqual([])
    await dialog.getByRole('button', { name: 'Queue again' }).click()
    await dialog.getByText('1 payment is in the queue again.').waitFor()
    await dialog.getByRole('button', { name: 'Close' }).last().click()
    await page.getByRole('button', { name: 'Queue all of these 2 again' }).click()
    // At the same time, another user queues one of these payments.
    await call(`${stack().api.url}/payments/${failed[1]}/requeue`, shop.apiKey, 'POST')
    await dialog.getByRole('button', { name: 'Queue again' }).click()
    await dialog.getByText('1 payment is in the queue again.').waitFor()
    await dialog.getByRole('button', { name: 'Close' }).last().click()
    await page.getByText('No payment matches these filters').waitFor()
    for (const paymentId of failed)
      expect((await stack().get(`/payments/${paymentId}`)).body.payment_status).toBe('verified')
  })

  test('behavior: a payment that is queued again stays on the failures page, with its current status', async () => {
    const { shop, failed } = await openFailedShop(1)
    const page = await signIn(desktop, shop.apiKey)
    await page.goto(at('payments/failures'))
    await page.getByRole('button', { name: 'Queue again' }).click()
    const card = page.getByRole('region', { name: 'Queued again' })
    await card.getByText('The payment is queued again with all its retries.').waitFor()
    await card.getByText('queued', { exact: true }).waitFor()
    await page.getByRole('heading', { level: 2, name: 'Failed', exact: true }).waitFor({ state: 'detached' })
    // The payment stays on the page although the list, when read again, no longer contains it.
    await page.waitForResponse((response) => response.url().includes('/failures?'))
    await card.getByTitle(failed[0] as string).waitFor()
    expect(await violationsInBothSchemes(page)).toEqual([])
    await card.getByRole('button', { name: 'Hide' }).click()
    await page.getByRole('heading', { name: 'No failures' }).waitFor()
  })

  test('error: the page of an unknown payment links to the list and the search, and doesn’t retry', async () => {
    expectErrors(/status of 404/)
    const page = await signIn()
    await page.goto(at(`payments/pay_${'0'.repeat(32)}`))
    await page.getByRole('heading', { level: 2, name: 'No payment has this id' }).waitFor()
    expect(await page.getByRole('button', { name: 'Try again' }).count()).toBe(0)
    expect(await seriousViolations(page)).toEqual([])
    await page.getByLabel('Find a payment').fill(scene().settled[0] as string)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { level: 2, name: 'Timeline' }).waitFor()
    await page.goto(at(`payments/pay_${'0'.repeat(32)}`))
    await page.getByRole('link', { name: 'See all payments' }).click()
    await page.getByRole('heading', { level: 1, name: 'Payments' }).waitFor()
  })

  test('behavior: shows what was bought on an open tab, the buyer, the signed amount and when the tab closes', async () => {
    const shop = await openShop(stack(), { usdcPerUnit: '0.004' })
    onTestFinished(shop.close)
    const { client, address } = await newBuyer(stack(), '1', { tabs: true })
    for (let n = 0; n < 2; n++) await client.request(shop.url)
    const page = await signIn(desktop, shop.apiKey)
    await page.goto(at('tabs'))
    const row = page.getByRole('region', { name: 'Tabs' }).getByRole('row').nth(1)
    await row.getByRole('link', { name: 'GET /data' }).waitFor()
    const seen = async (wanted: string[]) => {
      await expect
        .poll(async () => {
          const text = await row.textContent()
          return wanted.filter((one) => !text?.includes(one))
        })
        .toEqual([])
    }
    await seen(['× 2', 'open', '0.008000', 'unless the buyer buys again'])
    expect(await violationsInBothSchemes(page)).toEqual([])
    const { paymentId } = await client.request(shop.url)
    await seen(['× 3', '0.012000'])
    await row.getByRole('link').first().click()
    await page.getByRole('heading', { level: 1, name: 'Tab', exact: true }).waitFor()
    expect(page.url()).toContain(`#/tabs/${paymentId}`)
    const bought = page.getByRole('region', { name: 'Purchases' })
    await bought.getByRole('link', { name: 'GET /data' }).waitFor()
    await bought.getByText('0.010800').waitFor()
    await page.getByTitle(address.toLowerCase()).waitFor()
    expect(await violationsInBothSchemes(page)).toEqual([])
    await client.close()
    await page.getByText('by its buyer').waitFor()
    const isClosed = async () =>
      (await ask<{ tabs: { state: string }[] }>(`tabs?state=all&paymentId=${paymentId}`, shop)).tabs[0]
        ?.state === 'closed'
    await until('the tab is closed', isClosed)
    await page.goto(at('tabs?state=closed'))
    await row.getByText('queued', { exact: true }).waitFor()
    // The payment's page shows the endpoint's route, not its id.
    await page.goto(at(`payments/${paymentId}`))
    await page
      .getByRole('region', { name: 'Sales on this tab' })
      .getByRole('link', { name: 'GET /data' })
      .waitFor()
  })

  test('error: the tabs page reports that the tab store is unavailable', async () => {
    expectErrors(/status of 503/)
    const page = await signIn()
    const problem = { status: 503, code: 'dependency_unavailable', title: 'A dependency is not available' }
    await page.route('**/tabs?*', (route) => route.fulfill({ status: 503, json: problem }))
    await page.goto(at('tabs'))
    await page.getByRole('alert').getByText('The store of open tabs isn’t responding').waitFor()
    expect(await seriousViolations(page)).toEqual([])
    await page.unroute('**/tabs?*')
    await page.reload()
    await page.getByRole('heading', { level: 2, name: 'No tab is open' }).waitFor()
  })

  test('behavior: shows the next payout’s amount and time, what waits in splitters, and past payouts', async () => {
    const page = await signIn()
    await page.goto(at('payouts'))
    const { shop } = scene()
    const next = page.getByRole('region', { name: `Next payout to ${shop.address.toLowerCase()}` })
    await next
      .getByText(/Next payout by .*, or as soon as 1\.00 USDC or 50 payments have come together\./)
      .waitFor()
    await next.getByText(/failed and (is|are) tried again/).waitFor()
    const splitters = page.getByRole('region', { name: 'Splitters' })
    type Splitters = { splitters: { payments: number; waiting_usdc: string }[] }
    const held = (await ask<Splitters>('splitters')).splitters.filter((one) => one.payments > 0)
    if (held.length > 0) await splitters.getByText(held[0]?.waiting_usdc as string).waitFor()
    await page.getByRole('link', { name: 'localhost #1' }).click()
    await page.getByRole('heading', { level: 1, name: 'Batch' }).waitFor()
    await page.goto(at('payouts'))
    for (const [link, title] of [
      ['Queue', 'Queue'],
      ['Batches', 'Batches'],
      ['Statement', 'Statement'],
      ['Next payouts', 'Payouts'],
    ] as const) {
      await page.getByRole('navigation', { name: 'Payouts' }).getByRole('link', { name: link }).click()
      await page.getByRole('heading', { level: 1, name: title }).waitFor()
    }
    await next.waitFor()
    expect(await violationsInBothSchemes(page)).toEqual([])
  })

  test('behavior: the pages of payments, tabs, payouts and batches fit on a phone', async () => {
    const page = await signIn({ ...phone, colorScheme: 'dark' })
    const pages = [
      ['payments?status=settled', 'Payments'],
      [`payments/${scene().settled[0]}`, 'Payment'],
      ['tabs?state=all', 'Tabs'],
      ['payouts', 'Payouts'],
      ['payouts/batches', 'Batches'],
    ] as const
    for (const [route, name] of pages) {
      await page.goto(at(route))
      await page.getByRole('heading', { level: 1, name, exact: true }).waitFor()
      await page.getByText('Live', { exact: true }).waitFor()
      await requireFit(page, name, phone.viewport.width)
      expect([name, await seriousViolations(page)]).toEqual([name, []])
    }
  })
}
