import { openDatabase } from '@tollkeeper/ledger/store/database'
import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { registerProvider } from '../../../apps/devstack/stack/registerProvider.ts'
import {
  desktop,
  launchBrowser,
  openTab,
  phone,
  seriousViolations,
  violationsInBothSchemes,
  type Watched,
} from '../../support/browser.ts'
import { startTestStack, type TestStack } from '../../support/stack.ts'
import { chooseBrowser } from './chooseBrowser.ts'
import { call } from './desk.ts'
import { patient, playScene, type Scene } from './scene.ts'

const executable = chooseBrowser('the dashboard’s pages of buyers and endpoints')
const longPath = `/archive/${'very-long-'.repeat(14)}`

describe.skipIf(executable === undefined)('the dashboard’s pages of buyers and endpoints', () => {
  let stack: TestStack
  let scene: Scene
  let browser: Browser
  let tab: Watched
  /** The id of the endpoint that is sold. */
  let sold: string
  /** The address of the buyer whose wallet was emptied. */
  let poor: string
  let expected: RegExp | undefined

  beforeAll(async () => {
    stack = await startTestStack({ env: { keeper: { ...patient, KEEPER_LEASE_MS: '60000' }, api: patient } })
    const [launched, played] = await Promise.all([
      launchBrowser(executable as string),
      playScene(stack, { batches: [3, 6], waiting: 4 }),
    ])
    browser = launched
    scene = played
    const { providerId, apiKey, endpointIds, walletId } = scene.shop
    sold = endpointIds[0] ?? ''
    for (const url of [`https://api.example${longPath}`, 'mcp://tool/search'])
      await call(`${stack.api.url}/providers/${providerId}/endpoints`, apiKey, 'POST', {
        url,
        method: url.startsWith('mcp:') ? 'POST' : 'GET',
        walletId,
        pricing: { usdcPerUnit: '0.02' },
      })
    const { body } = await stack.get(`/payments/${scene.failed}`)
    poor = String(body.payer)
  })
  afterAll(async () => {
    await browser?.close()
    await scene?.shop.close()
    await stack?.close()
  })
  afterEach(async () => {
    expect(tab.errors.filter((line) => !expected?.test(line))).toEqual([])
    expect(tab.foreign).toEqual([])
    expected = undefined
    await tab.page.context().close()
  })

  async function open(
    route: string,
    title: string,
    options: object = desktop,
    key = scene.shop.apiKey,
  ): Promise<Page> {
    tab = await openTab(browser, stack.api.url, options)
    const { page } = tab
    await page.addInitScript((kept) => sessionStorage.setItem('tollkeeper.apiKey', kept), key)
    await page.goto(`${stack.api.url}/dashboard/#/${route}`)
    await page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor()
    await page.getByText('Live', { exact: true }).waitFor()
    return page
  }

  const table = (page: Page, name: string) => page.getByRole('region', { name, exact: true })
  const figure = (page: Page, title: string) => page.locator('.figure').filter({ hasText: title })
  const widthOf = (page: Page) => page.evaluate(() => document.documentElement.scrollWidth)

  test.each([
    ['desktop', desktop, violationsInBothSchemes],
    ['phone in dark mode', { ...phone, colorScheme: 'dark' }, seriousViolations],
  ] as const)('default: shows each page with real data, on a %s', async (_, options, violationsOf) => {
    for (const [route, title, shown] of [
      ['endpoints', 'Endpoints', 'MCP tools'],
      [`endpoints/${sold}`, 'Endpoint', 'Refusals over time'],
      ['buyers', 'Buyers', 'New and returning buyers'],
      [`buyers/${poor}`, 'Buyer', 'Failing payments'],
    ] as const) {
      const page = await open(route, title, options)
      await page.getByRole('heading', { name: shown }).waitFor()
      expect([title, await widthOf(page)]).toEqual([title, options.viewport.width])
      expect([title, await violationsOf(page)]).toEqual([title, []])
      if (title !== 'Buyer') await page.context().close()
    }
  })

  test('default: endpoints show their revenue, with MCP tools in a separate table', async () => {
    const page = await open('endpoints', 'Endpoints')
    const row = table(page, 'HTTP endpoints').getByRole('row').filter({ hasText: '/data' })
    // 15 payments of 0.012 USDC; one more was refused.
    const cells = async () => (await row.getByRole('cell').allTextContents()).slice(1, 7)
    await expect.poll(cells).toEqual(['0.012', '0.171', '15', '0.012', expect.stringMatching(/^93\.7/), '1'])
    const tools = table(page, 'MCP tools')
    await tools.getByRole('link', { name: 'search', exact: true }).waitFor()
    expect(await tools.getByRole('row').count()).toBe(2)
    expect(await table(page, 'HTTP endpoints').getByText('search').count()).toBe(0)
    // A long path must leave the figures visible.
    const cell = table(page, 'HTTP endpoints')
      .getByRole('row')
      .filter({ hasText: longPath })
      .getByRole('cell')
      .nth(5)
    const box = await cell.boundingBox()
    expect((box?.x ?? 1e9) + (box?.width ?? 0)).toBeLessThanOrEqual(1280)
    expect(await page.getByText(/ep_[0-9a-f]+/).count()).toBe(0)
  })

  test('default: an endpoint’s page links to its buyers and payments, and shows the code that sells the endpoint', async () => {
    const page = await open('endpoints', 'Endpoints')
    await page.getByRole('link', { name: /\/data$/ }).click()
    await page.getByRole('heading', { level: 1, name: 'Endpoint' }).waitFor()
    await expect.poll(() => figure(page, 'Revenue, net').locator('.value').textContent()).toBe('0.171 USDC')
    expect(await figure(page, 'Revenue, net').textContent()).toContain('0.00 USDC in the 30 days before')
    expect(await figure(page, 'Buyers').textContent()).toContain('4 new')
    expect(await figure(page, 'Failed').textContent()).toContain('1 payment')
    await page.getByText('Refused because: Insufficient USDC balance (1)').waitFor()
    await table(page, 'Middleware').getByText('requirePayment').first().waitFor()
    // The link keeps the selected period.
    await page.getByRole('radio', { name: '12 months' }).check()
    await expect.poll(() => new URL(page.url()).hash).toContain('period=months')
    await page.getByText('0.00 USDC in the 12 months before').first().waitFor()
    // The link and the next page keep a custom range of whole days.
    await page.getByRole('radio', { name: 'Custom' }).check()
    const today = new Date().toISOString().slice(0, 10)
    await page.getByLabel('First day, UTC').fill(today)
    await page.getByRole('button', { name: 'Show', exact: true }).click()
    await page.getByText('0.00 USDC in the 1 day before').first().waitFor()
    await expect.poll(() => new URL(page.url()).hash).toContain(`from=${today}&to=${today}`)
    await page.getByRole('link', { name: 'All buyers' }).click()
    await page.getByRole('heading', { level: 1, name: 'Buyers' }).waitFor()
    await expect.poll(() => page.getByLabel('Endpoint').inputValue()).toBe(sold)
    expect(await page.getByLabel('First day, UTC').inputValue()).toBe(today)
    await table(page, 'Buyers').getByRole('row').nth(4).waitFor()
    expect(await table(page, 'Buyers').getByRole('row').count()).toBe(5)
  })

  test('default: the buyers page filters buyers by their payments, and its link keeps the filter', async () => {
    const page = await open('buyers', 'Buyers')
    const rows = table(page, 'Buyers').getByRole('row')
    // The rows without the header.
    await expect.poll(async () => (await rows.count()) - 1).toBe(4)
    await expect.poll(() => figure(page, 'New').locator('.value').textContent()).toBe('4')
    expect(await figure(page, 'Returning').locator('.value').textContent()).toBe('0')
    await page.getByRole('combobox', { name: 'Show' }).selectOption('owing')
    await expect.poll(async () => (await rows.count()) - 1).toBe(1)
    for (const badge of ['new', 'owes', '1 failed', '1 retrying'])
      await rows.nth(1).getByText(badge, { exact: true }).waitFor()
    await page.reload()
    await expect.poll(async () => (await rows.count()) - 1).toBe(1)
    expect(await page.getByRole('combobox', { name: 'Show' }).inputValue()).toBe('owing')
    await page.getByRole('combobox', { name: 'Show' }).selectOption('returning')
    await page.getByRole('heading', { name: 'No buyer matches these filters' }).waitFor()
    // Over all time, no buyer is new or returning, so that filter disappears and the list is complete.
    await page.getByRole('radio', { name: 'All time' }).check()
    await expect.poll(async () => (await rows.count()) - 1).toBe(4)
    await page.getByLabel('Sorted by').selectOption('lastPayment')
    await page.getByLabel('Address').fill(poor)
    await page.getByRole('button', { name: 'Open' }).click()
    await page.getByRole('heading', { level: 1, name: 'Buyer', exact: true }).waitFor()
  })

  test('default: a buyer’s page shows what it bought by path, what failed and what it owes', async () => {
    const page = await open(`buyers/${poor}`, 'Buyer')
    await expect.poll(() => figure(page, 'Owes you').locator('.value').textContent()).toBe('0.0114 USDC')
    expect(await figure(page, 'Revenue, net').locator('.value').textContent()).toBe('0.0228 USDC')
    const failing = table(page, 'Failing payments')
    for (const status of ['retrying', 'failed']) await failing.getByText(status, { exact: true }).waitFor()
    await failing.getByText('Insufficient USDC balance').first().waitFor()
    const bought = table(page, 'Endpoints bought')
    expect(await bought.getByText(/ep_[0-9a-f]+/).count()).toBe(0)
    await bought.getByRole('link', { name: /^GET .*\/data$/ }).click()
    await page.getByRole('heading', { level: 1, name: 'Endpoint' }).waitFor()
    await page.goBack()
    await page.getByRole('link', { name: 'All payments' }).click()
    await expect.poll(() => new URL(page.url()).hash).toBe(`#/payments?payer=${poor}`)
  })

  test('behavior: the pages compare the figures of endpoints and buyers with those of the previous period', async () => {
    const sql = openDatabase({ url: stack.databaseUrl, max: 1, applicationName: 'test' })
    try {
      // Adds ten sales to the previous period, so that the revenue of the current period is 50% higher.
      const { providerId } = scene.shop
      const wallet = scene.shop.address.toLowerCase()
      await sql`
        insert into revenue (provider_id, period, starts_at, endpoint_id, chain_id, payee, payments, voided_payments,
          settled_payments, failed_payments, gross, fee, settled_net, settled_fee, failed_net)
        select ${providerId}, 'day', date_trunc('day', now() - interval '40 days', 'UTC'), ${sold}, 31337, ${wallet},
          10, 0, 10, 0, 120000, 6000, 114000, 6000, 0`
      const page = await open(`endpoints/${sold}`, 'Endpoint')
      await expect
        .poll(() => figure(page, 'Revenue, net').textContent())
        .toContain('0.114 USDC in the 30 days before (+50%)')
      expect(await figure(page, 'Payments').textContent()).toContain('10 in the 30 days before (+50%)')
      await sql`delete from revenue where provider_id = ${providerId} and payments = 10 and starts_at < now() - interval '35 days'`
    } finally {
      await sql.end()
    }
  })

  test('behavior: the market shows a listing’s number of buyers next to its number of payments', async () => {
    const sql = openDatabase({ url: stack.databaseUrl, max: 1, applicationName: 'test' })
    try {
      const { providerId } = scene.shop
      const wallet = scene.shop.address.toLowerCase()
      const [unsold] = await sql<{ id: string }[]>`
        select id from endpoint where provider_id = ${providerId} and url like 'https://api.example/archive%'`
      // One sale of the endpoint that had no sale before.
      await sql`
        insert into revenue (provider_id, period, starts_at, endpoint_id, chain_id, payee, payments, voided_payments,
          settled_payments, failed_payments, gross, fee, settled_net, settled_fee, failed_net)
        select ${providerId}, period, date_trunc(period, now(), 'UTC'), ${unsold?.id as string}, 31337, ${wallet}, 1, 0, 1, 0,
          20000, 1000, 19000, 1000, 0
        from unnest(array['hour', 'day', 'month']) period`
      await sql`
        insert into payer_revenue (provider_id, period, starts_at, endpoint_id, chain_id, payer, payments, gross, settled_net)
        select ${providerId}, 'day', date_trunc('day', now(), 'UTC'), ${unsold?.id as string}, 31337, ${poor}, 1, 20000, 19000`
      const page = await open('market', 'Market')
      const row = table(page, 'Listings').getByRole('row').filter({ hasText: longPath })
      for (const title of ['Payments', 'Buyers'])
        await expect.poll(() => row.locator(`[data-title="${title}"]`).textContent()).toBe('1')
    } finally {
      await sql.end()
    }
  })

  test('behavior: the pages show endpoints and buyers to a read-only key, and hide all buttons that change something', async () => {
    const { providerId, apiKey } = scene.shop
    const keys = `${stack.api.url}/providers/${providerId}/keys`
    const reading = await call<{ apiKey: string }>(keys, apiKey, 'POST', { scope: 'read', label: 'books' })
    const page = await open('endpoints', 'Endpoints', desktop, reading.apiKey)
    await page.getByText('Your API key can only read').waitFor()
    await page.getByRole('link', { name: /\/data$/ }).waitFor()
    expect(await page.getByRole('button', { name: /^(Add|Edit|Disable)/ }).count()).toBe(0)
    await page.getByRole('link', { name: /\/data$/ }).click()
    await page.getByRole('heading', { level: 2, name: 'Settings' }).waitFor()
    expect(await page.getByRole('button', { name: /^(Edit|Disable)/ }).count()).toBe(0)
  })

  test('args: shows empty pages to a provider that has no payments', async () => {
    const { apiKey, endpointIds } = await registerProvider({
      gatewayUrl: stack.api.url,
      name: 'Nobody yet',
      network: 'localhost',
      address: `0x${'4c'.repeat(20)}`,
      endpoints: [{ url: 'https://api.example/new', usdcPerUnit: '0.01' }],
    })
    for (const [route, title, shown] of [
      ['buyers', 'Buyers', 'No buyers in the last 30 days'],
      ['buyers?period=all', 'Buyers', 'No buyers yet'],
      [`endpoints/${endpointIds[0]}`, 'Endpoint', 'No calls in the last 30 days'],
    ] as const) {
      const page = await open(route, title, phone, apiKey)
      await page.getByRole('heading', { level: 2, name: shown }).waitFor()
      expect([route, await seriousViolations(page)]).toEqual([route, []])
      if (title !== 'Endpoint') await page.context().close()
    }
  })

  test.each([
    ['an address that never paid', `buyers/0x${'12'.repeat(20)}`, 'Payer has never paid this provider'],
    ['an invalid address', 'buyers/0x12', 'expected 0x and 40 hex digits'],
    ['an endpoint that doesn’t exist', `endpoints/ep_${'0'.repeat(32)}`, 'No such endpoint'],
  ])('error: shows the reason instead of a page for %s', async (_, route, message) => {
    expected = /status of 4\d\d/
    tab = await openTab(browser, stack.api.url, desktop)
    const { page } = tab
    await page.addInitScript((kept) => sessionStorage.setItem('tollkeeper.apiKey', kept), scene.shop.apiKey)
    await page.goto(`${stack.api.url}/dashboard/#/${route}`)
    await page.getByRole('alert').getByText(message).waitFor()
    expect(await seriousViolations(page)).toEqual([])
  })
})
