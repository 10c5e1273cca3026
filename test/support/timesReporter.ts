import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Reporter, TestModule } from 'vitest/node'
import { root } from './processes.ts'

const folder = 'reports/testTimes'
const shown = 15

/** Prints how long the slowest test files took, and keeps the times of all files of a run in a file. */
export default class TimesReporter implements Reporter {
  readonly #startedAt = new Date()

  async onTestRunEnd(modules: readonly TestModule[]): Promise<void> {
    if (modules.length < 2) return
    const lines = modules
      .map((module) => ({ name: module.relativeModuleId, seconds: secondsOf(module) }))
      .sort((one, other) => other.seconds - one.seconds)
      .map(({ name, seconds }) => `${seconds.toFixed(1).padStart(7)} s  ${name}`)
    const seconds = (Date.now() - this.#startedAt.getTime()) / 1_000
    const file = `${folder}/${this.#startedAt.toISOString().slice(0, 19).replaceAll(':', '.')}.txt`
    await mkdir(join(root, folder), { recursive: true })
    await writeFile(
      join(root, file),
      `${seconds.toFixed(1).padStart(7)} s  all ${modules.length} files\n${lines.join('\n')}\n`,
    )
    process.stdout.write(`\n Time by file (all of them: ${file})\n${lines.slice(0, shown).join('\n')}\n`)
  }
}

/** Returns the time of a file, including the hooks that start the stacks. */
function secondsOf(module: TestModule): number {
  const { collectDuration, duration, setupDuration } = module.diagnostic()
  return (collectDuration + setupDuration + duration) / 1_000
}
