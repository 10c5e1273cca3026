/**
 * Serves a page that pays with the visitor's wallet, the packages that the page imports, and the forecast that the page buys.
 *
 * Reads PROVIDER_ID, PROVIDER_API_KEY, PROVIDER_PORT, GATEWAY_URL, NETWORK and, on `localhost`, USDC_ADDRESS.
 */
import { readFile } from 'node:fs/promises'
import { serve } from '@hono/node-server'
import { requirePayment } from '@tollkeeper/sdk/hono'
import { build } from 'esbuild'
import { Hono } from 'hono'

const { GATEWAY_URL, NETWORK, USDC_ADDRESS, PROVIDER_ID, PROVIDER_API_KEY, PROVIDER_PORT } = process.env
const gatewayUrl = GATEWAY_URL || 'http://127.0.0.1:4020'
const port = Number(PROVIDER_PORT || 4030)
const paid = requirePayment({
  gatewayUrl,
  providerId: PROVIDER_ID || '',
  apiKey: PROVIDER_API_KEY || undefined,
  pricing: { usdcPerUnit: '0.01' },
  // A browser that opens /forecast gets a link to this page.
  payPage: `http://127.0.0.1:${port}/`,
})

// Bundles the packages of the page's import map from node_modules, without a CDN. A real site would build these files once.
const { outputFiles } = await build({
  entryPoints: { sdk: '@tollkeeper/sdk', viem: 'viem' },
  outdir: '/vendor',
  conditions: process.execArgv.flatMap((flag) => flag.match(/^--conditions=(.*)/)?.[1] ?? []),
  bundle: true,
  splitting: true,
  minify: true,
  format: 'esm',
  platform: 'browser',
  write: false,
})
const files = new Map(outputFiles.map(({ path, text }) => [path, text]))

const app = new Hono()
app.get('/', async (c) => c.html(await readFile(new URL('index.html', import.meta.url), 'utf8')))
app.get('/settings.json', (c) =>
  c.json({ gatewayUrl, network: NETWORK || 'base-sepolia', usdcAddress: USDC_ADDRESS }),
)
app.get('/vendor/*', (c) => {
  const text = files.get(c.req.path)
  return text === undefined ? c.notFound() : c.body(text, 200, { 'content-type': 'text/javascript' })
})
app.get('/forecast', paid, (c) => c.json({ city: 'Lisbon', celsius: 19 }))

const server = serve({ fetch: app.fetch, hostname: '127.0.0.1', port }, () =>
  console.log(`open http://127.0.0.1:${port}/`),
)
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => server.close(() => process.exit(0)))
}
