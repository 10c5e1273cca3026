import { writeFileSync } from 'node:fs'
import type { SerializedError } from 'vitest'
import type { Reporter, TestModule } from 'vitest/node'
import type { Counts } from '../../tools/tiers/counts.ts'

/** Writes the counts of a run to the file that TIER_COUNTS names, for tools/runTests.ts. */
export default class TierReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[]): void {
    const file = process.env.TIER_COUNTS
    if (file !== undefined) writeFileSync(file, JSON.stringify(countTests(modules, errors)))
  }
}

/**
 * Counts tests by their result. A file that fails outside its tests (on import or in a hook) counts as one failure. Each error
 * that no test caught also counts as one.
 */
function countTests(modules: readonly TestModule[], errors: readonly unknown[]): Counts {
  const counts = { passed: 0, failed: errors.length, skipped: 0 }
  for (const module of modules) {
    let failed = 0
    for (const test of module.children.allTests()) {
      const { state } = test.result()
      if (state === 'passed') counts.passed++
      else if (state === 'failed') failed++
      else counts.skipped++
    }
    if (failed === 0 && module.state() === 'failed') failed = 1
    counts.failed += failed
  }
  return counts
}
