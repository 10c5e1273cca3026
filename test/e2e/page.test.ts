import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { desktop, launchBrowser, openTab, violationsInBothSchemes } from '../support/browser.ts'
import { openShop } from '../support/shop.ts'
import { useTestStack } from '../support/stack.ts'
import { chooseBrowser } from './dashboard/chooseBrowser.ts'

// A browser opens the paid URL of a real shop, behind a real gateway.

const executable = chooseBrowser('the payment page of a 402')

describe.skipIf(executable === undefined)('the payment page of a 402', () => {
  const stack = useTestStack({ chain: { network: 'base-sepolia', blockTimeMs: 5_000 } })
  let browser: Browser
  beforeAll(async () => {
    browser = await launchBrowser(executable as string)
  })
  afterAll(() => browser?.close())

  async function visit(path = '', options: object = desktop) {
    const payPage = 'https://pay.example/'
    const shop = await openShop(stack, { usdcPerUnit: '0.02', gate: { payPage } })
    onTestFinished(() => shop.close())
    const tab = await openTab(browser, new URL(shop.url).origin, options)
    onTestFinished(() => tab.page.context().close())
    const response = await tab.page.goto(shop.url + path)
    expect(response?.status()).toBe(402)
    return { ...tab, shop }
  }

  test('shows the price and how to pay, and loads no other file', async () => {
    const { page, errors, foreign, shop } = await visit('?city=Lisbon')
    expect(await page.title()).toBe('0.02 USDC · Test API')
    await page.getByRole('heading', { level: 1, name: 'This costs 0.02 USDC' }).waitFor()
    await page.getByText(`GET ${shop.url}?city=Lisbon`, { exact: true }).waitFor()
    const link = page.getByRole('link', { name: 'Pay at pay.example' })
    expect(await link.getAttribute('href')).toContain(encodeURIComponent(shop.url))
    await page.getByRole('img', { name: /^QR code of https:\/\/pay\.example\// }).waitFor()
    // The browser logs the 402. If the page's policy blocked anything, the browser would log that as well.
    expect(errors.filter((line) => !line.includes('402'))).toEqual([])
    expect(foreign).toEqual([])
    const color = await page.evaluate(() => getComputedStyle(document.body).backgroundColor)
    expect(color).toBe('rgb(244, 245, 247)')
  })

  test('links to its listing on the gateway’s market', async () => {
    const { page, shop } = await visit()
    await page.getByRole('link', { name: 'More ways to buy, and sales statistics' }).click()
    await page.getByText(`GET ${shop.url}`).first().waitFor()
  })

  test('is accessible to screen readers, in light and dark mode', async () => {
    const { page } = await visit()
    // axe-core is a script, and the page's policy permits no scripts, so check a copy of the page.
    const html = await page.content()
    const copy = await (await browser.newContext(desktop)).newPage()
    onTestFinished(() => copy.context().close())
    await copy.setContent(html)
    expect(await violationsInBothSchemes(copy)).toEqual([])
  })

  test.each([320, 390, 1280])('fits into %i pixels with a long URL', async (width) => {
    const { page } = await visit(`?q=${'a'.repeat(200)}`, { viewport: { width, height: 700 } })
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width)
  })
})
