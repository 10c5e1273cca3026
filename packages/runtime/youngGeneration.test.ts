import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

/** Returns the size of the young generation in MB, in a process that has kept about 1 MB of small objects. */
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

test('behavior: lets the young generation grow to its full size after little work, unlike V8’s default', async () => {
  const module = new URL('./youngGeneration.ts', import.meta.url)
  const [atOnce, byItself] = await Promise.all([
    sizeAfterLoad(`import { growYoungGenerationAtOnce } from '${module}'; growYoungGenerationAtOnce()`),
    sizeAfterLoad(''),
  ])
  expect(atOnce).toBeGreaterThanOrEqual(16)
  expect(byItself).toBeLessThan(atOnce)
})

/** Runs a process that creates some garbage. Returns how many garbage collections there were, and how many tasks took part in them. */
async function countTasks(before: string) {
  const program = `
    ${before}
    let kept = []
    for (let i = 0; i < 500_000; i++) {
      kept.push({ number: i, numbers: [i] })
      if (kept.length > 50_000) kept = []
    }`
  const flags = ['--trace-parallel-scavenge', '--trace-gc', '--input-type=module']
  const { stdout } = await promisify(execFile)(process.execPath, [...flags, '--eval', program])
  const count = (pattern: RegExp) => stdout.match(pattern)?.length ?? 0
  return { tasks: count(/scavenge\[/g), collections: count(/ms: Scavenge /g) }
}

test('behavior: uses one task to collect the young generation', async () => {
  const module = new URL('./youngGeneration.ts', import.meta.url)
  const call = 'collectYoungGenerationOnOneThread'
  const { tasks, collections } = await countTasks(`import { ${call} } from '${module}'; ${call}()`)
  expect(collections).toBeGreaterThan(0)
  expect(tasks).toBe(collections)
})
