import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url))

// Tests start hundreds of our processes: what Node compiled of them once it needn't compile again.
process.env.NODE_COMPILE_CACHE ??= here('node_modules/.cache/compiled')

const shared = {
  pool: 'forks',
  // Starting a worker and importing anew what all share takes longer than most files' tests.
  isolate: false,
  // A stack is eight processes, which poll as long as it stands: six files at once on two cores were slower than three, and with
  // four, tests missed their limits.
  maxWorkers: 3,
  // Limits on waiting catch a hang; they say nothing of speed.
  testTimeout: 300_000,
  hookTimeout: 300_000,
  expect: { poll: { timeout: 120_000 } },
} as const

export default defineConfig({
  test: {
    // One Postgres for all.
    globalSetup: ['test/support/globalSetup.ts'],
    reporters: ['default', './test/support/timesReporter.ts'],
    // Vitest takes them by name: the small files of `unit` fill the gaps that the long ones of `system` leave at the end.
    projects: [
      {
        test: {
          ...shared,
          name: 'system',
          include: ['test/{e2e,crash,chaos}/**/*.test.ts', 'bench/**/*.test.ts'],
        },
      },
      {
        // Examples import the packages that users install.
        resolve: {
          alias: { 'tollkeeper/testing': here('apps/devstack/dev/startTollkeeper.ts') },
          conditions: ['@tollkeeper/source'],
        },
        // Node's own conditions come by themselves: 'import' among these would hold for require() as well.
        ssr: { resolve: { conditions: ['@tollkeeper/source', 'module', 'node'] } },
        test: {
          ...shared,
          name: 'unit',
          include: [
            '{contracts,sdk,packages,api,keeper,indexer,apps,tools,examples,test/{house,support,vectors}}/**/*.test.ts',
          ],
          exclude: ['**/node_modules/**', 'sdk/dist/**'],
        },
      },
    ],
  },
})
