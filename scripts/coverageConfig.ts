import { defineConfig } from 'hardhat/config'
import config, { compiler } from '../hardhat.config.ts'

// The optimizer's default sequence runs its steps in loops until nothing gets better, which takes most of the compiler's
// time; the code that is measured here is never deployed. Once through, coverage takes 105 s of CPU instead of 205.
const details = { yul: true, yulDetails: { optimizerSteps: 'dhfoDgvulfnTUtnIfTUjmul:fDnTOcmu' } }

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
  paths: { ...config.paths, artifacts: 'cache/coverage/artifacts', cache: 'cache/coverage/cache' },
})
