import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Reporter, TestModule } from 'vitest/node'
import { root } from './processes.ts'

const file = 'reports/testTimes.txt'
const shown = 15

/** Writes how long each test file took, the slowest first, and prints those on top. */
export default class TimesReporter implements Reporter {
  async onTestRunEnd(modules: readonly TestModule[]): Promise<void> {
    if (modules.length < 2) return
    const lines = modules
      .map((module) => ({ name: module.relativeModuleId, seconds: secondsOf(module) }))
      .sort((one, other) => other.seconds - one.seconds)
      .map(({ name, seconds }) => `${seconds.toFixed(1).padStart(7)} s  ${name}`)
    await mkdir(join(root, 'reports'), { recursive: true })
    await writeFile(join(root, file), `${lines.join('\n')}\n`)
    process.stdout.write(`\n Time by file (all of them: ${file})\n${lines.slice(0, shown).join('\n')}\n`)
  }
}

/** Hooks included, which start the stacks. */
function secondsOf(module: TestModule): number {
  const { collectDuration, duration, setupDuration } = module.diagnostic()
  return (collectDuration + setupDuration + duration) / 1_000
}
