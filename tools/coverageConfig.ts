import { defineConfig } from 'hardhat/config'
import config, { compiler, coverageArtifacts } from '../hardhat.config.ts'

// What is measured here is never deployed: the optimizer's steps run once instead of in loops, and constants stay as they
// are. Without the steps there would be more code to assemble, which takes longer.
const details = {
  yul: true,
  yulDetails: { optimizerSteps: 'dhfoDgvulfnTUtnIfTUjmul:fDnTOcmu' },
  constantOptimizer: false,
}

/**
 * Hardhat's configuration for checkCoverage.ts. The instrumented contracts have folders of their own: in a shared one
 * each build would delete the other's output, and the two could not compile at the same time.
 */
export default defineConfig({
  ...config,
  solidity: {
    compilers: [
      {
        ...compiler,
        settings: { ...compiler.settings, optimizer: { ...compiler.settings.optimizer, details } },
      },
    ],
  },
  coverage: { skipFiles: ['contracts/test/**'] },
  paths: { ...config.paths, artifacts: coverageArtifacts, cache: 'cache/coverage/cache' },
})
