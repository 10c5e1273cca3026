import { once } from 'node:events'
import { access, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseEnv } from 'node:util'
import { readApiConfig } from '@tollkeeper/api/config'
import { readReceiptKeys } from '@tollkeeper/api/payments/receipts/keys'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { runCliHere } from '../../../test/support/cli.ts'
import { createMigratedDatabase, createTestDatabase } from '../../../test/support/database.ts'
import { contractAddresses } from '../../devstack/chain/contracts.ts'
import { diffSettings, renderEnvFile } from './envFile.ts'

let folder: string
/** A node of Base Sepolia, with the methods that init calls. */
let node: string
const server = createServer((request, response) => {
  request.resume().on('end', () => {
    const { chainId } = networks['base-sepolia']
    const answer = { jsonrpc: '2.0', id: 1, result: `0x${chainId.toString(16)}` }
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer))
  })
})

beforeAll(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  node = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => server.close())
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-init-'))
  return () => rm(folder, { recursive: true })
})

const wallet = '0x1000000000000000000000000000000000000001'
/** A database URL at which nothing listens. */
const away = 'postgres://tollkeeper:hunter2@127.0.0.1:9/tollkeeper'

const init = (args: string[], stdin = '') => runCliHere(['init', ...args], { cwd: folder, stdin })
const all = (database = away) => [
  ...['--yes', '--name', 'Weather', '--registration', 'own', '--networks', 'base-sepolia'],
  ...['--rpc', `base-sepolia=${node}`, '--wallet', wallet, '--database', database],
]
const readSettings = async () => parseEnv(await readFile(join(folder, '.env'), 'utf8'))
const written = async () => (await readdir(folder, { recursive: true })).sort()

test('writes settings that the gateway can read, and key files; only the owner can read these files', async () => {
  const { status, stdout, stderr } = await init(all())
  expect([status, stderr]).toEqual([0, ''])
  const settings = await readSettings()
  expect(settings).toMatchObject({
    DATABASE_URL: away,
    NETWORKS: 'base-sepolia',
    RPC_URL_BASE_SEPOLIA: node,
    PLATFORM_WALLET: wallet,
    REGISTRATION: 'closed',
    RECEIPT_KEY_FILE: '.tollkeeper/receipt-keys.json',
    KEEPER_KEY_FILE: '.tollkeeper/keeper-keys.txt',
  })
  // Nothing is deployed on Base Sepolia yet, so this test gives the gateway the contracts' addresses.
  const deployment = { ...contractAddresses, usdc: networks['base-sepolia'].usdc, startBlock: 1 }
  const deployments = join(folder, 'deployments.json')
  await writeFile(deployments, JSON.stringify({ 'base-sepolia': deployment }))
  const config = readApiConfig({ ...settings, DEPLOYMENTS_FILE: deployments })
  expect(config.gateway).toMatchObject({ registration: { mode: 'closed' }, platformWallet: wallet })
  for (const file of ['.env', '.tollkeeper/receipt-keys.json', '.tollkeeper/keeper-keys.txt'])
    expect([file, (await stat(join(folder, file))).mode & 0o777]).toEqual([file, 0o600])
  expect((await readReceiptKeys(join(folder, '.tollkeeper/receipt-keys.json')))?.keys).toHaveLength(1)
  const key = (await readFile(join(folder, '.tollkeeper/keeper-keys.txt'), 'utf8')).trim()
  expect(stdout).toContain(
    `Send gas money to the keeper's wallet ${privateKeyToAddress(key as `0x${string}`)} on base-sepolia`,
  )
  expect(stdout).toMatch(/^Wrote \.env\. Back it up/)
  expect(stdout).toMatch(
    /\nNo provider was created yet: the database can't be used: .*\nNext:\n {2}DEPLOYER_PRIVATE_KEY=0x… npx --no-install tollkeeper deploy --network base-sepolia\n {2}npx --no-install tollkeeper api /,
  )
  for (const secret of [key, settings.MACAROON_SECRETS ?? '', 'hunter2']) expect(stdout).not.toContain(secret)
})

test('creates the provider and its key if the database is up to date, and creates no second provider later', async () => {
  const database = await createMigratedDatabase()
  const first = await init([...all(database), '--json'])
  const { provider, next } = JSON.parse(first.stdout)
  expect(provider).toMatchObject({ status: 'created', apiKey: expect.stringMatching(/^tk_/) })
  expect(next).toHaveLength(3)
  expect(next[2]).toContain(
    `login --provider ${provider.providerId} && npx --no-install tollkeeper provider wallet --network base-sepolia --address 0x…`,
  )
  expect(next[2]).not.toContain(wallet)
  // The same answers change nothing, so --force isn't needed.
  const before = await readSettings()
  const again = JSON.parse((await init(['--yes', '--name', 'Weather', '--json'])).stdout)
  expect(again).toMatchObject({ isChanged: false, provider: { status: 'exists' } })
  expect(await readSettings()).toEqual(before)
})

test('reports that the api creates the tables of an empty database', async () => {
  const { provider, next } = JSON.parse((await init([...all(await createTestDatabase()), '--json'])).stdout)
  expect(provider).toEqual({
    status: 'not_yet',
    reason: 'the database is empty. The api creates its tables when it starts',
  })
  expect(next[2]).toMatch(
    /^npx --no-install tollkeeper init --yes --name "Weather" {4}# creates your provider/,
  )
})

test('asks each of the five questions once if standard input is a pipe', async () => {
  const { status, stderr } = await init([], `Weather\nopen\nbase-sepolia\n${node}\n${wallet}\n${away}\n`)
  expect(status).toBe(0)
  expect(stderr.split('\n').filter((line) => line.endsWith(': '))).toEqual([
    'Name of your provider, as buyers see it: ',
    'Sellers: "own" (only your APIs) or "open" (anyone may register) [own]: ',
    'Networks, separated by commas (base-sepolia uses testnet funds) [base-sepolia]: ',
    'RPC URL of base-sepolia (public nodes are free and limit calls) [https://sepolia.base.org]: ',
    'Wallet that receives the fees (your sales need another one): ',
    'Database URL, Postgres 17 or later: ',
  ])
  expect((await readSettings()).REGISTRATION).toBe('open')
})

test('writes nothing if an answer is missing', async () => {
  const { status, stderr } = await init([], `Weather\nown\nbase-sepolia\n${node}\n`)
  expect([status, stderr]).toEqual([2, expect.stringMatching(/standard input ended.*\(no_answer\)\n$/)])
  expect(await written()).toEqual([])
})

test.each([
  [
    ['--wallet', wallet.slice(0, -1)],
    /--wallet: expected an address.*got "0x10+", which isn't 0x and 40 hex digits/,
  ],
  [
    ['--wallet', '0x70997970C51812dc3A010C7d01b50e0d17dc79c8'],
    /--wallet: .*checksum is wrong: a character may be mistyped/,
  ],
  [['--networks', 'base,bass'], /--networks: expected names among base, .*got "base,bass"/],
  [['--rpc', 'base-sepolia'], /--rpc: expected a network and an http\(s\) URL, like base=/],
  [['--rpc', 'base=https://mainnet.base.org'], /--rpc: base isn't one of --networks/],
  [
    ['--networks', 'ethereum', '--rpc', 'ethereum=NODE'],
    /--rpc: expected a node of ethereum \(chain 1\), got one of base-sepolia \(chain 84532\) \(other_chain\)/,
  ],
  [['--database', 'mysql://x'], /--database: expected postgres:\/\/user:password@host:port\/name/],
  [['--name', ''], /--name: expected a name/],
  [['--registration', 'all'], /--registration: expected one of own, open, got "all"/],
])('reports what is wrong with %j and writes nothing', async (args, message) => {
  // The last occurrence of a flag wins.
  const given = args.map((text) => text.replace('NODE', node))
  const base = given.includes('ethereum')
    ? all().filter((text) => !/^(--rpc|base-sepolia=.*)$/.test(text))
    : all()
  const { status, stdout, stderr } = await init([...base, ...given])
  expect([status, stdout, stderr]).toEqual([2, '', expect.stringMatching(message)])
  expect(await written()).toEqual([])
})

test('if --yes is given and a required flag is missing, names the missing flag and shows an example value', async () => {
  const { stderr } = await init(['--yes', '--name', 'Weather', '--rpc', `base-sepolia=${node}`])
  expect(stderr).toMatch(/^tollkeeper: --wallet: required with --yes, for example 0x10+1 \(invalid_flags\)/)
})

test('overwrites a file only with --force, shows the changes without secrets, and keeps other variables', async () => {
  await init(all())
  const { MACAROON_SECRETS } = await readSettings()
  const own = `${await readFile(join(folder, '.env'), 'utf8')}PUBLIC_URL='https://gateway.example'\n`
  await writeFile(join(folder, '.env'), own)
  const keys = await readFile(join(folder, '.tollkeeper/keeper-keys.txt'), 'utf8')
  const changed = ['--wallet', `0x${'2'.repeat(40)}`, '--database', 'postgres://other:secret@127.0.0.1:9/x']
  const { status, stderr } = await init([...all(), ...changed])
  expect(status).toBe(2)
  expect(stderr).toBe(
    `.env exists. It would change:\n- DATABASE_URL=(hidden)\n+ DATABASE_URL=(hidden)\n- PLATFORM_WALLET=${wallet}\n` +
      `+ PLATFORM_WALLET=0x${'2'.repeat(40)}\ntollkeeper: .env is unchanged. Give --force to overwrite it (file_exists)\n`,
  )
  expect(await readFile(join(folder, '.env'), 'utf8')).toBe(own)
  expect((await init([...all(), ...changed, '--force'])).status).toBe(0)
  expect(await readSettings()).toMatchObject({
    MACAROON_SECRETS,
    PUBLIC_URL: 'https://gateway.example',
    PLATFORM_WALLET: `0x${'2'.repeat(40)}`,
  })
  expect(await readFile(join(folder, '.tollkeeper/keeper-keys.txt'), 'utf8')).toBe(keys)
  expect(await written()).toEqual([
    '.env',
    '.tollkeeper',
    '.tollkeeper/keeper-keys.txt',
    '.tollkeeper/receipt-keys.json',
  ])
})

test('accepts a node that does not respond, and prints that the node is not responding', async () => {
  const { status, stderr } = await init([...all().map((text) => text.replace(node, 'http://127.0.0.1:9'))])
  expect([status, stderr]).toEqual([
    0,
    expect.stringContaining("The node of base-sepolia isn't responding now"),
  ])
})

test('quotes values that programs would truncate when they read the file', () => {
  const settings = {
    DATABASE_URL: 'postgres://u:a b#c@h/x',
    A: `it's "x"`,
    PLAIN: 'https://x.example/a?b=c&d',
  }
  expect(parseEnv(renderEnvFile(settings))).toEqual(settings)
  expect(() => renderEnvFile({ A: `'"\`` })).toThrow(/quotation marks/)
  expect(diffSettings({ NETWORKS: 'base', UNKNOWN: 'x' }, { NETWORKS: 'base' })).toEqual([
    '- UNKNOWN=(hidden)',
  ])
})

test('leaves no temporary file behind', async () => {
  await init(all())
  await init([...all(), '--wallet', `0x${'3'.repeat(40)}`])
  await expect(access(join(folder, `.env.${process.pid}.tmp`))).rejects.toThrow()
})
