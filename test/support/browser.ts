import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import axeCore, { type AxeResults, type Result, type RunOptions } from 'axe-core'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'

const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome']

/** A Chromium of this machine: `CHROMIUM_PATH`, or what stands in the PATH. */
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
 * Chromium renders two popups of its address bar anew for each window, which takes more time than our own pages. The other
 * names are those of Playwright's list that concern us: only the last list counts.
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

/** It asks nobody for anything by itself: a request to another host is then the page's. */
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
  /** Errors in the console, and exceptions that nobody caught. */
  errors: string[]
  /** Requests to another origin than the gateway's. */
  foreign: string[]
}

/** A tab of its own, with an ear on what goes wrong in it. */
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

/** axe-core's rules about colours, of those that it has switched on. */
const colourRules = ['color-contrast', 'link-in-text-block']

/** In light and in dark; in dark only what is about colours, since all else is the same page. */
export async function violationsInBothSchemes(page: Page): Promise<string[]> {
  await page.emulateMedia({ colorScheme: 'light' })
  const light = await seriousViolations(page)
  await page.emulateMedia({ colorScheme: 'dark' })
  const dark = await seriousViolations(page, { runOnly: { type: 'rule', values: colourRules } })
  return [...light, ...dark.map((violation) => `in dark: ${violation}`)]
}

/** What axe-core holds for serious or worse on the page as it is now. */
export async function seriousViolations(page: Page, options: RunOptions = {}): Promise<string[]> {
  const isThere = await page.evaluate(() => 'axe' in globalThis)
  if (!isThere) await page.evaluate(axeCore.source)
  const violations = await page.evaluate(
    async (asked): Promise<Result[]> => {
      const { axe } = globalThis as unknown as { axe: { run: (options: object) => Promise<AxeResults> } }
      return (await axe.run(asked)).violations
    },
    // Half of its time goes into naming the elements by selectors and into reading style sheets for rules that are off.
    { ...options, resultTypes: ['violations' as const], selectors: false, preload: false },
  )
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`)
}
