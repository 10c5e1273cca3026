import { defineConfig } from 'hardhat/config'
import config from '../hardhat.config.ts'

/**
 * Hardhat's configuration for checkCoverage.ts. The instrumented contracts have folders of their own: in a shared one
 * each build would delete the other's output, and the two could not compile at the same time.
 */
export default defineConfig({
  ...config,
  paths: { ...config.paths, artifacts: 'cache/coverage/artifacts', cache: 'cache/coverage/cache' },
})
