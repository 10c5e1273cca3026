import { committedDeployments, commonDeployment } from '@tollkeeper/sdk/protocol/deployments'
import { networks as known } from '@tollkeeper/sdk/protocol/networks'
import { describe, expect, test } from 'vitest'
import { readIndependentSettings, strangersLimits } from './config.ts'

const env = {
  KEEPER_GATEWAY_URL: 'https://gateway.example',
  KEEPER_PRIVATE_KEYS: `0x${'11'.repeat(32)}`,
  NETWORKS: 'base-sepolia',
  RPC_URL_BASE_SEPOLIA: 'https://node.example',
}

describe('a keeper without a database', () => {
  test('default: needs no record of the deployment, because the addresses are the same on every network', () => {
    const { networks } = readIndependentSettings(env)
    expect(committedDeployments['base-sepolia']).toBeUndefined()
    expect(networks.map(({ deployment }) => deployment)).toEqual([commonDeployment(known['base-sepolia'])])
    expect(commonDeployment(known['base-sepolia']).usdc).toBe(known['base-sepolia'].usdc)
  })

  test('behavior: limits its gas on test networks as well', () => {
    const { settings } = readIndependentSettings(env)
    const limits = strangersLimits(known['base-sepolia'], settings)
    expect(limits).toMatchObject({ gasPerFee: 10n, dailyBudget: 5_000_000n })
    const own = readIndependentSettings({ ...env, MAX_GAS_PER_FEE: '3', KEEPER_DAILY_BUDGET_USD: '1' })
    expect(strangersLimits(known['base-sepolia'], own.settings)).toMatchObject({
      gasPerFee: 3n,
      dailyBudget: 1_000_000n,
    })
  })
})
