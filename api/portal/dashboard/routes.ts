import { compress } from 'hono/compress'
import { secureHeaders } from 'hono/secure-headers'
import type { App } from '../../app.ts'
import { Refusal } from '../../refusal.ts'
import { type Bundle, bundleDashboard } from './bundle.ts'
import { page } from './page.ts'

const none = ["'none'"]

/** Nothing but this origin's own files and routes, no inline script or style, and nobody may frame it. */
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
 * The dashboard: one page and its files. Which view it shows is in the URL's fragment, so that payment ids and receipts
 * reach no log, and its links are relative, so that it works under any prefix that a proxy puts it.
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
  app.get('/dashboard/:file', async (c) => {
    const asset = (await bundle()).assets.get(c.req.param('file'))
    if (asset === undefined) throw new Refusal('not_found')
    return c.body(asset.content as Uint8Array<ArrayBuffer>, 200, {
      'content-type': asset.contentType,
      'cache-control': 'public, max-age=31536000, immutable',
    })
  })
}
