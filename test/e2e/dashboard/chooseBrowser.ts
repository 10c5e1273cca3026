import { findBrowser } from '../../support/browser.ts'

/**
 * Returns the path of the Chromium to test in. If no Chromium is installed, prints a line and returns undefined, and the caller skips
 * the tests. In CI, which installs Chromium, throws instead.
 */
export function chooseBrowser(tested = 'the dashboard'): string | undefined {
  const executable = findBrowser()
  if (executable !== undefined) return executable
  const missing = 'no Chromium in the PATH or in CHROMIUM_PATH (Debian: apt-get install chromium)'
  if (process.env.CI) throw new Error(`Browser tests of ${tested} can't run: ${missing}`)
  process.stderr.write(`\nLEFT OUT: browser tests of ${tested}: ${missing}\n\n`)
  return undefined
}
