import { expect, test } from 'vitest'
import { useGateway } from '../../test/support/useGateway.ts'
import { bundleDashboard } from './bundle.ts'

const gateway = useGateway()
const get = (path: string, headers = {}) => gateway.app.request(path, { headers })

test('default: serves a page that may load only its own files, which are cached forever', async () => {
  const page = await get('/dashboard/')
  expect(page.status).toBe(200)
  expect(page.headers.get('content-security-policy')).toBe(
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'",
  )
  expect(page.headers.get('cache-control')).toBe('no-cache')
  expect(page.headers.get('referrer-policy')).toBe('no-referrer')
  const html = await page.text()
  expect(html).not.toMatch(/<script(?![^>]* src=)|<style|\son\w+=|https?:\/\//)
  const files = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, file]) => file)
  // The page loads the icon, the style sheet, the script, and the modules that this script shares with pages loaded later.
  const { imports } = await bundleDashboard()
  expect(files).toHaveLength(3 + imports.length)
  for (const file of files) {
    const asset = await get(`/dashboard/${file}`)
    expect([file, asset.status, asset.headers.get('cache-control')]).toEqual([
      file,
      200,
      'public, max-age=31536000, immutable',
    ])
  }
})

test('behavior: redirects to the URL with a slash, so that relative links work', async () => {
  const answer = await get('/dashboard')
  expect([answer.status, answer.headers.get('location')]).toEqual([302, 'dashboard/'])
})

test('behavior: redirects a browser at the root to the dashboard, and describes the interfaces to other clients', async () => {
  const browser = await get('/', { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' })
  expect([browser.status, browser.headers.get('location')]).toEqual([302, 'dashboard/'])
  const other = await get('/', { accept: '*/*' })
  expect([other.status, other.headers.get('vary')]).toEqual([200, 'Accept'])
  const { links, ...told } = (await other.json()) as { links: Record<string, string> }
  expect(told).toEqual({
    name: 'Tollkeeper',
    gatewayUrl: gateway.settings.issuer,
    networks: [{ network: 'localhost', testnet: true }],
    registration: 'open',
    sales: { stopped: false, reason: null, stoppedAt: null },
    mail: false,
  })
  for (const link of Object.values(links)) {
    expect([link, (await get(link.slice(gateway.settings.issuer.length))).status]).toEqual([link, 200])
  }
})

test('behavior: scripts are compressed, and the first script is small, because each page’s own script is fetched when that page is opened', async () => {
  const { script, imports, assets } = await bundleDashboard()
  const sizeOf = async (name: string) => {
    const answer = await get(`/dashboard/${name}`, { 'accept-encoding': 'gzip' })
    expect([name, answer.headers.get('content-encoding')]).toEqual([name, 'gzip'])
    return (await answer.arrayBuffer()).byteLength
  }
  const sum = async (names: string[]) => (await Promise.all(names.map(sizeOf))).reduce((a, b) => a + b, 0)
  const atStart = [script, ...imports]
  expect(await sum(atStart)).toBeLessThan(61_000)
  const later = [...assets.keys()].filter((name) => name.endsWith('.js') && !atStart.includes(name))
  expect(later.length).toBeGreaterThan(8)
  expect(await sum(later)).toBeLessThan(70_000)
})

test('error: answers 404 for an unknown file', async () => {
  const answer = await get('/dashboard/elsewhere.js')
  expect([answer.status, ((await answer.json()) as { code: string }).code]).toEqual([404, 'not_found'])
})
