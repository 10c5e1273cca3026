import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import type { Check } from './check.ts'
import { examineGas } from './examineGas.ts'
import type { ExaminedNetwork } from './networks.ts'

/** Gas of a full batch, in wei at 1 gwei per unit. */
const batchCost = 15_500_000n * 1_000_000_000n

/** Examines one wallet with this balance. */
async function examine(balance: bigint): Promise<Check[]> {
  const client = { getBalance: async () => balance, getGasPrice: async () => 1_000_000_000n }
  const networks = [{ network: networkByName('base'), client }] as unknown as ExaminedNetwork[]
  const checks: Check[] = []
  const env = { KEEPER_PRIVATE_KEYS: `0x${'1'.repeat(64)}` }
  for await (const check of examineGas(env, networks)) checks.push(check)
  return checks
}

test.each([
  ['reports ok if a wallet has gas for 20 batches', 20n * batchCost, 'ok'],
  ['warns if a wallet has gas for less than 20 batches', 20n * batchCost - 1n, 'warn'],
  ['warns if a wallet has gas for one batch', batchCost, 'warn'],
  ['fails if a wallet has gas for less than one batch', batchCost - 1n, 'fail'],
])('default: %s', async (_, balance, status) => {
  expect(await examine(balance)).toMatchObject([{ status }])
})
