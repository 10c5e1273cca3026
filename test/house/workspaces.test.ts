import { readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { readManifests, readPins } from '../../tools/build/workspaces.ts'
import { root } from '../support/processes.ts'

test('behavior: every package has one exact version across all workspaces', async () => {
  const pins = await readPins(root)
  expect(Object.keys(pins).length).toBeGreaterThan(50)
  // `npm:viem@2.21.0` is a second version under another name.
  const exact = /^(npm:.+@)?\d+\.\d+\.\d+(-[\w.-]+)?$/
  expect(Object.entries(pins).filter(([, version]) => !exact.test(version))).toEqual([])
})

test('behavior: overrides force other packages to the version that we use', async () => {
  const pins = await readPins(root)
  const { overrides } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
  // npm 10 resolves `$zod` only if the root itself depends on zod, so the version is repeated.
  const { zod } = overrides.ponder.abitype
  expect([zod, overrides['viem-lowest'].abitype.zod]).toEqual([pins.zod, pins.zod])
})

test('behavior: workspaces depend on each other’s local versions, never on a published one', async () => {
  const manifests = [...(await readManifests(root)).values()]
  const own = manifests.flatMap(({ dependencies, devDependencies }) =>
    Object.entries({ ...dependencies, ...devDependencies }).filter(([name]) =>
      name.startsWith('@tollkeeper/'),
    ),
  )
  expect(own.length).toBeGreaterThan(20)
  expect(own.filter(([, version]) => version !== '*')).toEqual([])
})

test('behavior: the image installs from the package.json of every workspace', async () => {
  const dockerfile = await readFile(join(root, 'Dockerfile'), 'utf8')
  const folders = [...(await readManifests(root)).keys()].map(dirname).filter((folder) => folder !== '.')
  expect(folders).toContain('packages/ledger')
  const missing = folders.filter((folder) => !dockerfile.includes(`COPY ${folder}/package.json ${folder}/\n`))
  expect(missing).toEqual([])
})
