import { privateKeyToAddress } from 'viem/accounts'
import { expect, test } from 'vitest'
import { openAccounts, readKeeperEnvironment } from './config.ts'

const key = `0x${'11'.repeat(32)}` as const
const env = {
  DATABASE_URL: 'postgres://localhost/x',
  NETWORKS: 'localhost',
  RPC_URL_LOCALHOST: 'http://127.0.0.1:8545',
  PLATFORM_WALLET: `0x${'ab'.repeat(20)}`,
  KEEPER_PRIVATE_KEYS: key,
}

test('default: reads the settings, and uses defaults for settings that are not set', () => {
  expect(readKeeperEnvironment(env)).toMatchObject({
    wallets: { privateKeys: [key], signer: null },
    platformWallets: [`0x${'ab'.repeat(20)}`],
    port: 4021,
    settings: {
      triggers: {
        amount: 1_000_000n,
        count: 100,
        timeMs: 3_600_000,
        highValue: 10_000_000n,
        raisedAmount: 2_000_000n,
        raisedCount: 150,
        raisedAboveCost: 20_000n,
      },
      priorityFeePerGas: null,
      rebroadcastAfterMs: 6_000,
      replaceAfterMs: 30_000,
    },
  })
})

test('args: reads thresholds and fees', () => {
  const config = readKeeperEnvironment({
    ...env,
    TRIGGER_TIME_SECONDS: '5',
    TRIGGER_AMOUNT_USDC: '0.5',
    TRIGGER_COUNT: '7',
    REPLACE_AFTER_MS: '1000',
    PRIORITY_FEE_WEI: '0',
    ETH_USD: '1500',
    KEEPER_PRIVATE_KEYS: `${key}, ${'22'.repeat(32)}`,
  })
  expect(config.settings.triggers).toMatchObject({
    timeMs: 5_000,
    amount: 500_000n,
    raisedAmount: 1_000_000n,
    count: 7,
    raisedCount: 11,
  })
  expect(config.settings).toMatchObject({
    priorityFeePerGas: 0n,
    gasTokenUsd: 1_500_000_000n,
    rebroadcastAfterMs: 200,
    replaceAfterMs: 1_000,
  })
  expect(config.wallets.privateKeys).toHaveLength(2)
})

test.each([
  // Batching can't be switched off (conformance 8.1-9).
  [
    'TRIGGER_AMOUNT_USDC',
    '0',
    'TRIGGER_AMOUNT_USDC: expected a decimal amount with at most 6 decimals, like 12.50, and at least 0.01, got "0"',
  ],
  ['TRIGGER_AMOUNT_USDC', '0.009999', 'and at least 0.01, got "0.009999"'],
  ['TRIGGER_COUNT', '1', 'TRIGGER_COUNT: expected a whole number from 2'],
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
    'PLATFORM_WALLET: expected an address, lower-case or with a correct checksum, got "0x12"',
  ],
])('error: rejects an invalid %s', (name, value, message) => {
  expect(() => readKeeperEnvironment({ ...env, [name]: value })).toThrow(message)
})

const remote = `0x${'cd'.repeat(20)}`
const signer = { KEEPER_SIGNER_URL: 'https://user:secret@signer.example', KEEPER_SIGNER_ADDRESSES: remote }

const open = (change: Record<string, string>) =>
  openAccounts(readKeeperEnvironment({ ...env, ...signer, ...change }).wallets)

test('args: opens the wallets of a remote signer, whether or not private keys are set as well', () => {
  expect(open({}).map(({ address }) => address)).toEqual([privateKeyToAddress(key), remote])
  expect(open({ KEEPER_PRIVATE_KEYS: '' })).toMatchObject([{ address: remote, source: 'custom' }])
  const named = 'localhost=http://127.0.0.1:9000/?a=b,base=https://b.example'
  expect(open({ KEEPER_SIGNER_URL: named })).toHaveLength(2)
})

test.each<[Record<string, string>, string]>([
  [{ KEEPER_SIGNER_ADDRESSES: '' }, 'KEEPER_SIGNER_ADDRESSES: expected an address'],
  [{ KEEPER_SIGNER_URL: '' }, 'KEEPER_SIGNER_URL: expected an http(s) URL, or one for each network'],
  [
    { KEEPER_SIGNER_URL: 'base=https://signer.example' },
    'KEEPER_SIGNER_URL: expected a signer for localhost too, got none',
  ],
  [{ KEEPER_SIGNER_URL: 'moon=https://a.example' }, 'got something else'],
  [{ KEEPER_SIGNER_URL: 'https://a.example,https://b.example' }, 'got something else'],
  [
    { KEEPER_SIGNER_ADDRESSES: privateKeyToAddress(key) },
    'addresses whose private keys are not set in this process',
  ],
  [{ KEEPER_SIGNER_CA_FILE: '/nowhere' }, 'KEEPER_SIGNER_CA_FILE: expected the path of a readable file'],
  [
    { KEEPER_SIGNER_CERT_FILE: import.meta.filename },
    'KEEPER_SIGNER_KEY_FILE: expected the path of a PEM file',
  ],
  [
    { KEEPER_SIGNER_CERT_FILE: import.meta.filename, KEEPER_SIGNER_KEY_FILE: import.meta.filename },
    'KEEPER_SIGNER_CERT_FILE: expected PEM files of a certificate and its key',
  ],
])('error: rejects a signer with %o', (change, message) => {
  expect(() => open(change)).toThrow(message)
})

test('error: an error message never contains a private key', () => {
  const wrong = key.slice(0, -1)
  expect(() => readKeeperEnvironment({ ...env, KEEPER_PRIVATE_KEYS: wrong })).toThrow(
    expect.not.objectContaining({ message: expect.stringContaining(wrong) }),
  )
})

test('error: if no variable is set, the error message names all required variables', () => {
  expect(() => readKeeperEnvironment({})).toThrow(
    /^DATABASE_URL: .*\nNETWORKS: .*\nKEEPER_PRIVATE_KEYS: .*\nPLATFORM_WALLET: .*$/,
  )
})
