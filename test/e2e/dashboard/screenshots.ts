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
    overview: '',
    queue: 'queue',
    batches: 'batches',
    failures: 'failures',
    payment: `payments/${scene.retrying}`,
    receipt: `receipt/${scene.receipt}`,
  }
  await mkdir(folder, { recursive: true })
  const browser = await launchBrowser(executable)
  for (const [device, options] of Object.entries({ desktop, phone: { ...phone, deviceScaleFactor: 1.5 } })) {
    for (const colorScheme of ['light', 'dark'] as const) {
      const { page } = await openTab(browser, stack.api.url, { ...options, colorScheme })
      await page.goto(`${stack.api.url}/dashboard`)
      await page.getByLabel('API key').fill(scene.shop.apiKey)
      await page.getByRole('button', { name: 'Sign in' }).click()
      for (const [name, route] of Object.entries(views)) {
        await page.getByRole('heading', { level: 1 }).waitFor()
        await page.goto(`${stack.api.url}/dashboard/#/${route}`)
        await page.getByText(/^(Live|Genuine and settled)$/).waitFor()
        await page.waitForLoadState('networkidle')
        const path = `${folder}${name}-${device}-${colorScheme}.png`
        await page.screenshot({ path, fullPage: device === 'desktop' })
        const { size } = await stat(path)
        console.log(`${path} ${Math.round(size / 1000)} kB`)
        if (size > mostBytes) throw new Error(`${path} is larger than ${mostBytes} bytes`)
      }
      await page.context().close()
    }
  }
  await browser.close()
  await scene.shop.close()
} finally {
  await stack.close()
}
process.exit()
