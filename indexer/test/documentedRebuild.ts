import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { expect } from 'vitest'

/** Runs the command of docs/indexer.md, word for word. */
export async function runDocumentedRebuild(env: Record<string, string>): Promise<void> {
  const page = await readFile(new URL('../../docs/indexer.md', import.meta.url), 'utf8')
  const [, section] = page.split('**A reorg deeper than Ponder')
  const [, script, ...args] = /^node (\S+) (.*)$/m.exec(section ?? '')?.[0].split(' ') ?? []
  if (!script) throw new Error('docs/indexer.md names no command')
  const { stdout } = await promisify(execFile)(process.execPath, [script, ...args], {
    env: { ...process.env, ...env },
  })
  expect(stdout).toContain('the cached data of base')
}
