import { describe, expect, test } from 'vitest'
import { readApiConfig } from './config.ts'

const secret = 'ab'.repeat(32)
const good = {
  DATABASE_URL: 'postgres://user:hunter2@localhost:5432/tollkeeper',
  NETWORKS: 'localhost',
  RPC_URL_LOCALHOST: 'http://127.0.0.1:8545',
  PLATFORM_WALLET: '0x71C7656EC7ab88b098defB751B7401B5f6d8976F',
  MACAROON_SECRETS: `a:${secret}, b:${'cd'.repeat(32)}`,
}

test('default: reads the required variables, and uses defaults for the optional variables', () => {
  const config = readApiConfig(good)
  expect(config).toMatchObject({ host: '127.0.0.1', port: 4020, logLevel: 'info' })
  expect(config.gateway).toMatchObject({
    issuer: 'http://127.0.0.1:4020',
    platformWallet: '0x71c7656ec7ab88b098defb751b7401b5f6d8976f',
    feeSchedule: 'tiered',
    checkBalance: true,
    payerCaps: { payer: null, newPayer: null },
  })
  expect(config.gateway.macaroonSecrets.map(({ kid }) => kid)).toEqual(['a', 'b'])
})

test('args: parses amounts, URLs and times', () => {
  const { gateway } = readApiConfig({
    ...good,
    PUBLIC_URL: 'https://pay.example/x402/',
    NEW_PAYER_UNSETTLED_CAP_USDC: '2.5',
    MINIMUM_PRICES_USDC: 'localhost:0.01',
    MACAROON_NOT_BEFORE: '2026-11-21T13:00:00Z',
    RATE_LIMITS: 'off',
  })
  expect(gateway).toMatchObject({
    issuer: 'https://pay.example/x402',
    payerCaps: { newPayer: 2_500_000n },
    minimumPrices: { localhost: 10_000n },
    macaroonNotBefore: 1_795_266_000,
    rateLimits: null,
  })
})

test('args: TABS: accepts “on”, “off”, or the number of hours for which a tab within earned credit may stay open', () => {
  const hours = (TABS?: string) => readApiConfig({ ...good, ...(TABS && { TABS }) }).gateway.tabs?.earnedHours
  expect([undefined, 'on', 'off', '1', '24'].map(hours)).toEqual([1, 1, undefined, 1, 24])
  for (const value of ['0', '25', '1.5', 'yes']) expect(() => hours(value)).toThrow('from 1 to 24')
})

test('args: reads who may register, and rejects contradictory settings', () => {
  const token = 'a-token-of-the-operator'
  const registration = (env: object) => readApiConfig({ ...good, ...env }).gateway.registration
  expect(registration({})).toEqual({ mode: 'open', limits: { address: 5, total: 5_000 } })
  expect(registration({ RATE_LIMITS: 'off' })).toEqual({ mode: 'open', limits: null })
  expect(registration({ REGISTRATION: 'token', REGISTRATION_TOKEN: token })).toEqual({ mode: 'token', token })
  expect(registration({ REGISTRATION: 'closed', REGISTRATION_TOKEN: token })).toEqual({ mode: 'closed' })
  expect(() => registration({ REGISTRATION: 'token' })).toThrow('REGISTRATION_TOKEN: expected')
  // REGISTRATION_TOKEN alone doesn't make registration require the token. The operator apparently expected that it does, so the setting is rejected.
  expect(() => registration({ REGISTRATION_TOKEN: token })).toThrow('REGISTRATION: expected token or closed')
  expect(() => registration({ REGISTRATION: 'token', REGISTRATION_TOKEN: 'short' })).not.toThrow('"short"')
})

test('args: SMTP_URL: requires MAIL_FROM', () => {
  const url = 'smtps://ops:hunter2@mail.example'
  const { gateway } = readApiConfig({ ...good, SMTP_URL: url, MAIL_FROM: 'tolls@gateway.example' })
  expect(gateway.mail).toEqual({ url, from: 'tolls@gateway.example' })
  expect(readApiConfig({ ...good, MAIL_FROM: 'tolls@gateway.example' }).gateway.mail).toBeNull()
  expect(() => readApiConfig({ ...good, SMTP_URL: url })).toThrow('MAIL_FROM: expected a mail address')
})

describe('an invalid value of a variable', () => {
  test.each([
    ['DATABASE_URL', undefined],
    ['DATABASE_URL', 'mysql://user:hunter2@localhost'],
    ['NETWORKS', 'solana'],
    ['NETWORKS', ','],
    ['RPC_URL_LOCALHOST', undefined],
    ['RPC_URL_LOCALHOST', 'ws://key:hunter2@localhost'],
    ['PLATFORM_WALLET', undefined],
    ['PLATFORM_WALLET', '0x71C7656EC7ab88b098defB751B7401B5f6d8976f'],
    ['MACAROON_SECRETS', undefined],
    ['MACAROON_SECRETS', `a:${secret.slice(2)}`],
    ['MACAROON_SECRETS', `a:${secret},a:${secret}`],
    ['MACAROON_NOT_BEFORE', 'yesterday'],
    ['PUBLIC_URL', 'gateway.example'],
    ['API_PORT', '70000'],
    ['API_PORT', '-1'],
    ['LOG_LEVEL', 'loud'],
    ['FEE_SCHEDULE', 'free'],
    ['PAYER_UNSETTLED_CAP_USDC', '1.0000001'],
    ['MINIMUM_PRICES_USDC', 'nowhere:1'],
    ['MINIMUM_PRICES_USDC', 'base'],
    ['SMTP_URL', 'https://ops:hunter2@mail.example'],
    ['MAIL_FROM', 'ops@mail.example\r\nBcc: a@b.example'],
  ])('error: rejects %s=%s with an error that names the variable and contains no secret', (name, value) => {
    let message = ''
    try {
      readApiConfig({ ...good, [name]: value })
    } catch (error) {
      message = (error as Error).message
    }
    expect(message).toMatch(new RegExp(`^${name}: expected `))
    expect(message).not.toMatch(/hunter2|abab/)
  })
})

test('error: names all missing required variables at once', () => {
  expect(() => readApiConfig({})).toThrow(
    /^DATABASE_URL: .*\nNETWORKS: .*\nPLATFORM_WALLET: .*\nMACAROON_SECRETS: .*$/,
  )
})
