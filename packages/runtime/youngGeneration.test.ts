import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

/** The size of the young generation, MB, in a process that has kept about 1 MB of small objects. */
async function sizeAfterLoad(before: string): Promise<number> {
  const program = `
    import v8 from 'node:v8'
    ${before}
    const kept = []
    for (let i = 0; i < 10_000; i++) kept.push({ text: 'kept ' + i, numbers: [i, i, i] })
    const space = v8.getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space')
    console.log(kept.length > 0 && space.space_size / 1024 ** 2)`
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', program])
  return Number(stdout)
}

test('behavior: the young generation is at its full size after little work, which it is not by itself', async () => {
  const module = new URL('./youngGeneration.ts', import.meta.url)
  const [atOnce, byItself] = await Promise.all([
    sizeAfterLoad(`import { growYoungGenerationAtOnce } from '${module}'; growYoungGenerationAtOnce()`),
    sizeAfterLoad(''),
  ])
  expect(atOnce).toBeGreaterThanOrEqual(16)
  expect(byItself).toBeLessThan(atOnce)
})
