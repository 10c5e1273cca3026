import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { generators } from './generate.ts'

test.each(Object.entries(generators))(
  'behavior: %s equals the generator’s output',
  async (file, generate) => {
    const committed = await readFile(new URL(file, import.meta.url), 'utf8')
    expect(JSON.parse(committed)).toEqual(await generate())
  },
)
