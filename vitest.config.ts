import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import StackFirst from './test/support/stackFirst.ts'

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url))

// Tests start hundreds of our processes. Node compiles their code once and reads it from this cache afterwards.
process.env.NODE_COMPILE_CACHE ??= here('node_modules/.cache/compiled')

const shared = {
  pool: 'forks',
  // Starting a worker and importing the shared modules takes longer than the tests of most files.
  isolate: false,
  // A stack has eight processes, which poll as long as they run. On two cores, six files at a time were slower than three, and with
  // four, tests exceeded their time limits.
  maxWorkers: 3,
  // These limits catch a test that hangs; they don't assert speed.
  testTimeout: 300_000,
  hookTimeout: 300_000,
  expect: { poll: { timeout: 120_000 } },
} as const

/** Resolves the packages that users install, because the examples import them, to our sources. */
const asInstalled = {
  resolve: {
    alias: { 'tollkeeper/testing': here('apps/devstack/dev/startTollkeeper.ts') },
    conditions: ['@tollkeeper/source'],
  },
  // Node adds its own conditions. With 'import' among these, it would apply to require() as well.
  ssr: { resolve: { conditions: ['@tollkeeper/source', 'module', 'node'] } },
}

/** Plays that check how long honest parties wait. Their stack has ten processes, so on two cores no other file runs at the same time. */
const alone = 'test/chaos/hostile/**/*.test.ts'

// A tier (tools/runTests.ts) runs the projects whose names begin with its own.
export default defineConfig({
  test: {
    // Starts one Postgres server for all files.
    globalSetup: ['test/support/globalSetup.ts'],
    reporters: ['default', './test/support/timesReporter.ts', './test/support/tierReporter.ts'],
    sequence: { sequencer: StackFirst },
    projects: [
      {
        ...asInstalled,
        test: {
          ...shared,
          name: 'default',
          include: [
            'test/stack/**/*.test.ts',
            '{contracts,sdk,packages,api,keeper,indexer,apps,tools,test/{house,internet,support,vectors}}/**/*.test.ts',
          ],
          exclude: ['**/node_modules/**', 'sdk/dist/**', '**/*.system.test.ts'],
        },
      },
      {
        ...asInstalled,
        test: {
          ...shared,
          name: 'system',
          include: [
            'test/{e2e,crash,chaos}/**/*.test.ts',
            'bench/**/*.test.ts',
            // Each of these starts a whole stack.
            'examples/**/*.test.ts',
            '**/*.system.test.ts',
          ],
          exclude: ['**/node_modules/**', 'sdk/dist/**', alone],
        },
      },
      {
        ...asInstalled,
        test: { ...shared, name: 'system-alone', include: [alone], sequence: { groupOrder: 1 } },
      },
      {
        test: { ...shared, name: 'compat', include: ['compat/*.test.ts'] },
      },
    ],
  },
})
