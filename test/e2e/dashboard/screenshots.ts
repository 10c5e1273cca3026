/** `npm run screenshots`: plays a scene on the real stack and keeps docs/images up to date with it. */
import { mkdir, stat } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { startStack } from '../../../scripts/stack/stack.ts'
import { desktop, launchBrowser, openTab, phone } from '../../support/browser.ts'
import { chooseBrowser } from './chooseBrowser.ts'
import { patient, playScene } from './scene.ts'

const folder = fileURLToPath(new URL('../../../docs/images/', import.meta.url))
const mostBytes = 200_000

const executable = chooseBrowser()
if (executable === undefined) process.exit(1)
const stack = await startStack({
  fastPostgres: true,
  chain: { blockTimeMs: 200, baseFeePerGas: 50_000n },
  env: { keeper: { KEEPER_POLL_MS: '100', ...patient }, api: patient },
})
try {
  const scene = await playScene(stack, { batches: [3, 24, 9, 40, 15, 60], waiting: 11, days: 29 })
  const views = {
    overview: ['', 'Live'],
    queue: ['queue', 'Live'],
    batches: ['batches', 'Live'],
    failures: ['failures', 'Live'],
    payment: [`payments/${scene.settled.at(-1)}`, 'verified in this browser'],
    receipt: [`receipt/${scene.receipt}`, 'Genuine and settled'],
  } as const
  const devices = { desktop, phone: { ...phone, deviceScaleFactor: 1.5 } }
  const kept: [keyof typeof devices, 'light' | 'dark', (keyof typeof views)[]][] = [
    ['desktop', 'light', ['overview', 'queue', 'batches', 'failures', 'payment', 'receipt']],
    ['desktop', 'dark', ['overview', 'payment']],
    ['phone', 'light', ['overview', 'queue']],
    ['phone', 'dark', ['failures']],
  ]
  await mkdir(folder, { recursive: true })
  const browser = await launchBrowser(executable)
  for (const [device, colorScheme, names] of kept) {
    const { page } = await openTab(browser, stack.api.url, { ...devices[device], colorScheme })
    await page.goto(`${stack.api.url}/dashboard`)
    await page.getByLabel('API key').fill(scene.shop.apiKey)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByText('Live', { exact: true }).waitFor()
    for (const name of names) {
      const [route, shown] = views[name]
      await page.goto(`${stack.api.url}/dashboard/#/${route}`)
      await page.getByText(shown, { exact: true }).waitFor()
      await page.waitForLoadState('networkidle')
      const path = `${folder}${name}-${device}-${colorScheme}.png`
      await page.screenshot({ path, fullPage: device === 'desktop' })
      const { size } = await stat(path)
      console.log(`${path} ${Math.round(size / 1000)} kB`)
      if (size > mostBytes) throw new Error(`${path} is larger than ${mostBytes} bytes`)
    }
    await page.context().close()
  }
  await browser.close()
  await scene.shop.close()
} finally {
  await stack.close()
}
process.exit()
