import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import axeCore, { type AxeResults, type Result, type RunOptions } from 'axe-core'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'

const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome']

/** Returns a Chromium of this machine: `CHROMIUM_PATH`, or one in the PATH. */
export function findBrowser(): string | undefined {
  const { CHROMIUM_PATH, PATH = '' } = process.env
  if (CHROMIUM_PATH) return CHROMIUM_PATH
  return PATH.split(delimiter)
    .flatMap((folder) => names.map((name) => join(folder, name)))
    .find(isExecutable)
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

/**
 * Features of Chromium to switch off. The first two render popups of the address bar again for each window, which takes more time
 * than our own pages. The others are from Playwright's own list, which this list replaces.
 */
const switchedOff = [
  'WebUIOmniboxPopup',
  'WebUIOmniboxAimPopup',
  'HttpsUpgrades',
  'MediaRouter',
  'OptimizationHints',
  'PaintHolding',
  'SpareRendererForSitePerProcess',
  'Translate',
]

/**
 * Launches a browser that sends no background requests, so each request to another host comes from the page.
 */
export function launchBrowser(executablePath: string): Promise<Browser> {
  return chromium.launch({
    executablePath,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      `--disable-features=${switchedOff.join(',')}`,
    ],
  })
}

export const desktop = { viewport: { width: 1280, height: 800 } } satisfies BrowserContextOptions
export const phone = {
  viewport: { width: 390, height: 844 },
  deviceScaleFactor: 2,
  isMobile: true,
  hasTouch: true,
} satisfies BrowserContextOptions

export type Watched = {
  page: Page
  /** Errors in the console, and uncaught exceptions. */
  errors: string[]
  /** Requests to another origin than the gateway's. */
  foreign: string[]
}

/** Opens a new tab, and records its errors and foreign requests. */
export async function openTab(
  browser: Browser,
  origin: string,
  options: BrowserContextOptions = desktop,
): Promise<Watched> {
  const context = await browser.newContext(options)
  const page = await context.newPage()
  const errors: string[] = []
  const foreign: string[] = []
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') errors.push(message.text())
  })
  page.on('pageerror', (error) => errors.push(error.message))
  page.on('request', (request) => {
    const url = new URL(request.url())
    if (url.origin !== origin && url.protocol !== 'data:') foreign.push(request.url())
  })
  page.setDefaultTimeout(120_000)
  return { page, errors, foreign }
}

/** The rules about color that axe-core enables by default. */
const colourRules = ['color-contrast', 'link-in-text-block']

/**
 * Returns the violations in light mode, and in dark mode only the violations about colors, because the modes
 * differ only in their colors.
 */
export async function violationsInBothSchemes(page: Page): Promise<string[]> {
  await page.emulateMedia({ colorScheme: 'light' })
  const light = await seriousViolations(page)
  await page.emulateMedia({ colorScheme: 'dark' })
  const dark = await seriousViolations(page, { runOnly: { type: 'rule', values: colourRules } })
  return [...light, ...dark.map((violation) => `in dark: ${violation}`)]
}

/** Returns the violations on the current page that axe-core rates serious or worse. */
export async function seriousViolations(page: Page, options: RunOptions = {}): Promise<string[]> {
  const isThere = await page.evaluate(() => 'axe' in globalThis)
  if (!isThere) await page.evaluate(axeCore.source)
  const violations = await page.evaluate(
    async (asked): Promise<Result[]> => {
      const { axe } = globalThis as unknown as { axe: { run: (options: object) => Promise<AxeResults> } }
      return (await axe.run(asked)).violations
    },
    // axe-core spends half of its time naming elements by selectors, and reading style sheets for rules that
    // are disabled.
    { ...options, resultTypes: ['violations' as const], selectors: false, preload: false },
  )
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`)
}
