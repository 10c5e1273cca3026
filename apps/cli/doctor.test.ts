import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { serve } from '@hono/node-server'
import { rotateReceiptKeys, writeReceiptKeys } from '@tollkeeper/api/payments/receipts/keys'
import { priceFeedOf } from '@tollkeeper/chain/priceFeeds'
import { reservePort } from '@tollkeeper/runtime/port'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { type Address, createTestClient, http } from 'viem'
import { privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { runCli, runCliHere } from '../../test/support/cli.ts'
import { createTestDatabase } from '../../test/support/database.ts'
import { openShop, startGateway, type TestGateway } from '../../test/support/gateway.ts'
import { withoutIndex } from '../../test/support/indexTables.ts'
import { startSigner } from '../../test/support/signer.ts'
import { devAccount, devPrivateKey } from '../devstack/chain/accounts.ts'
import { type LocalChain, startLocalChain } from '../devstack/chain/startLocalChain.ts'

const platform = '0x2000000000000000000000000000000000000001'

let folder: string
let gateway: TestGateway
let chain: LocalChain
let deploymentsFile: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-cli-'))
  gateway = await startGateway()
  chain = gateway.chain
  await chain.mintUsdc([privateKeyToAddress(devPrivateKey(3))], 10_000_000n)
  deploymentsFile = join(folder, 'deployments.json')
  await writeFile(deploymentsFile, JSON.stringify(chain.deployments))
})
afterAll(async () => {
  await gateway.close()
  await rm(folder, { recursive: true })
})

const run = (args: string[], env: Record<string, string> = {}) => runCliHere(args, { cwd: folder, env })

/** Runs a command in a separate process. */
const runProcess = (args: string[], env: Record<string, string> = {}, stdin = '') =>
  runCli(args, { cwd: folder, env, stdin })

/** Expects that a command fails with status 2 and this message. */
async function expectRefusal(said: RegExp, args: string[], env?: Record<string, string>): Promise<void> {
  const { status, stderr } = await run(args, env)
  expect([status, stderr]).toEqual([2, expect.stringMatching(said)])
}

const databaseUrl = () => {
  const { host, port, user, pass, database } = gateway.database.options
  return `postgres://${user}:${pass}@${host[0]}:${port[0]}/${database}`
}

/** The environment of the operator's commands. */
const operatorEnv = () => ({ DATABASE_URL: databaseUrl() })

/** Names of the checks that run after the checks of the indexes. */
const later = [
  ...['tab budget', 'Postgres: disk', 'Postgres: vacuum', 'Postgres: sessions', 'backup'],
  ...['clock', 'public URL', 'receipt keys'],
]

describe('tollkeeper doctor', () => {
  const environment = () => ({
    NETWORKS: 'localhost',
    RPC_URL_LOCALHOST: chain.url,
    DEPLOYMENTS_FILE: deploymentsFile,
    DATABASE_URL: databaseUrl(),
    KEEPER_PRIVATE_KEYS: devPrivateKey(9),
  })
  const examine = async (change: Record<string, string> = {}) => {
    const { status, stdout, stderr } = await run(['doctor', '--json'], { ...environment(), ...change })
    expect(stderr).toBe('')
    const { checks } = JSON.parse(stdout) as {
      checks: { name: string; status: string; found: string; advice?: string }[]
    }
    return { status, checks: new Map(checks.map((check) => [check.name, check])) }
  }

  test('default: reports that everything is in order', async () => {
    await gateway.index()
    const { status, checks } = await examine()
    expect([...checks.values()].filter((check) => check.status === 'fail')).toEqual([])
    expect(status).toBe(0)
    expect([...checks.keys()]).toEqual([
      ...[
        'configuration',
        'localhost: RPC',
        'localhost: USDC',
        'localhost: BatchSettlement',
        'localhost: SplitterFactory',
        'localhost: TabSettlement',
        'database',
        'migrations',
        'sales',
        'hooks',
        'tab store',
        'prices',
        'prices and gas',
      ],
      ...['localhost: index', ...later, `localhost: gas of ${devAccount(9).address.slice(0, 8)}`],
    ])
    const { stdout } = await runProcess(['doctor'], environment())
    expect(stdout).toMatch(/✓ localhost: index +at block \d+, 0 blocks behind/)
  })

  test('behavior: with the environment of the api, also checks the public URL and the receipt keys', async () => {
    const port = await reservePort()
    const url = `http://127.0.0.1:${port}`
    const server = serve({ fetch: gateway.another({ issuer: url }).fetch, hostname: '127.0.0.1', port })
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const { status, checks } = await examine({ PUBLIC_URL: url })
    expect(status).toBe(0)
    expect(checks.get('public URL')).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/private address; http; .*: a gateway answers/),
    })
    expect(checks.get('receipt keys')?.status).toBe('skip')
    const file = join(folder, 'other-keys.json')
    await writeReceiptKeys(file, rotateReceiptKeys(undefined))
    expect(
      (await examine({ PUBLIC_URL: url, RECEIPT_KEY_FILE: file })).checks.get('public URL'),
    ).toMatchObject({
      status: 'fail',
      found: expect.stringMatching(/other receipt keys/),
    })
  })

  test('behavior: warns while the operator has stopped sales, with the reason', async () => {
    await gateway.index()
    const { DATABASE_URL = '' } = environment()
    const env = { DATABASE_URL }
    await run(['sales', 'stop', '--reason', 'Moving'], env)
    expect((await examine()).checks.get('sales')).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/^stopped since .*: Moving$/),
      advice: expect.stringContaining('sales start'),
    })
    await run(['sales', 'start'], env)
    expect((await examine()).checks.get('sales')?.status).toBe('ok')
  })

  test('behavior: warns of prices above the default limits of plain x402 clients, with advice', async () => {
    const sell = async (price: string) => {
      await openShop(gateway.app, price)
      return (await examine()).checks.get('prices')
    }
    await gateway.database`update endpoint set disabled_at = now()`
    expect(await sell('0.10')).toMatchObject({
      status: 'ok',
      found: 'endpoints on sale: 1, each at 0.10 USDC or less',
    })
    expect(await sell('0.11')).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/on sale: 2; 1 cost over 0.10 USDC, 0 over 1.00/),
    })
    expect(await sell('1.01')).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(
        /on sale: 3; 2 cost over 0.10 USDC, 1 over 1.00 USDC; the most expensive is GET https?:\S+ at 1.010000 USDC/,
      ),
      advice: expect.stringMatching(/setSpendControls.*maxValue.*Cloudflare's agents/),
    })
    await gateway.database`update endpoint set disabled_at = now()`
  })

  test('behavior: checks a remote signer without sending a transaction, and reports what is wrong', async () => {
    const keys = [devPrivateKey(9)]
    await using signers = new AsyncDisposableStack()
    const open = async (chainId: number) => {
      const signer = await startSigner({ keys, chainId })
      signers.defer(signer.kill)
      return signer
    }
    const [good, other] = [await open(31_337), await open(8_453)]
    const { address } = devAccount(9)
    const shown = (of: string) => of.slice(0, 8).toLowerCase()
    const name = (of: string) => `localhost: signer of ${shown(of)}`
    const check = async (change: Record<string, string>, of = address) => {
      const signer = { KEEPER_PRIVATE_KEYS: '', KEEPER_SIGNER_URL: good.url, KEEPER_SIGNER_ADDRESSES: of }
      const { checks } = await examine({ ...signer, ...change })
      return [checks.get(name(of)), checks.has(`localhost: gas of ${shown(of)}`)]
    }
    expect(await check({})).toMatchObject([
      { status: 'ok', found: expect.stringMatching(/^signs, in \d+ ms$/) },
      true,
    ])
    expect(good.asked).toMatchObject([{ gas: '0x0', maxFeePerGas: '0x0', to: address.toLowerCase() }])
    expect(await check({ KEEPER_SIGNER_URL: other.url })).toMatchObject([
      {
        status: 'fail',
        found: expect.stringContaining('signer_mismatch'),
        advice: expect.stringContaining('--chain-id'),
      },
      true,
    ])
    expect(await check({}, devAccount(8).address)).toMatchObject([
      { status: 'fail', found: expect.stringMatching(/signer_refused: the signer has no key/) },
      true,
    ])
    const nowhere = `localhost=http://user:secret@127.0.0.1:${await reservePort()}`
    const [down] = await check({ KEEPER_SIGNER_URL: nowhere })
    expect(down).toMatchObject({
      status: 'fail',
      found: expect.stringMatching(/signer_unavailable: .*ECONNREFUSED/),
    })
    expect(JSON.stringify(down)).not.toContain('secret')
  })

  test('behavior: reports a missing index', async () => {
    const { checks } = await withoutIndex(gateway.database, () => examine())
    const check = checks.get('localhost: index')
    expect(check?.status).toBe('fail')
    expect(`${check?.found} → ${check?.advice}`).toMatch(/no index.*npx --no-install tollkeeper indexer/)
  })

  test('behavior: reports each problem with advice', async () => {
    const wrongToken = join(folder, 'wrong.json')
    const { batchSettlement } = chain.deployments.localhost ?? {}
    await writeFile(
      wrongToken,
      JSON.stringify({
        localhost: {
          batchSettlement: platform,
          splitterFactory: batchSettlement,
          tabSettlement: batchSettlement,
          usdc: batchSettlement,
          startBlock: 0,
        },
      }),
    )
    const cases: [Record<string, string>, string, RegExp][] = [
      [{ RPC_URL_LOCALHOST: 'http://127.0.0.1:9/secret' }, 'localhost: RPC', /no answer.*RPC_URL_LOCALHOST/],
      [
        {
          NETWORKS: 'base-sepolia',
          RPC_URL_BASE_SEPOLIA: chain.url,
          DEPLOYMENTS_FILE: join(folder, 'sepolia.json'),
        },
        'base-sepolia: RPC',
        /chain id 31337, expected 84532/,
      ],
      [{ DEPLOYMENTS_FILE: wrongToken }, 'localhost: USDC', /DEPLOYMENTS_FILE/],
      [
        { DEPLOYMENTS_FILE: wrongToken },
        'localhost: BatchSettlement',
        /no code at .* npx --no-install tollkeeper deploy/,
      ],
      [
        { DEPLOYMENTS_FILE: wrongToken },
        'localhost: SplitterFactory',
        /other code .* npx --no-install tollkeeper deploy/,
      ],
      [{ DEPLOYMENTS_FILE: wrongToken }, 'localhost: TabSettlement', /other code .* tollkeeper deploy/],
      [{ DATABASE_URL: 'postgres://a:secret@127.0.0.1:9/x' }, 'database', /ECONNREFUSED.*DATABASE_URL/],
      [{ KEEPER_PRIVATE_KEYS: `0x${'5'.repeat(64)}` }, 'localhost: gas of 0x', /0 ETH.*send ETH/],
      [{ KEEPER_PRIVATE_KEYS: 'secret' }, 'gas', /KEEPER_PRIVATE_KEYS: expected .* got something else/],
      [{ NETWORKS: 'nowhere' }, 'configuration', /NETWORKS: expected names among/],
    ]
    const { localhost } = chain.deployments
    await writeFile(join(folder, 'sepolia.json'), JSON.stringify({ 'base-sepolia': localhost }))
    for (const [change, name, message] of cases) {
      const { status, checks } = await examine(change)
      const check = [...checks.values()].find((one) => one.name.startsWith(name))
      expect(check?.status).toBe('fail')
      expect(`${check?.found} → ${check?.advice}`).toMatch(message)
      expect(status).toBe(1)
      expect(JSON.stringify([...checks])).not.toContain('secret@')
      expect(JSON.stringify([...checks])).not.toContain('/secret')
    }
  })

  test('behavior: skips a check whose dependency is missing, and reports why', async () => {
    await using bare = await startLocalChain({
      network: 'base-sepolia',
      withContracts: false,
      blockTimeMs: 0,
    })
    const none = join(folder, 'none.json')
    await rm(none, { force: true })
    const environment = { NETWORKS: 'base-sepolia', RPC_URL_BASE_SEPOLIA: bare.url, DEPLOYMENTS_FILE: none }
    const statuses = ({ checks }: Awaited<ReturnType<typeof examine>>) =>
      [...checks].map(([name, { status }]) => `${status} ${name.replace(/0x.*/, '')}`)

    // Nothing is deployed yet, so only the node, the token and the price feed can be checked, but not the index.
    const undeployed = await examine(environment)
    expect(statuses(undeployed)).toEqual([
      'ok configuration',
      'ok base-sepolia: RPC',
      'ok base-sepolia: USDC',
      'fail base-sepolia: BatchSettlement',
      'fail base-sepolia: SplitterFactory',
      'fail base-sepolia: TabSettlement',
      'ok base-sepolia: price feed',
      'warn database',
      'ok migrations',
      'ok sales',
      'ok hooks',
      'ok tab store',
      'ok prices',
      'ok prices and gas',
      'skip base-sepolia: index',
      ...later.map((name) => `${['public URL', 'receipt keys'].includes(name) ? 'skip' : 'ok'} ${name}`),
      'ok base-sepolia: gas of ',
    ])
    const { found, advice } = undeployed.checks.get('base-sepolia: BatchSettlement') ?? {}
    expect(`${found} → ${advice}`).toMatch(
      /no code at 0x.* → .*tollkeeper deploy --network base-sepolia, before/,
    )
    expect(undeployed.checks.get('base-sepolia: index')?.found).toBe(
      'skipped: it needs the contracts on base-sepolia, whose events it contains',
    )

    // Without node and database, the checks that depend on them are skipped.
    const dark = await examine({
      ...environment,
      RPC_URL_BASE_SEPOLIA: 'http://127.0.0.1:9',
      DATABASE_URL: 'postgres://a:b@127.0.0.1:9/x',
    })
    expect(statuses(dark)).toEqual([
      'ok configuration',
      'fail base-sepolia: RPC',
      'skip base-sepolia: USDC',
      'skip base-sepolia: BatchSettlement',
      'skip base-sepolia: SplitterFactory',
      'skip base-sepolia: TabSettlement',
      'skip base-sepolia: price feed',
      'fail database',
      'skip migrations',
      'skip sales',
      'skip hooks',
      'skip tab store',
      'skip prices',
      'skip prices and gas',
      'skip base-sepolia: index',
      ...later.map((name) => `skip ${name}`),
      'skip base-sepolia: gas',
    ])
    for (const [name, check] of dark.checks)
      if (check.status === 'skip' && !['public URL', 'receipt keys'].includes(name))
        expect(check.found).toMatch(/^skipped: it needs a (node|database)/)

    // The database is checked even if there is no network.
    expect(statuses(await examine({ NETWORKS: 'nowhere' }))).toEqual([
      'fail configuration',
      'skip nodes, contracts, index',
      'warn database',
      'ok migrations',
      'ok sales',
      'ok hooks',
      'ok tab store',
      'ok prices',
      'ok prices and gas',
      ...later.map((name) => `${['public URL', 'receipt keys'].includes(name) ? 'skip' : 'ok'} ${name}`),
    ])
  })

  test('behavior: asks the operator to record a deployed contract if the deployments file doesn’t list the contract', async () => {
    await using base = await startLocalChain({ network: 'base-sepolia', blockTimeMs: 0 })
    const { checks } = await examine({
      NETWORKS: 'base-sepolia',
      RPC_URL_BASE_SEPOLIA: base.url,
      DEPLOYMENTS_FILE: join(folder, 'none.json'),
    })
    const { status, found, advice } = checks.get('base-sepolia: BatchSettlement') ?? {}
    expect(status).toBe('fail')
    expect(`${found} → ${advice}`).toMatch(
      /it is deployed at 0x.* but \S+none\.json doesn't list it → .*only records/,
    )
  })

  test('behavior: reports a database that is newer than this version', async () => {
    await gateway.database`
      insert into migration (name, checksum, version) values ('9999_later.sql', 'a', '7.0.0')`
    const { status, checks } = await examine().finally(
      () => gateway.database`delete from migration where name = '9999_later.sql'`,
    )
    expect(status).toBe(1)
    expect(checks.get('migrations')).toMatchObject({
      status: 'fail',
      found: expect.stringMatching(
        /newer than this version, .*: it has 9999_later\.sql \(applied by 7\.0\.0\)/,
      ),
      advice: expect.stringMatching(/^Start the newest of the named versions/),
    })
  })

  test('behavior: reports a database that another version of 0001_schema.sql created, and commands refuse to write to this database', async () => {
    const { database } = gateway
    const [first] = await database`select * from migration order by name limit 1`
    if (!first) throw new Error('expected a migration')
    const { name, checksum, version } = first
    await database`update migration set checksum = 'c', version = '0.0.9' where name = ${name}`
    try {
      const { status, checks } = await examine()
      expect(status).toBe(1)
      expect(checks.get('migrations')).toMatchObject({
        status: 'fail',
        found: expect.stringMatching(/made by Tollkeeper 0\.0\.9 from a different 0001_schema\.sql/),
        advice: expect.stringMatching(/empty database/),
      })
      const provider = `prov_${'8'.repeat(32)}`
      for (const command of [
        ['provider', 'grant', '--provider', provider, '--usdc', '1'],
        ['payer', 'debts'],
        ['provider', 'key', '--provider', provider],
      ]) {
        const refused = await run(command, operatorEnv())
        expect([refused.status, refused.stdout]).toEqual([2, ''])
        expect(refused.stderr).toMatch(/made by Tollkeeper 0\.0\.9 .* \(other_schema\)/)
      }
    } finally {
      await database`update migration set checksum = ${checksum}, version = ${version} where name = ${name}`
    }
    const lacking = await createTestDatabase()
    await expectRefusal(
      /lacks .*0001_schema\.sql.* Start the api or the keeper first.* \(schema_pending\)/,
      ['payer', 'debts'],
      { DATABASE_URL: lacking },
    )
  })

  test('behavior: reports whether a network’s price feed is current, stale or missing', async () => {
    await using base = await startLocalChain({ network: 'base-sepolia', blockTimeMs: 0 })
    const file = join(folder, 'base.json')
    await writeFile(file, JSON.stringify(base.deployments))
    const client = createTestClient({ mode: 'hardhat', transport: http(base.url) })
    const look = async () => {
      const { checks } = await examine({
        NETWORKS: 'base-sepolia',
        RPC_URL_BASE_SEPOLIA: base.url,
        DEPLOYMENTS_FILE: file,
      })
      return checks.get('base-sepolia: price feed')
    }
    expect(await look()).toMatchObject({ status: 'ok', found: expect.stringMatching(/^3000\.000000 USD/) })
    await client.increaseTime({ seconds: 7_201 })
    await client.mine({ blocks: 1 })
    const advice = expect.stringMatching(/ETH_USD/)
    expect(await look()).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/no new price/),
      advice,
    })
    await client.setCode({ address: priceFeedOf(networks['base-sepolia']) as Address, bytecode: '0x' })
    expect(await look()).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/no price at/),
      advice,
    })
  })

  test('behavior: reports an index that has fallen behind, or is being rebuilt', async () => {
    await gateway.index()
    const client = createTestClient({ mode: 'hardhat', transport: http(chain.url) })
    const examineAfter = async (blocks: number) => {
      await client.mine({ blocks })
      return (await examine()).checks.get('localhost: index')
    }
    expect(await examineAfter(20)).toMatchObject({
      status: 'ok',
      found: expect.stringMatching(/20 blocks behind/),
    })
    expect(await examineAfter(1)).toMatchObject({
      status: 'fail',
      found: expect.stringMatching(/21 blocks behind/),
    })
  })
})
