import { basename } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build, type Plugin } from 'esbuild'

export type Asset = { name: string; contentType: string; content: Uint8Array }

/** The dashboard's files; each name is its content's hash, so a cached file is never stale. */
export type Bundle = {
  script: string
  /** Files that the script imports when it starts, without the pages that it imports later. */
  imports: string[]
  style: string
  icon: string
  assets: ReadonlyMap<string, Asset>
  /** Third-party packages in the bundle. */
  packages: readonly string[]
}

const contentTypes: Record<string, string> = {
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
}

const client = (path: string) => fileURLToPath(new URL(`../../apps/dashboard/${path}`, import.meta.url))

/**
 * Keeps third-party packages' own `import()` calls out of the bundle. esbuild would write a separate file for each of them, with everything that it
 * imports, even if the code is never called. viem's calls would add 25 kB.
 */
const ownImportsOnly: Plugin = {
  name: 'own imports only',
  setup({ onResolve }) {
    onResolve({ filter: /./ }, ({ kind, importer }) =>
      kind === 'dynamic-import' && importer.includes('node_modules') ? { external: true } : undefined,
    )
  },
}

/** Bundles the dashboard in memory, once per process (about 0.1 s), so that no built file can be missing, stale or committed. */
export async function bundleDashboard(): Promise<Bundle> {
  const { outputFiles, metafile } = await build({
    entryPoints: [client('main.tsx'), client('styles.css'), client('icon.svg')],
    outdir: '/',
    bundle: true,
    write: false,
    metafile: true,
    splitting: true,
    plugins: [ownImportsOnly],
    entryNames: '[hash]',
    chunkNames: '[hash]',
    assetNames: '[hash]',
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
  const outputs = Object.entries(metafile.outputs)
  const find = (source: string) => {
    const found = outputs.find(([, { inputs, entryPoint }]) =>
      (entryPoint ?? Object.keys(inputs)[0])?.endsWith(source),
    )
    if (found === undefined) throw new Error(`The dashboard has no ${source}`)
    return { name: basename(found[0]), imports: found[1].imports }
  }
  const script = find('apps/dashboard/main.tsx')
  const assets = outputFiles.map(({ path, contents }): Asset => {
    const name = basename(path)
    return { name, contentType: contentTypes[name.split('.').at(-1) ?? ''] ?? '', content: contents }
  })
  return {
    script: script.name,
    imports: script.imports
      .filter(({ kind }) => kind === 'import-statement')
      .map(({ path }) => basename(path)),
    style: find('apps/dashboard/styles.css').name,
    icon: find('apps/dashboard/icon.svg').name,
    assets: new Map(assets.map((asset) => [asset.name, asset])),
    packages: packagesOf(Object.values(metafile.outputs).flatMap(({ inputs }) => Object.keys(inputs))),
  }
}

function packagesOf(inputs: string[]): string[] {
  const names = inputs.flatMap((input) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1] ?? [])
  return [...new Set(names)].sort()
}
