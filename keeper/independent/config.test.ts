import { committedDeployments, commonDeployments } from '@tollkeeper/sdk/protocol/deployments'
import { describe, expect, test } from 'vitest'
import { readIndependentConfig, strangersLimits } from './config.ts'

const env = {
  KEEPER_GATEWAY_URL: 'https://gateway.example',
  KEEPER_PRIVATE_KEYS: `0x${'11'.repeat(32)}`,
  NETWORKS: 'base-sepolia',
  RPC_URL_BASE_SEPOLIA: 'https://node.example',
}

describe('a keeper without a database', () => {
  test('default: needs no record of the deployment, because the addresses are the same on every network', () => {
    const { networks } = readIndependentConfig(env)
    expect(committedDeployments['base-sepolia']).toBeUndefined()
    expect(networks.map(({ deployment }) => deployment)).toEqual([commonDeployments['base-sepolia']])
    const { batchSettlement } = commonDeployments['base-sepolia'] ?? {}
    expect(batchSettlement).toBe(commonDeployments.base?.batchSettlement)
  })

  test('behavior: keeps its limits on gas on test networks', () => {
    const { settings } = readIndependentConfig(env)
    const limits = strangersLimits({ name: 'base-sepolia' }, settings)
    expect(limits).toMatchObject({ gasPerFee: 10n, dailyBudget: 5_000_000n })
    const own = readIndependentConfig({ ...env, MAX_GAS_PER_FEE: '3', KEEPER_DAILY_BUDGET_USD: '1' })
    expect(strangersLimits({ name: 'base-sepolia' }, own.settings)).toMatchObject({
      gasPerFee: 3n,
      dailyBudget: 1_000_000n,
    })
  })
})
