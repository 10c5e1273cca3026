import { defineConfig } from 'hardhat/config'
import config, { compiler, coverageArtifacts } from '../hardhat.config.ts'

// The instrumented code is never deployed, so compile it quickly: the optimizer runs its steps once instead of in loops, and doesn't optimize
// constants. Some steps are needed, because without optimization the compiler would have more code to assemble, which takes longer.
const details = {
  yul: true,
  yulDetails: { optimizerSteps: 'dhfoDgvulfnTUtnIfTUjmul:fDnTOcmu' },
  constantOptimizer: false,
}

/**
 * Hardhat's configuration for checkCoverage.ts. The instrumented contracts have separate folders: in a shared folder, this build and the normal build
 * would delete each other's output, and couldn't run at the same time.
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
