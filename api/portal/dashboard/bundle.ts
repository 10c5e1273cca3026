import { createHash } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

export type Asset = { name: string; contentType: string; content: Uint8Array }

/** The client's files; each name contains its content's hash, so a cached file is never stale. */
export type Bundle = { script: Asset; style: Asset; icon: Asset; assets: ReadonlyMap<string, Asset> }

const client = (path: string) => fileURLToPath(new URL(`client/${path}`, import.meta.url))

/**
 * Bundles the client in memory, once a process (about 0.1 s), so that no built file can be missing, stale or committed.
 */
export async function bundleDashboard(): Promise<Bundle> {
  const { outputFiles } = await build({
    entryPoints: [client('main.tsx'), client('styles.css'), client('icon.svg')],
    outdir: '/',
    bundle: true,
    write: false,
    minify: true,
    format: 'esm',
    platform: 'browser',
    target: ['chrome123', 'firefox120', 'safari17.5'],
    conditions: ['@tollkeeper/source'],
    loader: { '.svg': 'copy' },
    jsx: 'automatic',
    jsxImportSource: 'preact',
    legalComments: 'inline',
    logLevel: 'silent',
  })
  const take = (extension: string, contentType: string): Asset => {
    const file = outputFiles.find(({ path }) => path.endsWith(extension))
    if (file === undefined) throw new Error(`The dashboard's client has no ${extension}`)
    const hash = createHash('sha256').update(file.contents).digest('hex').slice(0, 16)
    return { name: `${hash}${extension}`, contentType, content: file.contents }
  }
  const script = take('.js', 'text/javascript; charset=utf-8')
  const style = take('.css', 'text/css; charset=utf-8')
  const icon = take('.svg', 'image/svg+xml')
  return { script, style, icon, assets: new Map([script, style, icon].map((asset) => [asset.name, asset])) }
}
