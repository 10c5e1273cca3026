import { expect, test } from 'vitest'
import { readKeeperConfig } from './config.ts'

const key = `0x${'11'.repeat(32)}`
const env = {
  DATABASE_URL: 'postgres://localhost/x',
  NETWORKS: 'localhost',
  RPC_URL_LOCALHOST: 'http://127.0.0.1:8545',
  PLATFORM_WALLET: `0x${'ab'.repeat(20)}`,
  KEEPER_PRIVATE_KEYS: key,
}

test('default', () => {
  expect(readKeeperConfig(env)).toMatchObject({
    privateKeys: [key],
    platformWallets: [`0x${'ab'.repeat(20)}`],
    port: 4021,
    settings: {
      triggers: {
        ...{ amount: 1_000_000n, count: 100, timeMs: 3_600_000, highValue: 10_000_000n },
        ...{ raisedAmount: 2_000_000n, raisedCount: 150, raisedAboveCost: 20_000n },
      },
      priorityFeePerGas: null,
    },
  })
})

test('args: thresholds and fees', () => {
  const config = readKeeperConfig({
    ...env,
    TRIGGER_TIME_SECONDS: '5',
    TRIGGER_AMOUNT_USDC: '0.5',
    PRIORITY_FEE_WEI: '0',
    ETH_USD: '1500',
    KEEPER_PRIVATE_KEYS: `${key}, ${'22'.repeat(32)}`,
  })
  expect(config.settings.triggers).toMatchObject({ timeMs: 5_000, amount: 500_000n })
  expect(config.settings).toMatchObject({ priorityFeePerGas: 0n, gasTokenUsd: 1_500_000_000n })
  expect(config.privateKeys).toHaveLength(2)
})

test.each([
  // Batching can't be switched off (SPEC 8.1).
  [
    'TRIGGER_AMOUNT_USDC',
    '0',
    'TRIGGER_AMOUNT_USDC: expected a decimal amount with at most 6 decimals, like 12.50, and at least 0.01, got "0"',
  ],
  ['TRIGGER_RAISED_AMOUNT_USDC', '0.009999', 'and at least 0.01, got "0.009999"'],
  ['TRIGGER_COUNT', '1', 'TRIGGER_COUNT: expected a whole number from 2'],
  ['TRIGGER_RAISED_COUNT', '0', 'TRIGGER_RAISED_COUNT: expected a whole number from 2'],
  ['DATABASE_URL', '', 'DATABASE_URL: expected postgres://user:password@host:port/name'],
  ['KEEPER_PRIVATE_KEYS', '', 'KEEPER_PRIVATE_KEYS: expected a private key'],
  ['KEEPER_PORT', '99999', 'KEEPER_PORT: expected a port number (0: any free one), got "99999"'],
  [
    'TRIGGER_TIME_SECONDS',
    '3601',
    'TRIGGER_TIME_SECONDS: expected a whole number from 1 to 3600, got "3601"',
  ],
  [
    'PLATFORM_WALLET',
    '0x12',
    'PLATFORM_WALLET: expected an address, lower-case or rightly checksummed, got "0x12"',
  ],
])('error: %s', (name, value, message) => {
  expect(() => readKeeperConfig({ ...env, [name]: value })).toThrow(message)
})

test('error: a key is never repeated', () => {
  const wrong = key.slice(0, -1)
  expect(() => readKeeperConfig({ ...env, KEEPER_PRIVATE_KEYS: wrong })).toThrow(
    expect.not.objectContaining({ message: expect.stringContaining(wrong) }),
  )
})
