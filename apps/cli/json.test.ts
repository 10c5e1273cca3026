import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createMailer } from '@tollkeeper/api/notifications/mailer'
import type { Command } from 'commander'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { runCli } from '../../test/support/cli.ts'
import { useCliGateway } from '../../test/support/cliGateway.ts'
import { openShop, pay, type Shop } from '../../test/support/gateway.ts'
import { codeIn, type MailServer, startMailServer } from '../../test/support/mailServer.ts'
import { startWebhookReceiver } from '../../test/support/webhookReceiver.ts'
import { createProgram } from './program.ts'

const cli = useCliGateway()
let shop: Shop
let mails: MailServer

beforeAll(async () => {
  mails = await startMailServer()
  const mailer = createMailer({ url: mails.url, from: 'tolls@gateway.example' })
  Object.assign(cli.gateway, { app: cli.gateway.withOptions({ mailer }) })
  shop = await openShop(cli.gateway.app)
})
afterAll(() => mails.close())

const env = () => ({
  TOLLKEEPER_GATEWAY_URL: cli.url,
  TOLLKEEPER_API_KEY: shop.key,
  TOLLKEEPER_PROVIDER_ID: shop.providerId,
  DATABASE_URL: cli.gateway.databaseUrl,
})

/** The commands that this test ran, by their words. */
const run = new Set<string>()

/** Runs a command with --json. @returns the one JSON value on its standard output. */
async function json(words: string, args: readonly string[] = [], { stdin = '', status = 0, more = {} } = {}) {
  run.add(words)
  const result = await cli.run([...words.split(' '), ...args, '--json'], { ...env(), ...more }, stdin)
  expect([words, result.status, result.stderr]).toEqual([words, status, expect.any(String)])
  // The value may be on one line or formatted over several.
  return JSON.parse(result.stdout)
}

/** Commands that need a separate chain, seller or terminal, and the test file that runs each of them with --json. */
const elsewhere = {
  'payments watch': 'apps/cli/payments/payments.test.ts',
  price: 'apps/cli/price/price.test.ts',
  buy: 'apps/cli/buyPass.test.ts',
  'provider refund': 'apps/cli/cli.test.ts',
  init: 'apps/cli/init/init.test.ts',
  audit: 'apps/cli/cli.test.ts',
  demo: 'test/e2e/demo.test.ts',
  deploy: 'apps/devstack/deploy.test.ts',
  sweep: 'test/e2e/keeperSplitter.test.ts',
}

test('prints one JSON value for every command with --json', async () => {
  await using receiver = await startWebhookReceiver()
  const { providerId } = await json('provider create', ['--name', 'Weather'])
  await json('provider create', ['--name', 'Weather by the operator', '--operator'])
  await json('provider show')
  await json('provider update', ['--name', 'Weather, Inc.'])
  await json('provider update', ['--contact', 'ops@weather.example'])
  await json('provider changes')
  expect(await json('provider contact')).toEqual({ mailed: true })
  await json('provider contact', ['--code', codeIn(mails.received.at(-1))])
  await json('provider disable')
  await json('provider enable')
  expect(await json('provider disable', ['--operator', '--provider', providerId])).toMatchObject({
    providerId,
  })
  await json('provider enable', ['--operator', '--provider', providerId])
  await json('provider grant', ['--provider', providerId, '--usdc', '1'])
  await json('provider key issue', ['--provider', providerId])

  const address = (digit: string) => ['--address', `0x${digit.repeat(40)}`]
  const { walletId } = await json('provider wallet add', ['--network', 'localhost', ...address('3')])
  await json('provider wallet list')
  const replaced = await json('provider wallet replace', [walletId, ...address('4')])
  expect(await json('provider wallet retire', [replaced.walletId])).toEqual({ retired: replaced.walletId })

  const terms = ['--url', 'https://weather.example/json', '--price', '0.05', '--method', 'GET']
  const { endpointId } = await json('provider endpoint add', terms)
  await json('provider endpoint list')
  await json('provider endpoint update', [endpointId, '--price', '0.06'])
  await json('provider endpoint disable', [endpointId])
  await json('provider endpoint enable', [endpointId])
  expect(await json('provider endpoint check', [endpointId])).toMatchObject({
    findings: [{ severity: 'error' }],
  })

  await json('provider upstream set', ['--url', receiver.url])
  await json('provider upstream show')
  await json('provider upstream rotate')
  await json('provider upstream remove')

  await json('provider hook set', ['--url', receiver.url])
  await json('provider hook show')
  await json('provider hook test')
  await json('provider hook rotate')
  await json('provider hook remove')

  const { webhookId } = await json('provider webhook add', ['--url', receiver.url])
  await json('provider webhook list')
  await json('provider webhook rotate', [webhookId])
  await json('webhook test')
  expect(await json('provider webhook remove', [webhookId])).toEqual({ removed: webhookId })

  const { keyId } = await json('provider key add', ['--scope', 'read'])
  await json('provider key list')
  expect(await json('provider key revoke', [keyId])).toEqual({ revoked: keyId })

  const { paymentId } = await pay(cli.gateway, shop)
  await json('payments list')
  await json('payments show', [paymentId])
  await json('statement')
  const month = ['--month', new Date().toISOString().slice(0, 7)]
  expect(await json('bookkeeping', month)).toMatchObject({ lines: [] })
  expect(await json('fee-document', month)).toMatchObject({ documents: [] })

  const stdin = `${cli.url}\n${shop.providerId}\n${shop.key}\n`
  await json('login', [], { stdin })
  await json('profiles')
  await json('logout')

  const payer = `0x${'5'.repeat(40)}`
  await json('payer debts')
  await json('payer covers')
  await json('payer credit', [payer, '--network', 'localhost', '--usdc', '5', '--reason', 'signed contract'])
  await json('payer credit')
  await json('tabs list')
  await json('tabs lost')
  expect(await json('sales stop', ['--reason', 'Maintenance'])).toMatchObject({ stopped: true })
  await json('sales status')
  expect(await json('sales start')).toMatchObject({ stopped: false })
  const backup = await json('backup record', ['--kind', 'dump'])
  expect(await json('backup list')).toEqual([backup])
  await json('costs', ['--gas-price', '0.01', '--eth-usd', '3000'])
  await json('doctor', [], { status: 1 })
  // This payer has no debt and is unknown. A rejected command prints nothing on standard output.
  for (const words of ['payer forgive', 'payer unblock']) {
    run.add(words)
    const reason = words === 'payer forgive' ? ['--reason', 'x'] : []
    const { status, stdout } = await cli.run([...words.split(' '), payer, ...reason, '--json'], env())
    expect([words, status, stdout]).toEqual([words, 2, ''])
  }
})

test.each([
  ['receipt', { RECEIPT_KEY_FILE: 'keys.json' }],
  ['macaroon', {}],
  ['operator', {}],
])('prints one JSON value for keys rotate %s', async (kind, more) => {
  run.add(`keys rotate ${kind}`)
  const { status, stdout } = await runCli(['keys', 'rotate', kind, '--json'], {
    cwd: cli.folder,
    env: { ...more, XDG_CONFIG_HOME: join(cli.folder, 'config') },
  })
  expect([status, typeof JSON.parse(stdout)]).toEqual([0, 'object'])
})

test('prints one JSON value per line for receipts, with and without --json', async () => {
  run.add('receipts')
  await pay(cli.gateway, shop)
  cli.gateway.setNow(Date.now() + 60_000)
  const read = async (...args: string[]) => {
    const { status, stdout } = await cli.run(['receipts', ...args], env())
    const lines = stdout.trimEnd().split('\n')
    return { status, ids: lines.map((line) => JSON.parse(line).paymentId) }
  }
  const plain = await read()
  expect(plain).toEqual({ status: 0, ids: expect.arrayContaining([expect.stringMatching(/^pay_/)]) })
  expect(await read('--json')).toEqual(plain)
})

test.each(Object.entries(elsewhere))('%s runs with --json in %s', async (words, file) => {
  const text = await readFile(new URL(`../../${file}`, import.meta.url), 'utf8')
  expect(text).toContain("'--json'")
  for (const word of words.split(' ')) expect(text).toMatch(new RegExp(`['"]${word}['"]|useDeploy`))
})

test('every command with --json is run by a test of this file, or is listed with the file that tests it', () => {
  const leaves = (command: Command, path: string[]): string[] =>
    command.commands.length > 0
      ? command.commands.flatMap((each) => leaves(each, [...path, each.name()]))
      : command.options.some(({ long }) => long === '--json')
        ? [path.join(' ')]
        : []
  expect(leaves(createProgram(), []).filter((words) => !run.has(words) && !(words in elsewhere))).toEqual([])
})

test.each([
  [
    ['provider', 'endpoint', '--price', '99999999999999999999'],
    /^tollkeeper: --price: expected decimal USDC .*\(invalid_flags\)\n$/,
  ],
  [
    ['provider', 'endpoint', '--price', '0.01', '--method', 'FETCH ALL'],
    /^tollkeeper: --method: .*\(invalid_\w+\)\n$/,
  ],
  [
    ['provider', 'endpoint', '--price', '0.01', '--wallet', 'x'],
    /^tollkeeper: --wallet: No such wallet \(unknown_wallet\)\n$/,
  ],
])('names the flag of a field that the gateway rejects: %j', async (args, message) => {
  const { status, stderr } = await cli.run([...args, '--url', 'https://weather.example/x'], env())
  expect([status, stderr]).toEqual([2, expect.stringMatching(message)])
})
