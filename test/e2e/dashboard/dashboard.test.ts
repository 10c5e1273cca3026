import { readFile } from 'node:fs/promises'
import { newOperatorKey } from '@tollkeeper/api/http/operator'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { splitterAddress } from '@tollkeeper/sdk/protocol/splitter'
import type { Browser, Page, Request } from 'playwright-core'
import type { Address } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { registerProvider } from '../../../apps/devstack/stack/registerProvider.ts'
import type { Service } from '../../../apps/devstack/stack/service.ts'
import {
  desktop,
  launchBrowser,
  openTab,
  phone,
  seriousViolations,
  violationsInBothSchemes,
  type Watched,
} from '../../support/browser.ts'
import { type CutProxy, startCutProxy } from '../../support/cutProxy.ts'
import { withoutIndex } from '../../support/indexTables.ts'
import { type MailServer, startMailServer } from '../../support/mailServer.ts'
import { newBuyer, openShop } from '../../support/shop.ts'
import { startTestStack, type TestStack } from '../../support/stack.ts'
import { until } from '../../support/until.ts'
import { randomHex, setBlacklisted, tokenOf } from '../../support/usdc.ts'
import { signPayment } from '../../support/x402.ts'
import { addCatalogTests } from './catalog.ts'
import { chooseBrowser } from './chooseBrowser.ts'
import { addDeskTests, call, registrationToken } from './desk.ts'
import { addOperatorTests } from './operator.ts'
import { addPassTests } from './passes.ts'
import { addPayingPageTests } from './payingPages.ts'
import { addPaymentTests } from './payments.ts'
import { addRefundTests } from './refunds.ts'
import { patient, playScene, type Scene } from './scene.ts'
import { addShellTests } from './shell.ts'

const executable = chooseBrowser()
const operator = newOperatorKey()

describe.skipIf(executable === undefined)('dashboard', () => {
  let mail: MailServer
  let stack: TestStack
  let scene: Scene
  let browser: Browser
  /**
   * Additional api processes: one with other settings on a database that can be cut off, and one with closed
   * registration.
   */
  let apart: Service
  let closed: Service
  let database: CutProxy
  let tab: Watched
  /** Lines in the browser's console that a test causes on purpose. */
  let expected: RegExp | undefined

  beforeAll(async () => {
    mail = await startMailServer()
    const mailing = { SMTP_URL: mail.url, MAIL_FROM: 'tolls@gateway.example' }
    const tracing = { TRACE_URL_TEMPLATE: 'https://traces.example/{traceId}' }
    const api = { ...patient, ...mailing, ...tracing, OPERATOR_KEY_HASHES: operator.hash }
    stack = await startTestStack({ env: { keeper: { ...patient, KEEPER_LEASE_MS: '60000' }, api } })
    const url = new URL(stack.databaseUrl)
    database = await startCutProxy(url.hostname, Number(url.port))
    url.port = String(database.port)
    const terms = { REGISTRATION: 'token', REGISTRATION_TOKEN: registrationToken, SMTP_URL: '' }
    apart = await stack.createService('api', { DATABASE_URL: url.href, ...terms })
    closed = await stack.createService('api', { REGISTRATION: 'closed' })
    // Start the browser and the processes while the scene waits for the chain.
    const [launched, played] = await Promise.all([
      launchBrowser(executable as string),
      playScene(stack, { batches: [3, 6], waiting: 4 }),
      apart.start(),
      closed.start(),
    ])
    browser = launched
    scene = played
  })
  afterAll(async () => {
    await browser?.close()
    await scene?.shop.close()
    await stack?.close()
    await database?.close()
    await mail?.close()
  })
  afterEach(async () => {
    expect(tab.errors.filter((line) => !expected?.test(line))).toEqual([])
    expect(tab.foreign).toEqual([])
    expected = undefined
    await tab.page.context().close()
  })

  async function open(options: object = desktop, url = stack.api.url): Promise<Page> {
    tab = await openTab(browser, url, options)
    await tab.page.goto(`${url}/dashboard`)
    return tab.page
  }

  /** Signs in by a stored key, as after a reload. Other tests cover the sign-in form. */
  async function signIn(
    options: object = desktop,
    key = scene.shop.apiKey,
    url = stack.api.url,
  ): Promise<Page> {
    tab = await openTab(browser, url, options)
    const { page } = tab
    await page.addInitScript((kept) => sessionStorage.setItem('tollkeeper.apiKey', kept), key)
    await page.goto(`${url}/dashboard/`)
    await page.getByRole('button', { name: 'Sign out' }).waitFor()
    return page
  }

  /** Advances the page's clock, so that the page polls, until it shows this text. */
  async function passUntilShown(page: Page, text: string): Promise<void> {
    const isShown = async () => {
      await page.clock.fastForward(5_000)
      return page.getByText(text).first().isVisible()
    }
    await expect.poll(isShown, { interval: 200 }).toBe(true)
  }

  addDeskTests({
    gatewayUrl: () => stack.api.url,
    furtherApis: () => ({ withToken: apart.url, closed: closed.url }),
    buy: async (url) => (await (await newBuyer(stack, '1')).client.request(url)).data,
    open,
    signIn,
    mails: () => mail.received,
    expectErrors: (lines) => {
      expected = lines
    },
  })

  addCatalogTests({ gatewayUrl: () => stack.api.url, signIn }, () => tokenOf(stack.chain))
  addPassTests({ stack: () => stack, signIn })

  const views: [name: string, route: () => string, shows: () => (string | RegExp)[]][] = [
    [
      'Overview',
      () => '',
      () => [
        'Testnet funds, no real value.',
        'Needs attention',
        'Revenue over time',
        'From price to payment',
        'GET /data',
        '93.7%',
        '15 of 16 paid calls accepted',
      ],
    ],
    [
      'Queue',
      () => 'payouts/queue',
      () => ['0.0456 of 1.00 USDC', '4 of 50', /^\d\d:\d\d$/, '4 payments wait, 1 retrying'],
    ],
    [
      'Batches',
      () => 'payouts/batches',
      () => [
        'Gas per payment',
        'localhost #1 (testnet funds)',
        'localhost #2 (testnet funds)',
        '0.034200',
        '0.068400',
      ],
    ],
    ['Payments', () => 'payments', () => ['failed', 'retrying', 'queued', 'settled']],
    [
      'Failures',
      () => 'payments/failures',
      () => ['Insufficient USDC balance', '6 of 6', '1 of 6', /^in \d\d:\d\d$/],
    ],
    [
      'Payment',
      () => `payments/${scene.settled[0]}`,
      () => [
        'Challenged',
        'Verified',
        'Queued',
        'Broadcast',
        'Mined',
        'Confirmed',
        'verified in this browser',
      ],
    ],
    [
      'Statement',
      () => 'payouts/statement',
      () => ['localhost (testnet funds)', '0.180000', '15 payments', '0.009000', '0.171000', '0.102600'],
    ],
    ['Endpoints', () => 'endpoints', () => ['0.012', 'localhost (testnet funds)', 'on sale']],
    ['Wallets', () => 'developers/wallets', () => ['in use']],
    ['API keys', () => 'developers/keys', () => ['active', 'you are signed in with this key']],
    ['Webhooks', () => 'developers/webhooks', () => ['Accounting', 'all']],
    [
      'Webhook',
      () => `developers/webhooks/${scene.webhookId}`,
      () => ['payment.settled', 'batch.confirmed', 'pending', '1 attempt'],
    ],
    ['Provider', () => 'developers/provider', () => ['Test API', 'anyone']],
    ['History', () => 'developers/history', () => ['Endpoint registered']],
    [
      'Network',
      () => 'network',
      () => ['Payments over time', 'Gas per payment', 'Time to settlement', 'Keepers', '#1'],
    ],
    ['Market', () => 'market', () => [/^\d+ listings?\. Figures/]],
    ['Receipt check', () => `receipt/${scene.receipt}`, () => ['Genuine and settled']],
  ]

  // A narrow screen changes the layout, but no color.
  test.each([
    ['desktop in light and dark mode', desktop, violationsInBothSchemes],
    ['phone in dark mode', { ...phone, colorScheme: 'dark' }, seriousViolations],
  ] as const)('default: shows each view with real data, on a %s', async (_, options, violationsOf) => {
    const page = await signIn(options)
    for (const [title, route, shows] of views) {
      await page.goto(`${stack.api.url}/dashboard/#/${route()}`)
      await page.getByRole('heading', { level: 1, name: title }).waitFor()
      for (const text of shows()) {
        await page.getByText(text, { exact: true }).filter({ visible: true }).first().waitFor()
      }
      // Don't use innerWidth, because a phone widens it if the content overflows.
      const width = await page.evaluate(() => document.documentElement.scrollWidth)
      expect([title, width]).toEqual([title, options.viewport.width])
      expect([title, await violationsOf(page)]).toEqual([title, []])
    }
  })

  test('behavior: shows all navigation links if the provider’s name is long, and shows each payment’s buyer and time on a phone', async () => {
    const { shop } = scene
    const rename = (name: string) =>
      call(`${stack.api.url}/providers/${shop.providerId}`, shop.apiKey, 'PATCH', { name }, '*')
    await rename('Weather and Climate Data Services of the Northern Hemisphere')
    try {
      const page = await signIn(desktop)
      const who = await page.locator('.who').boundingBox()
      for (const link of await page.getByRole('navigation', { name: 'Views' }).getByRole('link').all()) {
        const box = await link.boundingBox()
        expect((box?.x ?? 0) + (box?.width ?? 1e9)).toBeLessThanOrEqual(who?.x ?? 0)
      }
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(1280)
      await tab.page.context().close()
      const small = await signIn(phone)
      await small.goto(`${stack.api.url}/dashboard/#/payments`)
      const row = small.getByRole('region', { name: 'Payments' }).getByRole('row').nth(1)
      for (const title of ['Buyer', 'Accepted']) {
        const box = await row.locator(`[data-title="${title}"]`).boundingBox()
        expect((box?.x ?? 1e9) + (box?.width ?? 0)).toBeLessThanOrEqual(phone.viewport.width)
      }
      // The time includes its zone if the row is wide enough.
      expect(await row.locator('time').textContent()).toMatch(/\d\d:\d\d:\d\d [AP]M (UTC|GMT.*|[A-Z]{2,5})$/)
    } finally {
      await rename('Test API')
    }
  })

  test('default: finds payments by payer, amount and day, and downloads them', async () => {
    const page = await signIn()
    await page.getByRole('link', { name: 'Payments' }).click()
    const rows = page.getByRole('region', { name: 'Payments' }).getByRole('row')
    await rows.nth(1).waitFor()
    const all = (await rows.count()) - 1
    const payer = await rows.nth(1).locator('[data-title="Buyer"] .code').getAttribute('title')
    await page.getByLabel('Buyer', { exact: true }).fill(payer ?? '')
    await page.getByLabel('From, local time').fill('2026-01-01')
    await page.getByLabel('At least, USDC').fill('0.012')
    await page.getByRole('button', { name: 'Search' }).click()
    await expect
      .poll(async () => {
        const shown = (await rows.count()) - 1
        return shown > 0 && shown < all
      })
      .toBe(true)
    const found = (await rows.count()) - 1
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Download as CSV' }).click(),
    ])
    const lines = (await readFile(await file.path(), 'utf8')).trimEnd().split('\r\n')
    expect(lines).toHaveLength(found + 1)
    expect(lines.slice(1).every((line) => line.includes(payer ?? '-'))).toBe(true)
    await page.getByLabel('At least, USDC').fill('1')
    await page.getByRole('button', { name: 'Search' }).click()
    await page.getByText('No payment matches these filters').waitFor()
    await page.getByLabel('Find a payment').fill(scene.retrying)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { level: 1, name: 'Payment' }).waitFor()
  })

  test('behavior: shows everything to a read-only key, and hides all buttons that change something', async () => {
    const { shop } = scene
    const keys = `${stack.api.url}/providers/${shop.providerId}/keys`
    const { apiKey } = await call<{ apiKey: string }>(keys, shop.apiKey, 'POST', {
      scope: 'read',
      label: 'books',
    })
    // The provider sells through a middleware, so it has no upstream.
    expected = /status of 404/
    const page = await signIn(desktop, apiKey)
    for (const view of ['wallets', 'keys', 'provider', 'webhooks', 'upstream', 'hook']) {
      await page.goto(`${stack.api.url}/dashboard/#/developers/${view}`)
      await page.getByText('Your API key can only read').waitFor()
      await page.locator('fieldset.bare').waitFor()
      expect([view, await page.locator('main button:enabled').count()]).toEqual([view, 0])
    }
    await page.goto(`${stack.api.url}/dashboard/#/payments/failures`)
    await expect.poll(() => page.getByRole('button', { name: 'Queue again' }).isDisabled()).toBe(true)
  })

  test('default: without a key, a visitor sees the network’s figures, and each figure links to the settled batches', async () => {
    const page = await open(phone)
    await page.getByRole('link', { name: 'See recent settlements on the network.' }).click()
    await page.getByRole('heading', { level: 1, name: 'Network' }).waitFor()
    type Total = { total: { batches: number; payments: number; gas_used: string } }
    const { total } = (await (await fetch(`${stack.api.url}/network`)).json()) as Total
    expect(total.payments).toBeGreaterThanOrEqual(9)
    const gas = Math.floor(Number(total.gas_used) / total.payments)
    const figures = () => page.locator('.figure .value').allTextContents()
    await expect.poll(async () => (await figures())[0]).toBe(`${total.payments}`)
    expect((await figures())[2]).toBe(gas.toLocaleString('en'))
    expect(await violationsInBothSchemes(page)).toEqual([])

    const batches = page.getByRole('region', { name: 'Settled batches' }).getByRole('row')
    const today = page.getByRole('figure').first().locator('.readout').getByRole('link')
    const keeper = page.getByRole('region', { name: 'Keepers' }).getByRole('link').first()
    for (const figure of [page.getByRole('link', { name: /^in \d+ batches$/ }), today, keeper]) {
      await figure.click()
      await page.getByRole('heading', { level: 1, name: 'Settled batches' }).waitFor()
      await page.getByRole('link', { name: '#1', exact: true }).waitFor()
      // The rows without the header.
      await expect.poll(async () => (await batches.count()) - 1).toBe(total.batches)
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(phone.viewport.width)
      expect(await seriousViolations(page)).toEqual([])
      await page.getByRole('link', { name: 'The whole network' }).click()
    }
    await page.getByRole('link', { name: '#1', exact: true }).click()
    await page.getByRole('heading', { level: 1, name: 'Batch' }).waitFor()
    await page.getByText('localhost #1 (testnet funds)').waitFor()
    expect(await seriousViolations(page)).toEqual([])
    await page.goto(`${stack.api.url}/dashboard/#/network`)
    await page.getByText('A keeper that settles a tab gets the reward').waitFor()
    await page.getByRole('radio', { name: '26 weeks' }).check()
    await page
      .getByText(/^Week from/)
      .first()
      .waitFor()
    await page.goto(`${stack.api.url}/dashboard/#/network/localhost/batches/keeper/0x${'12'.repeat(20)}`)
    await page.getByRole('heading', { name: 'No batch' }).waitFor()
    await page.goto(`${stack.api.url}/dashboard/#/network/base`)
    expected = /status of 422/
    await page.getByRole('alert').getByText('base is not served by this gateway').waitFor()
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
  })

  test('default: lets a visitor without a key find offers by the words of their description', async () => {
    const { shop } = scene
    const change = (body: object) =>
      call(
        `${stack.api.url}/providers/${shop.providerId}/endpoints/${shop.endpointIds[0]}`,
        shop.apiKey,
        'PATCH',
        body,
        '*',
      )
    await change({ description: 'Tides of the Baltic Sea, hour by hour' })
    try {
      const page = await open(phone)
      await page.getByRole('link', { name: 'Market' }).click()
      await page.getByRole('heading', { level: 1, name: 'Market' }).waitFor()
      const search = async (words: string) => {
        await page.getByLabel('Words of its description').fill(words)
        await page.getByRole('button', { name: 'Search' }).click()
      }
      await search('tide of the baltics')
      await passUntilShown(page, 'Tides of the Baltic Sea, hour by hour')
      await page.getByRole('link', { name: `GET ${shop.url}` }).click()
      await page.getByRole('heading', { level: 1, name: 'Listing' }).waitFor()
      for (const title of ['Buy on the command line', 'Buy with the SDK', 'Let an agent buy'])
        await page.getByRole('heading', { level: 2, name: title }).waitFor()
      await page.getByText('Testnet funds, no real value', { exact: true }).waitFor()
      const command = await page.getByRole('region', { name: 'Buy on the command line' }).textContent()
      expect(command).toContain(`tollkeeper buy --max 0.024 "${shop.url}"`)
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(phone.viewport.width)
      expect(await violationsInBothSchemes(page)).toEqual([])
      await page.getByRole('link', { name: 'All listings' }).click()
      await page.getByText('localhost (testnet funds)').first().waitFor()
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(phone.viewport.width)
      expect(await violationsInBothSchemes(page)).toEqual([])
      await search('zeppelins')
      await page.getByText('No listing has these words').waitFor()
      expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
    } finally {
      await change({ description: '' })
    }
  })

  test('behavior: downloads a statement whose lines add up to the total on the page', async () => {
    const page = await signIn()
    await page.goto(`${stack.api.url}/dashboard/#/statement`)
    await page.getByRole('cell', { name: 'Your part' }).waitFor()
    const download = async (button: string) => {
      const [file] = await Promise.all([
        page.waitForEvent('download'),
        page.getByRole('button', { name: button }).click(),
      ])
      return { name: file.suggestedFilename(), text: await readFile(await file.path(), 'utf8') }
    }
    const csv = await download('Download as CSV')
    expect(csv.name).toMatch(/^statement-\d{4}-\d\d\.csv$/)
    const [head = '', ...lines] = csv.text.trim().split('\r\n')
    const column = head.split(',').indexOf('net_usdc')
    const net = lines.reduce((sum, line) => sum + parseUsdc(line.split(',')[column] as string), 0n)
    const shown = await page
      .getByRole('row')
      .filter({ hasText: 'Your part' })
      .getByRole('cell')
      .nth(1)
      .textContent()
    expect([lines.length, formatUsdc(net)]).toEqual([15, shown])
    await page.getByText(/^\d+ settled, .*still on their way\.$/).waitFor()
    const books = await download('Bookkeeping (CSV)')
    expect(books.name).toMatch(/^bookkeeping-\d{4}-\d\d\.csv$/)
    expect(books.text).toMatch(/^document,booking_date,booked_at,kind,.*\r\n\d{4}-\d\d-000001,/)
    const fees = await download('Fee document')
    expect(fees.name).toMatch(/^fees-\d{4}-\d\d\.html$/)
    expect(fees.text).toMatch(/^<!doctype html>[\s\S]*Document F-\d{4}-\d\d-/)
    const receipts = await download('Download its receipts')
    expect(receipts.name).toMatch(/^receipts-\d{4}-\d\d\.jsonl$/)
    const paid = receipts.text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).paymentId)
    expect(new Set(paid)).toEqual(new Set([...scene.settled, ...scene.waiting, scene.retrying, scene.failed]))
    await page.getByLabel('Month, UTC').selectOption({ index: 1 })
    await page.getByRole('heading', { name: 'Nothing in this month' }).waitFor()
  })

  addShellTests({
    gatewayUrl: () => stack.api.url,
    scene: () => scene,
    open,
    signIn,
    expectErrors: (lines) => {
      expected = lines
    },
  })

  addOperatorTests({
    stack: () => stack,
    operatorKey: operator.key,
    open,
    expectErrors: (lines) => {
      expected = lines
    },
  })

  addPaymentTests({
    stack: () => stack,
    scene: () => scene,
    signIn,
    expectErrors: (lines) => {
      expected = lines
    },
  })

  addRefundTests({
    stack: () => stack,
    scene: () => scene,
    signIn,
    expectErrors: (lines) => {
      expected = lines
    },
  })

  test('behavior: links a batch to its payments, and shows a payment’s timeline', async () => {
    const page = await signIn()
    await page.getByRole('link', { name: 'Payouts' }).click()
    await page.getByRole('link', { name: 'Batches', exact: true }).click()
    await page.getByRole('link', { name: 'localhost #2' }).click()
    await page.getByRole('heading', { name: 'Your payments in it' }).waitFor()
    await expect.poll(() => page.getByRole('row').count()).toBe(7)
    expect(await seriousViolations(page)).toEqual([])
    await page.getByRole('link', { name: /^pay_/ }).first().click()
    await page.getByText('verified in this browser').waitFor()
    const steps = await page.getByRole('listitem').locator('b').allTextContents()
    expect(steps).toEqual(['Challenged', 'Verified', 'Queued', 'Broadcast', 'Mined', 'Confirmed'])
  })

  test('behavior: shows each attempt and the remaining steps of a failing payment', async () => {
    const page = await signIn()
    await page.goto(`${stack.api.url}/dashboard/#/payments/${scene.retrying}`)
    await page.getByText('Attempt 1 failed').waitFor()
    const steps = await page.getByRole('listitem').locator('b').allTextContents()
    expect(steps).toEqual([
      'Challenged',
      'Verified',
      'Queued',
      'Attempt 1 failed',
      'Next attempt',
      'Broadcast',
      'Mined',
      'Confirmed',
    ])
  })

  test('behavior: verifies a payment’s receipt only once, although the gateway signs the receipt again for each response', async () => {
    const page = await signIn()
    await page.clock.install()
    const asked = { receipts: 0, keys: 0 }
    page.on('request', (request) => {
      if (request.url().includes('/receipts/')) asked.receipts++
      if (request.url().includes('/jwks.json')) asked.keys++
    })
    await page.goto(`${stack.api.url}/dashboard/#/payments/${scene.settled[0]}`)
    await page.getByText('verified in this browser').waitFor()
    for (let times = 0; times < 2; times++) {
      // A final payment is read only once a minute.
      const before = asked.receipts
      await page.clock.fastForward(5_000)
      expect(asked.receipts).toBe(before)
      await page.clock.fastForward(60_000)
      await expect.poll(() => asked.receipts).toBeGreaterThan(before)
      await page.waitForLoadState('networkidle')
    }
    expect(asked.keys).toBe(1)
    await page.getByText('verified in this browser').waitFor()
  })

  test('behavior: links the page of a traced payment to its trace', async () => {
    const sql = openDatabase({ url: stack.databaseUrl, max: 1, applicationName: 'test' })
    await sql`
      update presentation set trace = decode(${'0a'.repeat(24)}, 'hex') where payment_id = ${scene.settled[0] ?? ''}`
    await sql.end()
    const page = await signIn()
    await page.goto(`${stack.api.url}/dashboard/#/payments/${scene.settled[0]}`)
    const link = page.getByRole('link', { name: 'Open the trace' })
    expect(await link.getAttribute('href')).toBe(`https://traces.example/${'0a'.repeat(16)}`)
  })

  test('behavior: if a link is clicked while the dashboard is still starting, opens the linked page', async () => {
    const page = await open()
    await page.route('**/*.js', async (route) => {
      const response = await route.fetch()
      await route.fulfill({ response, body: `${await response.text()}\n;location.hash = '#/receipt'` })
    })
    await page.reload()
    await page.getByRole('heading', { level: 1, name: 'Receipt check' }).waitFor()
  })

  test('behavior: explains on a page without https that receipts can’t be verified', async () => {
    const page = await signIn()
    await page.addInitScript(() => Object.defineProperty(crypto, 'subtle', { value: undefined }))
    const reason = 'Browsers verify signatures only on pages served over https. Open this page over https.'
    await page.reload()
    await page.goto(`${stack.api.url}/dashboard/#/payments/${scene.settled[0]}`)
    await page.getByText(`not verified: ${reason}`).waitFor()
    await page.goto(`${stack.api.url}/dashboard/#/receipt/${scene.receipt}`)
    await page.getByText(`${reason} The receipt may still be genuine.`).waitFor()
  })

  test('behavior: shows a new payment without a reload', async () => {
    const page = await signIn()
    await page.clock.install()
    // The list of what needs attention is above the navigation, and may have a link with the same name.
    await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Payments' }).click()
    await page.getByRole('cell', { name: 'retrying' }).waitFor()
    const before = await page.getByRole('row').count()
    await scene.pay()
    await page.clock.fastForward(5_000)
    await expect.poll(() => page.getByRole('row').count()).toBe(before + 1)
  })

  test('behavior: sends no requests while the page is hidden, and polls at once when the page is shown again', async () => {
    const page = await signIn()
    await page.goto(`${stack.api.url}/dashboard/#/payments/failures`)
    await page.getByRole('heading', { name: 'Retrying automatically' }).waitFor()
    await page.clock.install()
    await page.reload()
    await page.getByRole('heading', { name: 'Retrying automatically' }).waitFor()
    const show = (state: 'hidden' | 'visible') =>
      page.evaluate((now) => {
        Object.defineProperty(document, 'visibilityState', { value: now, configurable: true })
        document.dispatchEvent(new Event('visibilitychange'))
      }, state)
    let asked = 0
    // Requests that began before this line don't count, but may end after it.
    const open = new Set<Request>()
    // Pages that the browser prefetches while idle have another resource type.
    page.on('request', (request) => {
      if (request.resourceType() !== 'fetch') return
      asked++
      open.add(request)
    })
    page.on('requestfinished', (request) => open.delete(request))
    page.on('requestfailed', (request) => open.delete(request))
    // From here on, time passes only when the test advances it.
    await page.clock.pauseAt((await page.evaluate(() => Date.now())) + 60_000)
    await expect.poll(() => asked > 0 && open.size === 0).toBe(true)
    const before = asked
    await page.clock.fastForward(5_000)
    await expect.poll(() => [asked, open.size]).toEqual([before + 2, 0])
    await show('hidden')
    await page.clock.fastForward(120_000)
    expect(asked).toBe(before + 2)
    await show('visible')
    // Three more requests: the page's two, and the request for the sales switch, which is due every 30 s.
    await expect.poll(() => asked).toBe(before + 5)
  })

  test('behavior: stores the key only in the current browser tab', async () => {
    const page = await open()
    await page.getByLabel('API key').fill(scene.shop.apiKey)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
    await page.reload()
    await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
    const kept = await page.evaluate(() => [sessionStorage.length, localStorage.length, document.cookie])
    expect(kept).toEqual([1, 0, ''])
    expect(page.url()).not.toContain(scene.shop.apiKey)
    const other = await page.context().newPage()
    await other.goto(`${stack.api.url}/dashboard`)
    await other.getByLabel('API key').waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('API key').waitFor()
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
  })

  test('behavior: a user can sign in, switch views and queue a failed payment again with only the keyboard', async () => {
    const page = await open()
    await page.getByLabel('API key').waitFor()
    const focused = () =>
      page.evaluate(() => {
        const at = document.activeElement as HTMLInputElement
        return at.labels?.[0]?.textContent ?? at.textContent
      })
    /** Presses Tab until the element has the focus, and checks that each stop shows its focus. */
    const tabTo = async (name: RegExp) => {
      for (let presses = 0; presses < 150; presses++) {
        await page.keyboard.press('Tab')
        if (name.test((await focused()) ?? '')) {
          const outline = await page.evaluate(
            () => getComputedStyle(document.activeElement as Element).outlineStyle,
          )
          expect(outline).toBe('solid')
          return
        }
      }
      throw new Error(`the Tab key never focused ${name}`)
    }
    await tabTo(/^API key$/)
    await page.keyboard.type(scene.shop.apiKey)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
    for (const name of ['Network', 'Buyers', 'Endpoints', 'Payments', 'Failures']) {
      await page.evaluate(() => (document.activeElement as HTMLElement).blur())
      await tabTo(new RegExp(`^${name}$`))
      await page.keyboard.press('Enter')
      await page.getByRole('heading', { level: 1, name }).waitFor()
      // The view must be painted first.
      await expect.poll(() => page.evaluate(() => document.activeElement?.tagName)).toBe('MAIN')
    }
    await page.getByRole('heading', { name: 'Failed' }).waitFor()
    await tabTo(/^Queue again$/)
    await page.keyboard.press('Enter')
    await expect
      .poll(async () => (await stack.get(`/payments/${scene.failed}`)).body.payment_status)
      .not.toBe('failed')
    await page.getByRole('heading', { name: 'Failed', exact: true }).waitFor({ state: 'detached' })
  })

  test('args: tells a visitor without a key whether a text is a genuine receipt, an altered receipt or no receipt', async () => {
    const page = await open()
    await page.getByRole('link', { name: 'No key is needed.' }).click()
    const check = async (text: string, verdict: string) => {
      await page.getByLabel('Receipt', { exact: true }).fill(text)
      await page.getByRole('button', { name: 'Check' }).click()
      await page.getByRole('heading', { level: 2, name: verdict, exact: true }).waitFor()
      expect(await seriousViolations(page)).toEqual([])
    }
    await check(scene.receipt, 'Genuine and settled')
    // The receipt is older than the settlement. The page must not present that as a contradiction.
    await page.getByText('none when the receipt was signed').waitFor()
    expect(await page.getByText('none yet').count()).toBe(0)
    await check(scene.waitingReceipt, 'Genuine, not settled yet')
    await check('eyJhbGciOiJFUzI1NiJ9.e30.AA', 'This is not a receipt')
    const [header, payload = '', signature] = scene.receipt.split('.')
    const claims = JSON.parse(Buffer.from(payload, 'base64url').toString())
    claims.resource = 'https://elsewhere.example/'
    const altered = Buffer.from(JSON.stringify(claims)).toString('base64url')
    await check(`${header}.${altered}.${signature}`, 'Not genuine')
  })

  test('args: shows empty pages to a provider that has no wallet, endpoint or payment', async () => {
    const created = await fetch(new URL('/providers', stack.api.url), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'Nobody yet' }),
    })
    const { apiKey } = (await created.json()) as { apiKey: string }
    const page = await signIn(phone, apiKey)
    const empty = [
      ['', 'No payments in the last 30 days'],
      ['payouts/queue', 'No wallet is registered yet'],
      ['payouts/batches', 'No batch yet'],
      ['payments', 'No payments yet'],
      ['payments/failures', 'No failures'],
    ] as const
    for (const [route, title] of empty) {
      await page.goto(`${stack.api.url}/dashboard/#/${route}`)
      await page.getByRole('heading', { level: 2, name: title }).waitFor()
      expect([route, await seriousViolations(page)]).toEqual([route, []])
    }
  })

  test('behavior: shows a provider with a blacklisted wallet how much money waits in which splitter, and why', async () => {
    const wallet = randomHex(20)
    const { apiKey } = await registerProvider({
      gatewayUrl: stack.api.url,
      name: 'Blacklisted',
      network: stack.chain.network,
      address: wallet,
      endpoints: [],
    })
    const factory = stack.chain.deployments[stack.chain.network]?.splitterFactory as Address
    const splitter = splitterAddress({
      provider: wallet,
      platform: wallet,
      providerShare: 1n,
      platformShare: 0n,
      factory,
    })
    await stack.chain.mintUsdc([splitter], 1_250_000n)
    await setBlacklisted(stack.chain, wallet, true)
    // Use another api process, because the first one has just read the wallet's state and caches it for a minute.
    const page = await signIn(desktop, apiKey, closed.url)
    await page.goto(`${closed.url}/dashboard/#/payouts/queue`)
    const card = page.getByRole('region', { name: `Queue of ${wallet}` })
    await card.getByText('USDC has blacklisted this wallet').waitFor()
    const alert = await card.getByRole('alert').textContent()
    expect(alert).toContain('1.25')
    await card.getByTitle(splitter).waitFor()
    expect(await seriousViolations(page)).toEqual([])
  })

  test('error: rejects a wrong key', async () => {
    expected = /status of 401/
    const page = await open()
    await page.getByLabel('API key').fill(`${scene.shop.apiKey}x`)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('alert').getByText('This API key is unknown or revoked').waitFor()
    expect(await seriousViolations(page)).toEqual([])
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
  })

  test('error: signs out if the key is revoked in the meantime', async () => {
    expected = /status of 401/
    const { providerId, apiKey } = await registerProvider({
      gatewayUrl: stack.api.url,
      name: 'Short-lived',
      network: stack.chain.network,
      address: `0x${'5d'.repeat(20)}`,
      endpoints: [],
    })
    const page = await signIn(desktop, apiKey)
    await page.clock.install()
    await page.getByRole('link', { name: 'Payouts' }).click()
    await page.getByRole('link', { name: 'Batches', exact: true }).click()
    await page.getByText('No batch yet').waitFor()
    const at = `${stack.api.url}/providers/${providerId}/keys`
    const { keys } = await call<{ keys: { keyId: string }[] }>(at, apiKey)
    // This is the provider's last key.
    await call(`${at}/${keys[0]?.keyId}?force=true`, apiKey, 'DELETE')
    await passUntilShown(page, 'Your API key is no longer valid.')
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
  })

  test('error: does not show another provider’s payment', async () => {
    expected = /status of 404/
    const { apiKey } = await registerProvider({
      gatewayUrl: stack.api.url,
      name: 'Curious',
      network: stack.chain.network,
      address: `0x${'6e'.repeat(20)}`,
      endpoints: [],
    })
    const page = await signIn(desktop, apiKey)
    await page.goto(`${stack.api.url}/dashboard/#/payments/${scene.settled[0]}`)
    await page.getByRole('alert').getByText('Not found').waitFor()
  })

  test('behavior: marks a payment that an x402 seller settled through the facilitator, and shows its page without a receipt', async () => {
    const wallet: Address = `0x${'7f'.repeat(20)}`
    const { apiKey } = await registerProvider({
      gatewayUrl: stack.api.url,
      name: 'x402 seller',
      network: stack.chain.network,
      address: wallet,
      endpoints: [],
    })
    const { privateKey } = await newBuyer(stack, '1')
    const served = { network: networkByName(stack.chain.network), token: tokenOf(stack.chain) }
    const { body } = await signPayment(served, privateKeyToAccount(privateKey), { payTo: wallet })
    const answer = await fetch(`${stack.keeper.url}/settle`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
      body: JSON.stringify(body),
    })
    expect(await answer.json()).toMatchObject({ success: true })
    const page = await signIn(phone, apiKey)
    await page.goto(`${stack.api.url}/dashboard/#/payments`)
    const row = page.getByRole('row').filter({ hasText: 'x402 facilitator' })
    await row.getByText('settled', { exact: true }).waitFor()
    await row.getByRole('link', { name: /^pay_/ }).click()
    await page.getByText('It has no receipt from this gateway').waitFor()
    const steps = await page.getByRole('listitem').locator('b').allTextContents()
    expect(steps).toEqual(['Verified', 'Broadcast', 'Mined', 'Confirmed'])
    expect(await seriousViolations(page)).toEqual([])
  })

  test('behavior: every view shows the recorded payments if there is no index', async () => {
    const sql = openDatabase({ url: stack.databaseUrl, max: 1, applicationName: 'test' })
    const page = await signIn()
    try {
      await withoutIndex(sql, async () => {
        await page.goto(`${stack.api.url}/dashboard/#/payments/${scene.settled[0]}`)
        await page.getByText('settled', { exact: true }).first().waitFor()
        await page.goto(`${stack.api.url}/dashboard/#/network`)
        await page.getByRole('heading', { level: 2 }).first().waitFor()
        await page.goto(`${stack.api.url}/dashboard/#/payouts/batches`)
        await page.getByText('localhost #2').first().waitFor()
      })
    } finally {
      await sql.end()
    }
  })

  test('error: every view reports an unreachable database, and recovers automatically', async () => {
    expected = /status of 503/
    const page = await signIn(desktop, scene.shop.apiKey, apart.url)
    await page.clock.install()
    await page.getByRole('link', { name: 'Payouts' }).click()
    await page.getByRole('link', { name: 'Batches', exact: true }).click()
    await page.getByRole('heading', { level: 1, name: 'Batches' }).waitFor()
    await page.getByRole('link', { name: 'localhost #2' }).waitFor()
    database.cut()
    const title = 'The gateway can’t reach its database or the chain'
    await passUntilShown(page, `${title}. This page shows earlier data.`)
    expect(await page.getByRole('link', { name: 'localhost #2' }).isVisible()).toBe(true)
    for (const route of [
      'payouts/queue',
      'payments',
      'payments/failures',
      `payments/${scene.settled[0]}`,
      '',
    ]) {
      await page.goto(`${apart.url}/dashboard/#/${route}`)
      await page.getByRole('heading', { level: 2, name: title }).waitFor()
    }
    const answer = await fetch(`${apart.url}/settlements/status?wallet=${scene.shop.address}`)
    expect(answer.status).toBe(503)
    expect(await seriousViolations(page)).toEqual([])
    database.mend()
    await passUntilShown(page, 'Revenue over time')
    await page.getByText('Live', { exact: true }).waitFor()
  })

  addPayingPageTests({
    stack: () => stack,
    visit: async (url) => {
      // The page sends requests to the seller, the gateway and the facilitator, which have other origins.
      tab = { ...(await openTab(browser, url)), foreign: [] }
      await tab.page.goto(url)
      return tab.page
    },
    expectErrors: (lines) => {
      expected = lines
    },
  })

  test('behavior: the page of a tab’s payment shows what was sold on the tab, and why the tab closed', async () => {
    const shop = await openShop(stack, { usdcPerUnit: '0.004' })
    onTestFinished(shop.close)
    const { client } = await newBuyer(stack, '1', { tabs: true })
    for (let n = 0; n < 2; n++) await client.request(shop.url)
    const { paymentId, payment } = await client.request(shop.url)
    const page = await signIn(desktop, shop.apiKey)
    await page.goto(`${stack.api.url}/dashboard/#/payments/${paymentId}`)
    await page.getByRole('heading', { level: 2, name: 'Your lines of this tab' }).waitFor()
    for (const fact of ['3 of 3', 'number 3', 'still open', 'In use'])
      await page.getByText(fact, { exact: true }).waitFor()
    await client.close()
    const isTaken = async () => (await stack.get(`/tabs/${payment?.tab?.tab}`)).body.isTaken === true
    await until('the closed tab is recorded', isTaken)
    for (const fact of ['3 of 3', 'number 4', 'buyer']) await page.getByText(fact, { exact: true }).waitFor()
    const sale = page.getByRole('region', { name: 'Sales on this tab' }).getByRole('row').nth(1)
    const cells = await sale.getByRole('cell').allTextContents()
    expect(cells).toEqual(expect.arrayContaining(['3', '0.010800', '0.001200']))
    expect(await violationsInBothSchemes(page)).toEqual([])
  })

  test('error: while the gateway is down, keeps showing the last data, marked as outdated, and reconnects', async () => {
    expected = /Failed to load resource|ERR_CONNECTION_REFUSED/
    const page = await signIn()
    await page.clock.install()
    await page.getByRole('link', { name: 'Payouts' }).click()
    await page.getByRole('link', { name: 'Batches', exact: true }).click()
    // The previous page also links to the last batches, so wait for the heading of this page first.
    await page.getByRole('heading', { level: 1, name: 'Batches' }).waitFor()
    await page.getByRole('link', { name: 'localhost #2' }).waitFor()
    await stack.api.kill()
    await passUntilShown(page, 'The gateway isn’t responding. This page shows earlier data.')
    expect(await page.getByRole('link', { name: 'localhost #2' }).isVisible()).toBe(true)
    expect(await seriousViolations(page)).toEqual([])
    await page.getByRole('link', { name: 'Next payout' }).click()
    await page.getByRole('heading', { level: 2, name: 'The gateway isn’t responding' }).waitFor()
    // While the clock is paused, the page can't reconnect by itself before the button is clicked.
    await page.clock.pauseAt((await page.evaluate(() => Date.now())) + 60_000)
    await stack.api.start()
    await page.getByRole('button', { name: 'Try again' }).click()
    await page.getByText('Live').waitFor()
  })
})
