import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { generators } from './generate.ts'

test.each(Object.entries(generators))('behavior: %s is what its generator makes', async (file, generate) => {
  const committed = await readFile(new URL(file, import.meta.url), 'utf8')
  expect(JSON.parse(committed)).toEqual(await generate())
})
