/** `npm run screenshots`: creates a scene on the real stack and updates docs/images from it. */
import { mkdir, stat } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { newOperatorKey } from '@tollkeeper/api/http/operator'
import { startStack } from '../../../apps/devstack/stack/stack.ts'
import { desktop, launchBrowser, openTab, phone } from '../../support/browser.ts'
import { newBuyer } from '../../support/shop.ts'
import { chooseBrowser } from './chooseBrowser.ts'
import { call } from './desk.ts'
import { patient, playScene } from './scene.ts'

const folder = fileURLToPath(new URL('../../../docs/images/', import.meta.url))
const mostBytes = 220_000
/** Maximum height in pixels of a picture of the whole page. */
const mostHeight = 1_250

/** Returns the wallet address of a payment's buyer, whose page is one of the pictures. */
async function payerOf(paymentId: string): Promise<string | undefined> {
  const answer = await fetch(`${stack.api.url}/payments/${paymentId}`)
  return ((await answer.json()) as { payer?: string }).payer
}

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
  // Adds a tool of an MCP server, and a tab that stays open.
  const { providerId, walletId, apiKey } = scene.shop
  await call(`${stack.api.url}/providers/${providerId}/endpoints`, apiKey, 'POST', {
    url: 'mcp://tool/summarize',
    serverUrl: 'https://tools.example/mcp',
    method: 'POST',
    walletId,
    pricing: { usdcPerUnit: '0.02' },
    description: 'Summarizes a text in three sentences',
  })
  const { client } = await newBuyer(stack, '1', { tabs: true })
  for (let requests = 0; requests < 3; requests++) await client.request(scene.shop.url)
  type Listings = { items: { resource: string; accepts: { payTo: string; extra: { seller?: string } }[] }[] }
  const listings = (await (await fetch(`${stack.api.url}/discovery/resources`)).json()) as Listings
  const [listing] = listings.items
  const [offer] = listing?.accepts ?? []
  const buyer = (await payerOf(scene.settled[0] ?? '')) ?? ''
  const views = {
    overview: ['', 'Live'],
    payments: ['payments', 'Live'],
    payment: [`payments/${scene.settled.at(-1)}`, 'verified in this browser'],
    failures: ['payments/failures', 'Live'],
    tabs: ['tabs', 'Live'],
    buyers: ['buyers', 'Live'],
    buyer: [`buyers/${buyer}`, 'Live'],
    endpoints: ['endpoints', 'Live'],
    endpoint: [`endpoints/${scene.shop.endpointIds[0]}`, 'Live'],
    payouts: ['payouts', 'Live'],
    queue: ['payouts/queue', 'Live'],
    batches: ['payouts/batches', 'Live'],
    statement: ['payouts/statement', 'Live'],
    developers: ['developers/webhooks', 'Live'],
    history: ['developers/history', 'Live'],
    market: ['market', 'Live'],
    listing: [
      `market/${offer?.extra.seller ?? offer?.payTo}/${encodeURIComponent(listing?.resource ?? '')}`,
      'Live',
    ],
    receipt: [`receipt/${scene.receipt}`, 'Genuine and settled'],
    start: ['start', 'Live'],
    operation: ['', 'Live'],
    network: ['network', 'Live'],
  } as const
  const devices = { desktop, phone: { ...phone, deviceScaleFactor: 1.5 } }
  const kept: [keyof typeof devices, 'light' | 'dark', key: string, (keyof typeof views)[]][] = [
    [
      'desktop',
      'light',
      apiKey,
      [
        'overview',
        'payments',
        'payment',
        'failures',
        'tabs',
        'buyers',
        'buyer',
        'endpoints',
        'endpoint',
        'payouts',
        'queue',
        'batches',
        'statement',
        'developers',
        'history',
        'market',
        'listing',
        'receipt',
        'start',
        'network',
      ],
    ],
    ['desktop', 'dark', apiKey, ['overview', 'payment']],
    ['phone', 'light', apiKey, ['overview', 'payments', 'buyers', 'payouts', 'queue', 'listing']],
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
      const clip = { x: 0, y: 0, width: desktop.viewport.width, height: mostHeight }
      await page.screenshot({ path, ...(device === 'desktop' && { fullPage: true, clip }) })
      const { size } = await stat(path)
      console.log(`${path} ${Math.round(size / 1000)} kB`)
      if (size > mostBytes) throw new Error(`${path} is larger than ${mostBytes} bytes`)
    }
    await page.context().close()
  }
  const { page } = await openTab(browser, stack.api.url, { ...desktop, colorScheme: 'light' })
  await page.goto(scene.shop.url)
  await page.screenshot({ path: `${folder}page-desktop-light.png`, fullPage: true })
  await browser.close()
  await scene.shop.close()
} finally {
  await stack.close()
}
process.exit()
