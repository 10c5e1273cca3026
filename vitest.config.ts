import { defineConfig } from 'vitest/config'

// On CI's shared machine a test gets a second try; the report names each that needed it. At home a flake fails.
const retry = process.env.CI ? 1 : 0

// A stack is eight processes that share two cores: its tests run one file after the other, and nothing beside them.
const system = {
  maxWorkers: 1,
  retry,
  testTimeout: 120_000,
  hookTimeout: 180_000,
  sequence: { groupOrder: 1 },
}

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['{sdk,api,keeper,indexer,cli,scripts,examples,test/support,test/vectors}/**/*.test.ts'],
          exclude: ['**/node_modules/**', 'sdk/dist/**'],
          globalSetup: ['test/support/globalSetup.ts'],
          pool: 'forks',
          maxWorkers: 2,
          retry,
          // Timeouts catch a hang; they say nothing of speed.
          testTimeout: 60_000,
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          ...system,
          name: 'system',
          include: ['test/{e2e,crash,chaos}/**/*.test.ts'],
          globalSetup: ['test/support/globalSetup.ts'],
          pool: 'forks',
        },
      },
    ],
  },
})
