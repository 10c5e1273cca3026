import { compress } from 'hono/compress'
import { secureHeaders } from 'hono/secure-headers'
import type { App } from '../http/app.ts'
import { Refusal } from '../http/refusal.ts'
import { type Bundle, bundleDashboard } from './bundle.ts'
import { page } from './page.ts'

const none = ["'none'"]

/** Allows only files and routes of this origin, no inline script or style, and no framing. */
const protect = secureHeaders({
  contentSecurityPolicy: {
    defaultSrc: ["'self'"],
    baseUri: none,
    formAction: none,
    frameAncestors: none,
    objectSrc: none,
    requireTrustedTypesFor: ["'script'"],
  },
  referrerPolicy: 'no-referrer',
  xFrameOptions: 'DENY',
})

/**
 * Adds the dashboard: one page and its files. The URL's fragment selects the view, so that payment ids and receipts don't appear in any
 * log. Links are relative, so that the page works under any path prefix of a proxy.
 */
export function addDashboardRoutes(app: App): void {
  let bundled: Promise<Bundle> | undefined
  const bundle = () => {
    bundled ??= bundleDashboard().catch((error: unknown) => {
      bundled = undefined
      throw error
    })
    return bundled
  }

  app.use('/dashboard/*', protect, compress())
  app.get('/dashboard', (c) => c.redirect('dashboard/'))
  app.get('/dashboard/', async (c) => {
    c.header('cache-control', 'no-cache')
    return c.html(page(await bundle()))
  })
  // Catalogs show this icon next to what is sold here.
  app.get('/favicon.svg', async (c) => {
    const { icon, assets } = await bundle()
    return c.body(assets.get(icon)?.content as Uint8Array<ArrayBuffer>, 200, {
      'content-type': 'image/svg+xml',
      'cache-control': 'public, max-age=86400',
    })
  })
  app.get('/dashboard/:file', async (c) => {
    const asset = (await bundle()).assets.get(c.req.param('file'))
    if (asset === undefined) throw new Refusal('not_found')
    return c.body(asset.content as Uint8Array<ArrayBuffer>, 200, {
      'content-type': asset.contentType,
      'cache-control': 'public, max-age=31536000, immutable',
    })
  })
}
