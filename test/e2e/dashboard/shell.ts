import type { Page, Response } from 'playwright-core'
import { expect, test } from 'vitest'
import { registerProvider } from '../../../apps/devstack/stack/registerProvider.ts'
import { desktop, phone, seriousViolations, violationsInBothSchemes } from '../../support/browser.ts'
import { call } from './desk.ts'
import type { Scene } from './scene.ts'

export type ShellTools = {
  gatewayUrl: () => string
  scene: () => Scene
  /** Opens a new tab at the sign-in page. */
  open: (options: object) => Promise<Page>
  /** Opens a new tab, signed in. Default: as the scene's provider. */
  signIn: (options?: object, key?: string) => Promise<Page>
  /** Declares lines in the console that the test causes on purpose. */
  expectErrors: (lines: RegExp) => void
}

/** Tests the parts that all pages share, and the overview. */
export function addShellTests(tools: ShellTools): void {
  const { gatewayUrl, scene, open, signIn, expectErrors } = tools
  const at = (route: string) => `${gatewayUrl()}/dashboard/#/${route}`
  const heading = (page: Page, name: string) => page.getByRole('heading', { level: 1, name, exact: true })
  const register = (name: string, paths: string[]) =>
    registerProvider({
      gatewayUrl: gatewayUrl(),
      name,
      network: 'localhost',
      address: `0x${'7a'.repeat(20)}`,
      endpoints: paths.map((path) => ({ url: `https://api.example${path}`, usdcPerUnit: '0.01' })),
    })

  test('behavior: redirects old links to the new pages, and keeps the links’ filters', async () => {
    const page = await signIn()
    for (const [before, after, title] of [
      ['queue', 'payouts/queue', 'Queue'],
      ['batches', 'payouts/batches', 'Batches'],
      ['statement/2026-01', 'payouts/statement/2026-01', 'Statement'],
      ['failures?network=localhost', 'payments/failures?network=localhost', 'Failures'],
      ['setup/endpoints', 'endpoints', 'Endpoints'],
      ['setup/keys', 'developers/keys', 'API keys'],
      [`setup/webhooks/${scene().webhookId}`, `developers/webhooks/${scene().webhookId}`, 'Webhook'],
    ] as const) {
      await page.goto(at(before))
      await expect.poll(() => page.url()).toBe(at(after))
      await heading(page, title).waitFor()
    }
    await page.goto(at('nowhere'))
    await page.getByRole('heading', { name: 'Page not found' }).waitFor()
  })

  test('behavior: shows the navigation on a phone in one row, with the current page in view', async () => {
    const page = await signIn(phone)
    for (const [route, name] of [
      ['', 'Overview'],
      ['developers/history', 'Developers'],
      ['market', 'Market'],
    ] as const) {
      await page.goto(at(route))
      const links = await page.locator('.views').getByRole('link').all()
      expect(links).toHaveLength(9)
      const tops = await Promise.all(links.map(async (link) => (await link.boundingBox())?.height ?? 0))
      expect(Math.max(...tops)).toBeLessThan(50)
      const row = await page.locator('.views').boundingBox()
      expect(row?.height).toBeLessThan(60)
      const current = page.locator('.views [aria-current]')
      expect(await current.textContent()).toBe(name)
      const box = await current.boundingBox()
      expect(box?.x).toBeGreaterThanOrEqual(0)
      expect((box?.x ?? 0) + (box?.width ?? 1e9)).toBeLessThanOrEqual(phone.viewport.width)
    }
  })

  test('behavior: on a phone, shortens each table row to two lines, and shows all cells once the row is opened', async () => {
    const page = await signIn(phone)
    await page.goto(at('payments'))
    const row = page.getByRole('region', { name: 'Payments' }).getByRole('row').nth(1)
    await row.waitFor()
    expect((await row.boundingBox())?.height).toBeLessThan(90)
    const fee = row.locator('[data-title="Fee, USDC"]')
    expect(await fee.isVisible()).toBe(false)
    await row.getByRole('button', { name: 'Show more' }).click()
    await fee.waitFor()
    expect(await seriousViolations(page)).toEqual([])
    // Filters are folded until the reader opens them.
    expect(await page.getByLabel('Status').isVisible()).toBe(false)
    await page.getByText('Filters', { exact: true }).click()
    await page.getByLabel('Status').waitFor()
  })

  test('behavior: finds pages, payments, buyers and transactions by keyboard, and keeps the focus in the dialog', async () => {
    const page = await signIn()
    await heading(page, 'Overview').waitFor()
    const field = page.getByRole('combobox')
    const go = async (text: string) => {
      await page.keyboard.press('/')
      await field.waitFor()
      await field.fill(text)
      await page.keyboard.press('Enter')
    }
    await page.keyboard.press('Control+k')
    await field.waitFor()
    expect(await seriousViolations(page)).toEqual([])
    for (let presses = 0; presses < 5; presses++) {
      await page.keyboard.press('Tab')
      const isInside = await page.evaluate(() => {
        const { activeElement } = document
        // The browser's own controls come before and after the dialog.
        return activeElement === document.body || activeElement?.closest('dialog') !== null
      })
      expect(isInside).toBe(true)
    }
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await page.keyboard.press('/')
    await field.fill('hist')
    expect(await page.getByRole('option').allTextContents()).toEqual(['History'])
    await page.keyboard.press('Enter')
    await heading(page, 'History').waitFor()

    const [settled = ''] = scene().settled
    await go(settled)
    await heading(page, 'Payment').waitFor()
    expect(page.url()).toBe(at(`payments/${settled}`))
    type Payment = { payer: string; provider: { transactionHash: string } }
    const payment = await call<Payment>(`${gatewayUrl()}/payments/${settled}`, scene().shop.apiKey)
    await go(payment.payer)
    await expect.poll(() => page.url()).toBe(at(`buyers/${payment.payer}`))
    await go(payment.provider.transactionHash)
    await expect
      .poll(() => page.url())
      .toBe(at(`payouts/batches/localhost/${payment.provider.transactionHash}`))
    await go(`0x${'00'.repeat(32)}`)
    await page.getByRole('status').getByText('settled none of your payments').waitFor()
    // In a field, a slash is text.
    await field.fill('')
    await page.keyboard.type('/')
    expect(await field.inputValue()).toBe('/')
  })

  test('behavior: formats numbers and times in the browser’s locale, and accepts a decimal comma', async () => {
    const { apiKey } = await register('Komma', ['/preis'])
    const german = { ...desktop, locale: 'de-DE', timezoneId: 'Europe/Berlin' }
    const page = await signIn(german, apiKey)
    await page.goto(at('endpoints'))
    const row = page.getByRole('row').filter({ hasText: '/preis' })
    await row.getByText('0,01', { exact: true }).waitFor()
    await page.getByRole('button', { name: /^Edit/ }).click()
    const price = page.getByLabel(/^Price/)
    expect(await price.inputValue()).toBe('0,01')
    await price.fill('1.250')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByText('is ambiguous: write').waitFor()
    await price.fill('0,07')
    await page.getByRole('button', { name: 'Save' }).click()
    await row.getByText('0,07', { exact: true }).waitFor()
  })

  test('behavior: uses the selected time zone on all pages, and keeps the selection after a reload', async () => {
    const page = await signIn({ ...desktop, timezoneId: 'Asia/Tokyo' })
    await page.goto(at('developers/keys'))
    const time = page.locator('main time .full').first()
    await time.waitFor()
    expect(await time.textContent()).toMatch(/GMT\+9$/)
    await page.getByRole('radio', { name: 'UTC' }).check()
    await expect.poll(() => time.textContent()).toMatch(/UTC$/)
    await page.reload()
    await time.waitFor()
    expect(await time.textContent()).toMatch(/UTC$/)
  })

  test('behavior: the overview compares any period with the period before, and links to what needs attention', async () => {
    const page = await signIn()
    const attention = page.getByRole('region', { name: 'Needs attention' })
    await attention.getByText('1 payment won’t settle without your action').waitFor()
    await attention.getByText('1 buyer owes you').waitFor()
    await page.getByRole('meter', { name: 'Answered 402 with the price' }).waitFor()
    await page.getByText('0.00 USDC in the 30 days before').first().waitFor()
    await page.getByRole('radio', { name: 'Custom' }).check()
    const today = new Date().toISOString().slice(0, 10)
    await page.getByLabel('First day, UTC').fill(today)
    await page.getByLabel('Last day, UTC').fill(today)
    await page.getByRole('button', { name: 'Show' }).click()
    await expect.poll(() => page.url()).toBe(at(`?from=${today}&to=${today}`))
    await page.getByText('Revenue over time').waitFor()
    expect(await violationsInBothSchemes(page)).toEqual([])
    // The link is enough to restore the same view.
    await page.reload()
    expect(await page.getByLabel('First day, UTC').inputValue()).toBe(today)
    await page.goto(at('?from=2026-02-02&to=2026-02-01'))
    await page.getByText('The first day must not be after the last one').waitFor()
    await page.goto(at(''))
    await attention.getByRole('link', { name: 'Failures' }).first().click()
    await heading(page, 'Failures').waitFor()
  })

  test('behavior: after an endpoint is saved, shows the gateway’s advice about its price', async () => {
    const { apiKey } = await register('Advised', ['/cheap'])
    const page = await signIn(desktop, apiKey)
    // Add the advice to the response, because the gateway gives no advice on a test network, where gas costs nothing.
    const advice = 'At this price the fee does not pay for the gas of a payment that settles alone.'
    await page.route('**/endpoints/ep_*', async (route) => {
      if (route.request().method() !== 'PATCH') return route.continue()
      const response = await route.fetch()
      await route.fulfill({ response, json: { ...(await response.json()), advice } })
    })
    await page.goto(at('endpoints'))
    await page.getByRole('button', { name: /^Edit/ }).click()
    await page.getByLabel('Description').fill('Cheap')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('status').getByText('The endpoint is changed.').waitFor()
    await page.getByRole('status').getByText(advice).waitFor()
    expect(await violationsInBothSchemes(page)).toEqual([])
  })

  test('behavior: the gateway compresses responses to a polling page, and omits the body if nothing has changed', async () => {
    const page = await signIn()
    const answerOf = (path: string, status: number) =>
      page.waitForResponse(
        (answer) => new URL(answer.url()).pathname.endsWith(path) && answer.status() === status,
      )
    const bytesOf = async (answer: Response) => (await answer.request().sizes()).responseBodySize
    const [list] = await Promise.all([answerOf('/payments', 200), page.goto(at('payments'))])
    const plain = await fetch(list.url(), {
      headers: { authorization: `Bearer ${scene().shop.apiKey}`, 'accept-encoding': 'identity' },
    })
    const before = Buffer.byteLength(await plain.text())
    const after = await bytesOf(list)
    console.log(`bytes of a page of payments: ${before} plain, ${after} compressed`)
    expect(after).toBeGreaterThan(0)
    expect(after).toBeLessThan(before / 3)
    // The list of keys has not changed, so the next response has no body, and the page still shows the list.
    await Promise.all([answerOf('/keys', 200), page.goto(at('developers/keys'))])
    await answerOf('/keys', 304)
    await page.getByText('you are signed in with this key').waitFor()
  })

  test('behavior: the history describes each changed field in words once a change is opened', async () => {
    const { providerId, endpointIds, apiKey } = await register('Fields', ['/a'])
    await call(
      `${gatewayUrl()}/providers/${providerId}/endpoints/${endpointIds[0]}`,
      apiKey,
      'PATCH',
      { listed: false, inputSchema: { type: 'object' } },
      1,
    )
    const page = await signIn(desktop, apiKey)
    await page.goto(at('developers/history'))
    const change = page.getByRole('listitem').filter({ hasText: 'Endpoint changed' })
    await change.waitFor()
    const term = change.getByRole('term').filter({ hasText: 'Input schema' })
    expect(await term.isVisible()).toBe(false)
    await change.getByText('Endpoint changed').click()
    await term.waitFor()
    const words = (await page.locator('main').textContent()) ?? ''
    expect(words).not.toMatch(/inputSchema|ownMiddleware|disabledAt|mimeType|serviceName/)
    expect(await seriousViolations(page)).toEqual([])
  })

  test('error: names a wrong filter and its expected form, and doesn’t retry', async () => {
    const page = await open(desktop)
    expectErrors(/status of 4\d\d/)
    await page.goto(at('network/localhost/batches/keeper/0x12'))
    const alert = page.getByRole('alert')
    await alert.getByText('Keeper can’t be used as a filter').waitFor()
    await alert.getByText('expected 0x and 40 hex digits').waitFor()
    expect(await page.getByRole('button', { name: 'Try again' }).count()).toBe(0)
  })

  test('behavior: shows all columns next to a long path', async () => {
    const { apiKey } = await register('Long', [`/${'a-very-long-segment/'.repeat(12)}end`])
    const page = await signIn(desktop, apiKey)
    await page.goto(at('endpoints'))
    const row = page.getByRole('row').filter({ hasText: 'a-very-long-segment' })
    const state = await row.getByText('on sale').boundingBox()
    expect((state?.x ?? 1e9) + (state?.width ?? 0)).toBeLessThanOrEqual(desktop.viewport.width)
  })

  test('behavior: sends a test event to a webhook, and shows the webhook’s response', async () => {
    const page = await signIn()
    // The scene's webhook has no receiver.
    await page.goto(at(`developers/webhooks/${scene().webhookId}`))
    await page.getByRole('button', { name: 'Send a test event' }).click()
    await page.getByRole('alert').getByText('Not delivered').waitFor()
  })
}
