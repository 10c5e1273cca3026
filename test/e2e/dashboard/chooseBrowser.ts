import { findBrowser } from '../../support/browser.ts'

/**
 * The Chromium to test in. Without one, these tests are left out and a line says so; CI installs it, and must not go on
 * without.
 */
export function chooseBrowser(): string | undefined {
  const executable = findBrowser()
  if (executable !== undefined) return executable
  const missing = 'no Chromium in the PATH or in CHROMIUM_PATH (Debian: apt-get install chromium)'
  if (process.env.CI) throw new Error(`The dashboard can't be tested: ${missing}`)
  process.stderr.write(`\nLEFT OUT: the dashboard's browser tests: ${missing}\n\n`)
  return undefined
}
