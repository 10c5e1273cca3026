/** `npm run screenshots`: plays a scene on the real stack and keeps docs/images up to date with it. */
import { mkdir, stat } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { newOperatorKey } from '@tollkeeper/api/http/operator'
import { startStack } from '../../../apps/devstack/stack/stack.ts'
import { desktop, launchBrowser, openTab, phone } from '../../support/browser.ts'
import { chooseBrowser } from './chooseBrowser.ts'
import { patient, playScene } from './scene.ts'

const folder = fileURLToPath(new URL('../../../docs/images/', import.meta.url))
const mostBytes = 220_000

const executable = chooseBrowser()
if (executable === undefined) process.exit(1)
const operator = newOperatorKey()
const stack = await startStack({
  fastPostgres: true,
  chain: { blockTimeMs: 200, baseFeePerGas: 50_000n },
  env: {
    keeper: { KEEPER_POLL_MS: '100', ...patient },
    api: { ...patient, OPERATOR_KEY_HASHES: operator.hash },
  },
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
    endpoints: ['setup/endpoints', 'Live'],
    start: ['start', 'Live'],
    operation: ['', 'Live'],
    network: ['network', 'Live'],
  } as const
  const devices = { desktop, phone: { ...phone, deviceScaleFactor: 1.5 } }
  const { apiKey } = scene.shop
  const kept: [keyof typeof devices, 'light' | 'dark', key: string, (keyof typeof views)[]][] = [
    [
      ...(['desktop', 'light', apiKey] as const),
      ['overview', 'queue', 'batches', 'failures', 'payment', 'receipt', 'endpoints', 'start', 'network'],
    ],
    ['desktop', 'dark', apiKey, ['overview', 'payment']],
    ['phone', 'light', apiKey, ['overview', 'queue']],
    ['phone', 'dark', apiKey, ['failures', 'endpoints', 'network']],
    ['desktop', 'light', operator.key, ['operation']],
    ['phone', 'dark', operator.key, ['operation']],
  ]
  await mkdir(folder, { recursive: true })
  const browser = await launchBrowser(executable)
  for (const [device, colorScheme, key, names] of kept) {
    const { page } = await openTab(browser, stack.api.url, { ...devices[device], colorScheme })
    await page.goto(`${stack.api.url}/dashboard`)
    await page.getByLabel('API key').fill(key)
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
