import { existsSync, readFileSync } from 'node:fs'
import { SourceMap } from 'node:module'
import { fileURLToPath } from 'node:url'

// Loaded before each bundled program, so that stack traces name our sources. It reads a source map when the first stack trace needs it;
// `--enable-source-maps` would read all of them at startup.

const maps = new Map<string, SourceMap | null>()

function mapOf(url: string): SourceMap | null {
  const known = maps.get(url)
  if (known !== undefined) return known
  const path = url.startsWith('file:') ? `${fileURLToPath(url)}.map` : ''
  const map = existsSync(path) ? new SourceMap(JSON.parse(readFileSync(path, 'utf8'))) : null
  maps.set(url, map)
  return map
}

function describe(site: NodeJS.CallSite): string {
  const text = `    at ${site}`
  const [url, line, column] = [site.getFileName(), site.getLineNumber(), site.getColumnNumber()]
  if (!url || line === null || column === null) return text
  const entry = mapOf(url)?.findEntry(line - 1, column - 1)
  if (!entry || !('originalSource' in entry)) return text
  const { originalSource: source } = entry
  return text.replace(
    `${url}:${line}:${column}`,
    `${source}:${entry.originalLine + 1}:${entry.originalColumn + 1}`,
  )
}

Error.prepareStackTrace = (error, sites) => [String(error), ...sites.map(describe)].join('\n')
