import { appendFile, cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { bundlePonder, hashSources } from '../bundlePonder.ts'

test('behavior: a patch to one of Ponder’s files causes a new bundle', async () => {
  const installed = fileURLToPath(new URL('../../', import.meta.resolve('ponder')))
  const copy = await mkdtemp(join(tmpdir(), 'ponder-'))
  try {
    await cp(join(installed, 'dist/esm'), join(copy, 'dist/esm'), { recursive: true })
    expect(await hashSources(copy)).toBe(await hashSources(installed))
    await appendFile(join(copy, 'dist/esm/index.js'), '\n// patched')
    expect(await hashSources(copy)).not.toBe(await hashSources(installed))
  } finally {
    await rm(copy, { recursive: true })
  }
})

test('behavior: a process looks for the bundle only once', async () => {
  const [first, second] = [bundlePonder(), bundlePonder()]
  expect(second).toBe(first)
  await first
})
