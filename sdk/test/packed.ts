import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll } from 'vitest'
import { buildSdk } from '../../tools/buildSdk.ts'
import sdkPackageJson from '../package.json' with { type: 'json' }

const run = promisify(execFile)

export const modules = join(import.meta.dirname, '../../node_modules')

export type PackedSdk = {
  /** A temporary folder for packages that use the SDK. */
  folder: string
  tarball: string
}

/** Builds and packs the SDK for the tests in one file. */
export function usePackedSdk(): PackedSdk {
  const packed: PackedSdk = { folder: '', tarball: '' }
  beforeAll(async () => {
    packed.folder = await mkdtemp(join(tmpdir(), 'tollkeeper-sdk-'))
    await buildSdk(join(packed.folder, 'built'))
    const { stdout } = await run('npm', ['pack', './built', '--json'], { cwd: packed.folder })
    const [result] = Object.values(JSON.parse(stdout)) as { filename: string }[]
    packed.tarball = join(packed.folder, result?.filename ?? '')
  })
  afterAll(() => rm(packed.folder, { recursive: true, force: true }))
  return packed
}

/**
 * Creates an empty package with the SDK, the packages that npm installs with it, and some of our dependencies, under the names by which they
 * are imported.
 *
 * @returns the SDK's folder in that package.
 */
export async function openConsumer(
  { folder, tarball }: PackedSdk,
  name: string,
  dependencies: string[],
  viem = 'viem',
): Promise<string> {
  const installed = join(folder, name, 'node_modules/@tollkeeper/sdk')
  await mkdir(installed, { recursive: true })
  await run('tar', ['-xzf', tarball, '-C', installed, '--strip-components=1'])
  await writeFile(join(folder, name, 'package.json'), '{ "type": "module" }')
  for (const scope of ['@x402', '@modelcontextprotocol'])
    await mkdir(join(folder, name, 'node_modules', scope), { recursive: true })
  for (const dependency of [...Object.keys(sdkPackageJson.dependencies), ...dependencies]) {
    const from = join(modules, dependency === 'viem' ? viem : dependency)
    await symlink(from, join(folder, name, 'node_modules', dependency))
  }
  return installed
}
