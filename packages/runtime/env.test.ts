import { expect, test } from 'vitest'
import { ConfigError, findUnread, parseText, readVariable, requireTogether, requireVariable } from './env.ts'
import { integer } from './parsers.ts'

test('default: returns a value, a default, or null, and treats an empty or blank variable as unset', () => {
  expect(readVariable({ API_PORT: ' 80 ' }, 'API_PORT')).toBe(80)
  expect(readVariable({ API_PORT: '' }, 'API_PORT')).toBe(4020)
  expect(readVariable({ PRIORITY_FEE_WEI: ' ' }, 'PRIORITY_FEE_WEI')).toBeNull()
  expect(readVariable({ PUBLIC_QUEUE: 'off' }, 'PUBLIC_QUEUE')).toBe(false)
})

test('args: reads lists with commas or white space', () => {
  const [a, b] = ['11', '22'].map((byte) => `0x${byte.repeat(20)}`)
  expect(readVariable({ PLATFORM_WALLETS: `${a}, ${b},\n${a}` }, 'PLATFORM_WALLETS')).toEqual([a, b])
  expect(readVariable({ NETWORKS: 'base,,base-sepolia' }, 'NETWORKS')).toEqual(['base', 'base-sepolia'])
})

test.each([
  ['PLATFORM_WALLET', '0x71C7656EC7ab88b098defB751B7401B5f6d8976f'],
  ['KEEPER_PRIVATE_KEYS', '00'.repeat(32)],
  ['KEEPER_PRIVATE_KEYS', 'ff'.repeat(32)],
  ['MACAROON_SECRETS', `a:${'ab'.repeat(32)},a:${'cd'.repeat(32)}`],
  ['TRIGGER_HIGH_VALUE_USDC', '0.999999'],
  ['PRIORITY_FEE_WEI', '1e9'],
] as const)('error: rejects %s=%s', (name, text) => {
  expect(() => readVariable({ [name]: text }, name)).toThrow(ConfigError)
})

test.each(['-1', '1.5', 'many', '10001'])(
  'error: rejects %s, which is not a whole number up to 10000',
  (text) => {
    expect(() => parseText('--payments', text, integer(0, 10_000))).toThrow(
      `--payments: expected a whole number from 0 to 10000, got "${text}"`,
    )
  },
)

test('error: reports a missing required variable', () => {
  expect(() => requireVariable({ DATABASE_URL: '' }, 'DATABASE_URL')).toThrow(
    'DATABASE_URL: expected postgres://user:password@host:port/name, but it is not set',
  )
})

test('behavior: finds typing errors and removed variables, and ignores other programs’ variables', () => {
  expect(
    findUnread({
      PRIORITY_FEE_WIE: '1',
      TRIGER_COUNT: '2',
      RPC_URL_BASES: 'x',
      NETWORK: 'base',
      PATH: '/',
      API_PORT: '1',
      SUBMIT_RATE_LIMIT: '600',
      FACILITATOR_FEE: ' ',
    }),
  ).toEqual([
    { name: 'PRIORITY_FEE_WIE', hint: 'is it PRIORITY_FEE_WEI?' },
    { name: 'TRIGER_COUNT', hint: 'is it TRIGGER_COUNT?' },
    { name: 'RPC_URL_BASES', hint: 'is it RPC_URL_BASE?' },
    { name: 'NETWORK', hint: 'is it NETWORKS?' },
    { name: 'SUBMIT_RATE_LIMIT', hint: 'removed: the limit is 60 submissions a minute' },
  ])
  expect(findUnread({ API_PORT_8080_TCP: 'tcp://10.0.0.1', npm_config_cache: 'x', SHELL: 'sh' })).toEqual([])
})

test('behavior: lists each missing variable once in a single error', () => {
  const missing = () =>
    requireTogether(
      () => requireVariable({}, 'DATABASE_URL'),
      () => requireVariable({}, 'PLATFORM_WALLET'),
      () => requireVariable({}, 'DATABASE_URL'),
    )
  expect(missing).toThrow(ConfigError)
  expect(missing).toThrow(
    /^DATABASE_URL: expected .*, but it is not set\nPLATFORM_WALLET: expected .*, but it is not set$/,
  )
  expect(() => requireTogether(() => 1)).not.toThrow()
  expect(() =>
    requireTogether(() => {
      throw new TypeError('another')
    }),
  ).toThrow('another')
})
