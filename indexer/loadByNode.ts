import { readFileSync } from 'node:fs'
import { registerHooks, stripTypeScriptTypes } from 'node:module'
import { isAbsolute } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

// Replaces vite, vite-node and vite's plugin in Ponder's bundle (bundlePonder.ts). Ponder uses them to load the config, the schema and the handlers.
// This module lets Node load these files, because Node can run TypeScript.

/** The part of Ponder's vite plugin that provides the modules `ponder:registry`, `ponder:schema` and `ponder:api`. */
type Plugin = { load: (id: string) => string | null }

/** The bundle's entry point, in `bin`. */
const entry = pathToFileURL(process.argv[1] ?? '')
/** The packages that our files share with Ponder. */
const bundled: Record<string, string> = {
  ponder: new URL('../index.js', entry).href,
  viem: new URL('../viem.js', entry).href,
}
const isVirtual = (url: string) => url.startsWith('ponder:')
/** Whether a file is in the published package. Node doesn't strip types from files below node_modules. */
const isPackaged = (url: string) => url.includes('/node_modules/') && url.endsWith('.ts')
let plugins: readonly Plugin[] = []

registerHooks({
  resolve(specifier, context, next) {
    const url = bundled[specifier] ?? (isVirtual(specifier) ? specifier : undefined)
    if (url) return { url, format: 'module', shortCircuit: true }
    // A virtual module imports the schema by its absolute path.
    const isPath = isVirtual(context.parentURL ?? '') && isAbsolute(specifier)
    return next(isPath ? pathToFileURL(specifier).href : specifier, context)
  },
  load(url, context, next) {
    if (isVirtual(url)) {
      const source = plugins.map(({ load }) => load(url)).find((text) => text !== null)
      if (source === undefined) throw new Error(`Ponder has no module ${url}`)
      return { source, format: 'module', shortCircuit: true }
    }
    if (!isPackaged(url)) return next(url, context)
    const source = stripTypeScriptTypes(readFileSync(fileURLToPath(url), 'utf8'))
    return { source, format: 'module', shortCircuit: true }
  },
})

/** Replaces the export of `vite`. */
export async function createServer(options: { root: string; plugins: (Plugin | undefined)[] }) {
  plugins = options.plugins.filter((plugin) => plugin !== undefined)
  return {
    config: { root: options.root },
    pluginContainer: { buildStart: async () => {} },
    close: async () => {},
  }
}

/** Replaces the export of `vite-node/client`. */
export class ViteNodeRunner {
  executeFile(path: string): Promise<unknown> {
    return import(pathToFileURL(path).href)
  }
  executeId(id: string): Promise<unknown> {
    return import(id)
  }
}

/** Replaces the export of `vite-node/server`. */
export class ViteNodeServer {}
/** Replaces the export of `vite-node/source-map`. It does nothing, because stripping types keeps all line numbers. */
export function installSourcemapsSupport(): void {}
/** Replaces exports of `vite-node/utils`, which only `ponder dev` calls. */
export const normalizeModuleId = String
export const toFilePath = String
/** Replaces `vite-tsconfig-paths`. It does nothing, because Node knows the aliases in package.json. */
export default function noPlugin(): undefined {}
