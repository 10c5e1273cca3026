import { defineConfig } from 'hardhat/config'
import config from '../hardhat.config.ts'

/**
 * Hardhat's configuration for checkCoverage.ts. The instrumented contracts stand apart: in one folder each build would
 * throw away the other's, and so they can be compiled at the same time.
 */
export default defineConfig({
  ...config,
  paths: { ...config.paths, artifacts: 'cache/coverage/artifacts', cache: 'cache/coverage/cache' },
})
