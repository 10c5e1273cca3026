import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { renderSurface, surfaceFile } from './sdkSurface.ts'

test('sdk/surface.md lists everything that the entry points export', async () => {
  const committed = await readFile(join(import.meta.dirname, '..', surfaceFile), 'utf8')
  expect(await renderSurface(), 'run npm run generate, and add what changed to docs/upgrading.md').toBe(
    committed,
  )
})
