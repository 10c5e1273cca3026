import { execFile } from 'node:child_process'
import { cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll } from 'vitest'

const run = promisify(execFile)

/** Download size of each folder's packages. */
const sizes = {
  checkers: '100 MB',
  frameworks: '30 MB',
  jest: '170 MB',
  managers: '120 MB',
  runtimes: '350 MB',
  strangers: '1 GB',
}

/**
 * Copies a folder of compat/ to a temporary folder and installs its packages there, where they can't find this repository's packages. The copy is
 * removed after the tests of the file.
 * @returns The path of the copy, which is set before the tests run.
 */
export function useInstalled(name: keyof typeof sizes, flags: readonly string[] = []): { path: string } {
  const folder = { path: '' }
  beforeAll(async () => {
    folder.path = await mkdtemp(join(tmpdir(), `tollkeeper-${name}-`))
    await cp(join(import.meta.dirname, name), folder.path, { recursive: true })
    const startedAt = Date.now()
    process.stderr.write(`compat/${name}: npm ci, ${sizes[name]} ...\n`)
    await run('npm', ['ci', '--prefer-offline', '--no-audit', '--no-fund', ...flags], {
      cwd: folder.path,
      maxBuffer: 2 ** 24,
    })
    process.stderr.write(`compat/${name}: installed in ${Math.round((Date.now() - startedAt) / 1_000)} s\n`)
  }, 900_000)
  afterAll(async () => {
    if (folder.path !== '') await rm(folder.path, { recursive: true, force: true })
  })
  return folder
}
