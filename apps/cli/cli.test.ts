import { once } from 'node:events'
import { appendFile, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { serve } from '@hono/node-server'
import { isOperatorKey } from '@tollkeeper/api/http/operator'
import { type ReceiptKeyFile, readReceiptKeys, toReceiptKeys } from '@tollkeeper/api/payments/receipts/keys'
import { signReceipt } from '@tollkeeper/api/payments/receipts/signReceipt'
import { verifyReceipt } from '@tollkeeper/sdk/audit/verifyReceipt'
import { privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { runCli, runCliHere } from '../../test/support/cli.ts'
import {
  pay as buy,
  call,
  gatewayIssuer,
  openShop,
  type Shop,
  settleDirectly,
  startGateway,
  type TestGateway,
} from '../../test/support/gateway.ts'
import {
  createPayment,
  createTestIssuer,
  settle,
  type TestIssuer,
  type TestPayment,
} from '../../test/support/paidReceipts.ts'
import { seedPayment } from '../../test/support/seedPayments.ts'
import { devAccount, devPrivateKey } from '../devstack/chain/accounts.ts'
import type { LocalChain } from '../devstack/chain/startLocalChain.ts'

const provider = '0x1000000000000000000000000000000000000001'
const platform = '0x2000000000000000000000000000000000000001'

let folder: string
let gateway: TestGateway
let chain: LocalChain
let issuer: TestIssuer
let gatewayUrl: string
let closeServer: () => Promise<void>
let deploymentsFile: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-cli-'))
  gateway = await startGateway()
  chain = gateway.chain
  issuer = await createTestIssuer()
  await chain.mintUsdc([privateKeyToAddress(devPrivateKey(3))], 10_000_000n)
  deploymentsFile = join(folder, 'deployments.json')
  await writeFile(deploymentsFile, JSON.stringify(chain.deployments))
  await writeFile(join(folder, 'jwks.json'), JSON.stringify(issuer.jwks))
  const server = serve({ fetch: gateway.app.fetch, hostname: '127.0.0.1', port: 0 })
  await once(server, 'listening')
  const address = server.address()
  gatewayUrl = `http://127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`
  closeServer = async () => {
    server.close()
    await once(server, 'close')
  }
})
afterAll(async () => {
  await closeServer()
  await gateway.close()
  await rm(folder, { recursive: true })
})

const run = (args: string[], env: Record<string, string> = {}) => runCliHere(args, { cwd: folder, env })

/**
 * Runs a command in a separate process, as a shell does. At least one test of each kind of command uses this function; the other
 * tests call `run`, which is quicker.
 */
const runProcess = (args: string[], env: Record<string, string> = {}, stdin = '') =>
  runCli(args, { cwd: folder, env, stdin })

/** Splits a command line into words. An interpolated string is one word; an interpolated array has one word per item. */
const words = ({ raw }: TemplateStringsArray, ...values: (string | readonly string[])[]): string[] =>
  raw.flatMap((text, index) => [...text.split(' '), ...[values[index] ?? []].flat()]).filter(Boolean)

/** Expects that a command fails with status 2 and a message that matches `said`. */
async function expectRefusal(said: RegExp, args: string[], env?: Record<string, string>): Promise<void> {
  const { status, stderr } = await run(args, env)
  expect([status, stderr]).toEqual([2, expect.stringMatching(said)])
}

/** The environment of a provider's own scripts. */
const providerEnv = ({ key, providerId }: Shop) => ({
  TOLLKEEPER_API_KEY: key,
  TOLLKEEPER_PROVIDER_ID: providerId,
})

let count = 0
function pay(providerId = 'prov_a'): TestPayment {
  count += 1
  const acceptedAt = Math.floor(Date.now() / 1000)
  const paymentId = `pay_${count}`
  return createPayment(chain, {
    buyer: devPrivateKey(3),
    payTo: provider,
    platform,
    paymentId,
    providerId,
    acceptedAt,
  })
}

const auditFlags = () =>
  words`--rpc ${chain.url} --jwks jwks.json --deployments ${deploymentsFile} --confirmations 0`

const databaseUrl = () => {
  const { host, port, user, pass, database } = gateway.database.options
  return `postgres://${user}:${pass}@${host[0]}:${port[0]}/${database}`
}

/** The environment of the operator's commands. */
const operatorEnv = () => ({ DATABASE_URL: databaseUrl() })

describe('tollkeeper', () => {
  test('args: --help prints the usage of a command', async () => {
    const { status, stdout } = await runProcess(['keys', 'rotate', 'receipt', '--help'])
    expect([status, stdout]).toEqual([0, expect.stringContaining('Usage: tollkeeper keys rotate receipt')])
  })

  test('error: reports wrong usage in one line, with status 2 and no stack trace', async () => {
    const cases: [string[], RegExp][] = [
      [['adit'], /^tollkeeper: adit: unknown command\. Did you mean audit\?/],
      [['audit', '--rpc', chain.url], /^tollkeeper: --receipts: required\. See `tollkeeper audit --help`/],
      [['audit', '--receipts', 'nowhere', '--rpc', chain.url], /nowhere can't be read.*\(unreadable_file\)/],
      [['audit', '--receipts', 'x', '--rpc', 'ftp://x'], /http\(s\) URL/],
      [['audit', '--receipts', 'x', '--rpc', chain.url, '--from', '2026-02-30'], /--from: expected a day/],
      [['--env', 'nowhere', 'doctor'], /--env: there is no file \/\S+\/nowhere \(unreadable_file\)/],
      [
        ['dev', '--price', '0.001x', '--', 'true'],
        /--price: expected decimal USDC like 0\.01, got "0\.001x"/,
      ],
      [
        ['provider', 'refund', 'pay_x', '--provider', 'prov_x', '--number', '4'],
        /--number: expected a number from 1 to 3, got "4"/,
      ],
      [['keeper', '--rpc', chain.url], /--rpc: requires --network \(invalid_flags\)/],
    ]
    for (const [args, message] of cases) {
      const { status, stdout, stderr } = await run(args)
      expect(stderr).toMatch(message)
      expect([status, stdout]).toEqual([2, ''])
      expect(stderr).not.toMatch(/\n {4}at /)
    }
  })

  test('args: --debug adds the stack trace', async () => {
    const { stderr } = await run(['--debug', 'keeper', '--rpc', chain.url])
    expect(stderr).toMatch(/\n {4}at /)
  })
})

describe('tollkeeper audit', () => {
  test('default: prints a table, and exits with 0 if all receipts reconcile', async () => {
    const payments = [pay(), pay('prov_b')]
    const transactionHash = await settle(
      chain,
      payments.map(({ item }) => item),
    )
    const [first, second] = await Promise.all(
      payments.map(({ claims }) => issuer.sign({ ...claims, transactionHash })),
    )
    // All forms of a receipt that the audit accepts.
    const lines = [
      first,
      '',
      JSON.stringify(second),
      JSON.stringify({ paymentId: 'x', receipt: second }),
    ].join('\n')
    await writeFile(join(folder, 'good.jsonl'), lines)
    const { status, stdout } = await run(['audit', '--receipts', 'good.jsonl', ...auditFlags()])
    expect(status).toBe(0)
    expect(stdout).toMatch(/prov_a +localhost +1 +1 +0 +0 +0 +0\.009500 +0\.000500 +0\.000000/)
    expect(stdout).toMatch(new RegExp(`${transactionHash} +\\d+ +\\S+Z +2 +0\\.019000 +0\\.001000`))
    expect(stdout).toMatch(/^Reconciled: 2 settled\.\n/)
    expect(stdout).toMatch(/^total +2 +2 +0 +0 +0 +0\.019000 +0\.001000/m)
    expect(stdout).toMatch(/^Receipts: 3 settled; tab lines: 0; read up to localhost block \d+$/m)

    const piped = await runProcess(['audit', '--receipts', '-', '--json', ...auditFlags()], {}, lines)
    expect(piped.status).toBe(0)
    expect(JSON.parse(piped.stdout)).toMatchObject({
      reconciled: true,
      jwks: 'jwks.json',
      receipts: [{ line: 1, state: 'settled' }, { line: 3 }, { line: 4 }],
      batches: [{ transactionHash, payments: 2, providerAmount: '19000' }],
    })
  })

  test('behavior: exits with 1 and prints line and reason if a receipt does not reconcile; --allow-pending accepts pending receipts', async () => {
    const open = await issuer.sign(pay().claims)
    await writeFile(join(folder, 'open.jsonl'), open)
    const flags = ['audit', '--receipts', 'open.jsonl', ...auditFlags()]
    const strict = await run(flags)
    expect([strict.status, strict.stdout]).toEqual([
      1,
      expect.stringMatching(/^ *1 +pending +waiting +pay_\d+ +Each authorization has yet to settle/m),
    ])
    expect(strict.stdout).toMatch(
      /^Reconciled: 0 settled\. 1 payment \(0\.009500 USDC\) still on their way\.\nThe exit status is 1/,
    )
    expect((await run([...flags, '--allow-pending'])).status).toBe(0)

    await writeFile(join(folder, 'forged.jsonl'), `${open}\n${open.slice(0, -8)}AAAAAAAA`)
    const forged = await run(['audit', '--receipts', 'forged.jsonl', '--allow-pending', ...auditFlags()])
    expect([forged.status, forged.stdout]).toEqual([1, expect.stringMatching(/^ *2 +forged +bad_signature/m)])
    expect(forged.stdout).toMatch(
      /^Not reconciled: 1 of 2 receipts contradict the chain or each other\. See the findings below/,
    )
  })

  test('behavior: audits a wallet’s transfers on the given days, even if there are no receipts', async () => {
    const payment = pay()
    await settle(chain, [payment.item])
    await writeFile(join(folder, 'none.jsonl'), '')
    const flags = ['audit', '--receipts', 'none.jsonl', '--wallet', provider, ...auditFlags()]
    const found = await run(flags)
    expect(found.status).toBe(1)
    expect(found.stdout).toMatch(/by authorization, \d+ without a receipt/)
    expect((await run([...flags, '--to', '2020-01-01'])).status).toBe(0)
  })

  test('behavior: writes a CSV whose cells no spreadsheet reads as formulas', async () => {
    const payment = pay('=HYPERLINK("http://evil.example","x")')
    await writeFile(join(folder, 'evil.jsonl'), await issuer.sign(payment.claims))
    await run(['audit', '--receipts', 'evil.jsonl', '--csv', 'out.csv', ...auditFlags()])
    const [header, row] = (await readFile(join(folder, 'out.csv'), 'utf8')).split('\r\n')
    expect(header).toMatch(/^line,state,reason,reconciled,payment_id,provider_id/)
    expect(row).toContain(`,"'=HYPERLINK(""http://evil.example"",""x"")",`)
  })

  test('behavior: without --jwks, uses the keys of the gateway that the receipts name, and reports where they are from', async () => {
    await writeFile(join(folder, 'own.jsonl'), await issuer.sign({ ...pay().claims }))
    const flags = ['audit', '--receipts', 'own.jsonl', '--rpc', chain.url]
    const { status, stderr } = await run(flags)
    expect(status).toBe(2)
    expect(stderr).toMatch(
      /https:\/\/gateway\.example\/\.well-known\/jwks\.json can't be fetched.*\(no_keys\)/,
    )
  })

  test('error: exits with 2 if the chain cannot be read, even if the receipts are valid', async () => {
    await writeFile(join(folder, 'any.jsonl'), await issuer.sign(pay().claims))
    const flags = ['--receipts', 'any.jsonl', '--jwks', 'jwks.json', '--rpc', 'http://127.0.0.1:9/secret']
    const { status, stderr } = await run(['audit', ...flags])
    expect([status, stderr]).toEqual([
      2,
      expect.stringMatching(/behind 127\.0\.0\.1:9 .*\(dependency_unavailable\)/),
    ])
    expect(stderr).not.toContain('secret')
  })
})

describe('tollkeeper provider', () => {
  test('default: registers a provider, its wallet and its endpoint', async () => {
    const gatewayFlag = ['--gateway', gatewayUrl, '--json']
    const created = await runProcess(['provider', 'create', '--name', 'Weather', ...gatewayFlag])
    expect(created.status).toBe(0)
    const { providerId, apiKey } = JSON.parse(created.stdout)
    const env = { TOLLKEEPER_API_KEY: apiKey, TOLLKEEPER_PROVIDER_ID: providerId }
    const wallet = await run(
      ['provider', 'wallet', '--network', 'localhost', '--address', devAccount(5).address, ...gatewayFlag],
      env,
    )
    expect(JSON.parse(wallet.stdout)).toMatchObject({ providerId, network: 'localhost' })
    const endpointFlags = ['--url', 'https://weather.example/forecast', '--method', 'GET', '--price', '0.01']
    const endpoint = await run(['provider', 'endpoint', ...endpointFlags, ...gatewayFlag], env)
    expect(JSON.parse(endpoint.stdout)).toMatchObject({ providerId, pricing: { usdcPerUnit: '0.010000' } })
  })

  test('prints the next step, and the new API key on a separate line; --json prints the key as a field', async () => {
    const flags = ['provider', 'create', '--name', 'Weather', '--gateway', gatewayUrl]
    const { status, stdout, stderr } = await run(flags)
    expect(status).toBe(0)
    const [first, second, ...others] = stdout.trimEnd().split('\n')
    expect(first).toMatch(
      /^Created prov_[0-9a-f]{32}\. Next: `tollkeeper login .*`, then `tollkeeper provider wallet/,
    )
    expect([second, others]).toEqual([
      'The API key, shown only this once:',
      [expect.stringMatching(/^tk_[0-9a-f]{32}_[\w-]{43}$/)],
    ])
    expect(stderr).toBe('')

    const written = await run([...flags, '--json'])
    expect(JSON.parse(written.stdout)).toMatchObject({ apiKey: expect.stringMatching(/^tk_/) })
    expect(written.stderr).toBe('')
  })

  test('error: prints the message and the code of the gateway', async () => {
    const wallet = words`provider wallet --provider prov_x --network localhost --address ${platform}`
    await expectRefusal(
      /TOLLKEEPER_API_KEY \(unauthorized\)\n$/,
      words`${wallet} --gateway ${gatewayUrl} --api-key tk_wrong`,
    )
    const gone = await run([...wallet, '--gateway', 'http://127.0.0.1:9'])
    expect(gone.stderr).toMatch(
      /can't be reached\. Check --gateway, and whether the gateway runs \(gateway_unreachable\)/,
    )
    await expectRefusal(/\(not_a_gateway\)/, [...wallet, '--gateway', chain.url])
  })
})

describe('tollkeeper receipts', () => {
  test('default: continues the file after a broken connection and after a crash, and writes no receipt twice', async () => {
    const shop = await openShop(gateway.app)
    const provider = { ...shop, endpointIds: [shop.endpointId] }
    const since = Date.now() - 3_600_000
    const expected: string[] = []
    const seed = async (count: number) => {
      const times = Array.from({ length: count }, (_, i) => new Date(since + expected.length + i))
      const seeded = times.map((acceptedAt) => seedPayment(gateway.database, { provider, acceptedAt }))
      expected.push(...(await Promise.all(seeded)).map(({ paymentId }) => paymentId))
    }
    await seed(450)
    const asked: string[] = []
    const breaking = createServer(async (request, response) => {
      asked.push(request.url ?? '')
      const { authorization = '' } = request.headers
      const answer = await fetch(`${gatewayUrl}${request.url}`, { headers: { authorization } })
      const bytes = Buffer.from(await answer.arrayBuffer())
      response.writeHead(answer.status, { 'content-type': 'application/jsonl' })
      // The first two responses end in the middle of a line.
      if (asked.length > 2) response.end(bytes)
      else response.write(bytes.subarray(0, 200_003), () => response.destroy())
    }).listen(0, '127.0.0.1')
    await once(breaking, 'listening')
    const { port } = breaking.address() as AddressInfo
    const path = join(folder, 'bought.jsonl')
    const ids = async () =>
      (await readFile(path, 'utf8'))
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line).paymentId)
    const args = ['receipts', '--file', path, '--gateway', `http://127.0.0.1:${port}`]
    const { status, stderr } = await runProcess(args, providerEnv(shop))
    expect([status, stderr]).toEqual([0, `450 receipts added to ${path}\n`])
    expect(asked).toHaveLength(3)
    expect(await ids()).toEqual(expected)

    // An incomplete last line, as after a crash during a write.
    await appendFile(path, '{"paymentId":"pay_')
    await seed(3)
    expect((await run(args, providerEnv(shop))).stderr).toBe(`3 receipts added to ${path}\n`)
    expect(await ids()).toEqual(expected)
    breaking.close()

    await expectRefusal(
      /jwks.json has other contents/,
      ['receipts', '--file', 'jwks.json', '--gateway', gatewayUrl],
      providerEnv(shop),
    )
    await expectRefusal(
      /\(invalid_cursor\)/,
      [...args.slice(0, 3), '--gateway', gatewayUrl, '--status', 'failed'],
      providerEnv(shop),
    )
  })

  test('behavior: the audit reads piped receipts, even if one of the payments was refunded', async () => {
    const shop = await openShop(gateway.app)
    const key = devPrivateKey(5)
    await call(gateway.app, 'POST', `/providers/${shop.providerId}/wallets`, {
      json: { network: 'localhost', address: privateKeyToAddress(key) },
      key: shop.key,
    })
    await chain.mintUsdc([privateKeyToAddress(key)], 1_000_000n)
    const { paymentId, payloads } = await buy(gateway, shop)
    for (const payload of payloads) await settleDirectly(gateway, payload)
    await gateway.served.client.request({ method: 'evm_mine', params: [] } as never)
    await gateway.index()

    const flags = ['--gateway', gatewayUrl, '--issuer', gatewayIssuer, '--json']
    const refund = (amount: string) =>
      run(['provider', 'refund', paymentId, '--number', '1', '--amount', amount, ...flags], {
        ...providerEnv(shop),
        WALLET_PRIVATE_KEY: key,
      })
    const first = await refund('0.02')
    expect(JSON.parse(first.stdout)).toMatchObject({
      number: 1,
      refund_status: 'verified',
      valueUsdc: '20000',
    })
    // A script that runs again signs another transfer. Because the refund number is the same, the gateway returns the first refund.
    expect(JSON.parse((await refund('0.02')).stdout)).toEqual(JSON.parse(first.stdout))
    expect((await refund('0.03')).stderr).toMatch(/\(payment_replayed\)/)
    await expectRefusal(/--issuer/, ['provider', 'refund', paymentId, '--gateway', gatewayUrl], {
      ...providerEnv(shop),
      WALLET_PRIVATE_KEY: key,
    })
    const keyless = await run(['provider', 'refund', paymentId, ...flags], {
      ...providerEnv(shop),
      WALLET_PRIVATE_KEY: 'secret',
    })
    expect(keyless.stderr).toMatch(/WALLET_PRIVATE_KEY or --key-file/)
    expect(keyless.stderr).not.toMatch(/secret/)

    gateway.setNow(Date.now() + 60_000)
    try {
      const downloaded = await runProcess(['receipts', '--gateway', gatewayUrl], providerEnv(shop))
      const jwks = `${gatewayUrl}/.well-known/jwks.json`
      const audited = await runProcess(
        ['audit', '--receipts', '-', ...auditFlags(), '--jwks', jwks, '--json'],
        {},
        downloaded.stdout,
      )
      expect(JSON.parse(audited.stdout)).toMatchObject({
        reconciled: true,
        receipts: [{ state: 'settled', refunds: [{ number: 1, value: '20000', state: 'pending' }] }],
      })
      expect(audited.status).toBe(0)
    } finally {
      gateway.setNow(null)
    }
  })
})

describe('tollkeeper keys rotate', () => {
  test('default: for receipt keys, keeps the old keys published, so that earlier signatures verify', async () => {
    const file = join(folder, 'keys', 'receipt-keys.json')
    const read = async () => toReceiptKeys((await readReceiptKeys(file)) as ReceiptKeyFile)
    expect((await runProcess(['keys', 'rotate', 'receipt', '--file', file])).status).toBe(0)
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    const before = await read()
    const { kid } = before.current
    const receipt = signReceipt(pay().claims, before.current)
    const rotated = await runProcess(['keys', 'rotate', 'receipt'], { RECEIPT_KEY_FILE: file })
    expect(rotated.status).toBe(0)
    const after = await read()
    expect(after.jwks.keys).toHaveLength(2)
    expect((await verifyReceipt(receipt, after.jwks)).kid).toBe(kid)
    expect(rotated.stdout).not.toMatch(/"d"/)
  })

  test('args: for macaroon secrets, prints the new secret next to the current secret', async () => {
    const old = `a:${'1'.repeat(64)}`
    const { status, stdout } = await runProcess(['keys', 'rotate', 'macaroon'], { MACAROON_SECRETS: old })
    expect(status).toBe(0)
    expect(stdout).toMatch(new RegExp(`MACAROON_SECRETS=\\w+:[0-9a-f]{64},${old}`))
  })

  test('args: for an operator key, prints the new key once, and its hash together with the existing hashes', async () => {
    const known = 'ab'.repeat(32)
    const { status, stdout } = await runProcess(['keys', 'rotate', 'operator'], {
      OPERATOR_KEY_HASHES: known,
    })
    expect(status).toBe(0)
    const key = /^# (tko_\S{43})$/m.exec(stdout)?.[1] ?? ''
    const hashes = /^OPERATOR_KEY_HASHES=(.*)$/m.exec(stdout)?.[1]?.split(',') ?? []
    expect(hashes[0]).toBe(known)
    const opens = (hash = '') => isOperatorKey(key, [Buffer.from(hash, 'hex')])
    expect(hashes.map(opens)).toEqual([false, true])
  })

  test('error: leaves an invalid key file unchanged', async () => {
    const file = join(folder, 'broken.json')
    await writeFile(file, '{}')
    const { status, stderr } = await runProcess(['keys', 'rotate', 'receipt', '--file', file])
    expect([status, stderr]).toEqual([2, expect.stringMatching(/broken\.json/)])
    expect(await readFile(file, 'utf8')).toBe('{}')
  })
})

describe('tollkeeper provider grant', () => {
  test('default: sets and removes a gas grant; error: rejects an unknown provider', async () => {
    const providerId = `prov_${'7'.repeat(32)}`
    await gateway.database`insert into provider (id, name) values (${providerId}, 'Another operator')`
    const env = operatorEnv()
    const grant = (usdc: string, id = providerId) =>
      run(['provider', 'grant', '--provider', id, '--usdc', usdc], env)
    const read = async () => {
      const [row] = await gateway.database`select gas_grant as granted from provider where id = ${providerId}`
      return row?.granted
    }
    expect(await read()).toBe(0n)
    const given = await grant('2.5')
    expect([given.status, given.stdout]).toEqual([0, expect.stringContaining('2.5')])
    expect(await read()).toBe(2_500_000n)
    expect((await grant('0')).status).toBe(0)
    expect(await read()).toBe(0n)
    const unknown = await grant('1', `prov_${'8'.repeat(32)}`)
    expect([unknown.status, unknown.stderr]).toEqual([2, expect.stringMatching(/unknown_provider/)])
    const changes = await gateway.database`
      select before, after from registry_change where provider_id = ${providerId} order by id`
    expect(changes.map(({ before, after }) => [before, after])).toEqual([
      [{ gasGrant: '0.000000' }, { gasGrant: '2.500000' }],
      [{ gasGrant: '2.500000' }, { gasGrant: '0.000000' }],
    ])
  })
})

describe('tollkeeper provider create --operator', () => {
  test('behavior: creates a provider while registration is closed, and its history names the operator', async () => {
    const env = operatorEnv()
    const created = await run(
      words`provider create --operator --name Weather --contact ops@weather.example --json`,
      env,
    )
    expect([created.status, created.stderr]).toEqual([0, ''])
    const { providerId, apiKey } = JSON.parse(created.stdout)
    const closed = gateway.another({ registration: { mode: 'closed' } })
    const account = await call(closed, 'GET', '/account', { key: apiKey })
    expect(account.body).toMatchObject({ providerId, name: 'Weather', contact: 'ops@weather.example' })
    const changes = await call(closed, 'GET', `/providers/${providerId}/changes`, { key: apiKey })
    expect(changes.body.changes).toMatchObject([{ by: 'operator' }, { by: 'operator' }])
  })

  test('error: rejects a name that POST /providers rejects', async () => {
    await expectRefusal(
      /--name: .*invalid_flags/,
      ['provider', 'create', '--operator', '--name', ''],
      operatorEnv(),
    )
  })
})

describe('tollkeeper sales', () => {
  test('behavior: stops all sales with a reason, shows who stopped them, and starts them again', async () => {
    const shop = await openShop(gateway.app)
    const json = { providerId: shop.providerId, endpointId: shop.endpointId }
    const ask = async () => (await call(gateway.withOptions({}), 'POST', '/challenge', { json })).status
    const env = operatorEnv()
    const stop = await runProcess(['sales', 'stop', '--reason', 'Moving'], env)
    expect([stop.status, stop.stdout]).toEqual([0, expect.stringContaining('Next: tollkeeper sales start')])
    expect(await ask()).toBe(503)
    // Stopping again for the same reason changes nothing.
    await run(['sales', 'stop', '--reason', 'Moving'], env)
    const status = JSON.parse((await run(['sales', 'status', '--json'], env)).stdout)
    expect(status).toMatchObject({
      stopped: true,
      reason: 'Moving',
      changes: [{ change: 'stop', reason: 'Moving', by: expect.stringContaining('@') }],
    })
    expect((await run(['sales', 'start'], env)).stdout).toMatch(/^Payments are accepted\.\n/)
    expect(await ask()).toBe(200)
    expect(JSON.parse((await run(['sales', '--json'], env)).stdout).changes).toHaveLength(2)
  })

  test.each(['stop.md', 'run-a-gateway.md'])(
    'the commands in docs/%s stop sales, show that sales are stopped, and start sales again',
    async (page) => {
      const text = await readFile(new URL(`../../docs/${page}`, import.meta.url), 'utf8')
      const [, block = ''] = /```sh stop\n(.*?)```/s.exec(text) ?? []
      await writeFile(join(folder, '.env'), `DATABASE_URL=${gateway.databaseUrl}\n`)
      onTestFinished(() => rm(join(folder, '.env')))
      const states: boolean[] = []
      for (const line of block.trim().split('\n')) {
        const [words = ''] = line.split('npx --no-install tollkeeper ').slice(1)
        const args = (words.match(/"[^"]*"|\S+/g) ?? []).map((word) => word.replaceAll('"', ''))
        const { status, stdout } = await run([...args, '--json'])
        expect([line, status]).toEqual([line, 0])
        states.push(JSON.parse(stdout).stopped)
      }
      expect(states).toEqual([true, true, false])
    },
  )

  test('error: rejects a reason of more than 200 characters', () =>
    expectRefusal(/--reason: .*200/, ['sales', 'stop', '--reason', 'x'.repeat(201)], operatorEnv()))
})

describe('tollkeeper provider disable, by the operator', () => {
  test('default: a disabled provider sells nothing and cannot enable itself; error: rejects an unknown provider', async () => {
    const shop = await openShop(gateway.app)
    const env = operatorEnv()
    const ask = () => {
      // Use a separate registry, because a registry sees changes by another process only after two seconds.
      const json = { providerId: shop.providerId, endpointId: shop.endpointId }
      return call(gateway.withOptions({}), 'POST', '/challenge', { json })
    }
    const disabled = await runProcess(
      ['provider', 'disable', '--operator', '--provider', shop.providerId],
      env,
    )
    expect([disabled.status, disabled.stdout]).toEqual([0, expect.stringContaining('is suspended')])
    const own = { json: { disabled: false }, key: shop.key, headers: { 'if-match': '*' } }
    await call(gateway.app, 'PATCH', `/providers/${shop.providerId}`, own)
    expect((await ask()).body).toMatchObject({ code: 'provider_disabled' })
    expect((await run(['provider', 'enable', '--operator', '--provider', shop.providerId], env)).status).toBe(
      0,
    )
    expect((await ask()).body.code).not.toBe('provider_disabled')
    await expectRefusal(
      /unknown_provider/,
      ['provider', 'disable', '--operator', '--provider', `prov_${'8'.repeat(32)}`],
      env,
    )
  })
})

describe('tollkeeper provider: changes', () => {
  test('default: registers and changes resources, and shows who changed what; the operator replaces a lost key', async () => {
    const tell = async (args: string[], key?: string) => {
      const env = { TOLLKEEPER_GATEWAY_URL: gatewayUrl, ...(key && { TOLLKEEPER_API_KEY: key }) }
      const { status, stdout, stderr } = await run(['provider', ...args, '--json'], env)
      expect([args, status, stderr]).toEqual([args, 0, ''])
      return JSON.parse(stdout)
    }
    const { providerId, apiKey } = await tell(['create', '--name', 'Weather'])
    const own = (args: string[], key = apiKey) => tell([...args, '--provider', providerId], key)
    const address = `0x${'a1'.repeat(20)}`
    const wallet = await own(['wallet', '--network', 'localhost', '--address', `0x${'a0'.repeat(20)}`])
    const terms = words`--url https://weather.example/cities/:city --price 0.05 --network localhost`
    const { endpointId, version } = await own(['endpoint', ...terms])

    expect(await own(['endpoint', 'update', endpointId, '--price', '0.06'])).toMatchObject({ version: 2 })
    const replaced = await own(['wallet', 'replace', wallet.walletId, '--address', address])
    expect(replaced).toMatchObject({ address, endpoints: [endpointId] })
    const disabled = await own(['endpoint', 'disable', endpointId, '--provider', providerId])
    expect(disabled).toMatchObject({ walletId: replaced.walletId, disabledAt: expect.any(String) })
    expect(await own(['endpoint', 'enable', endpointId])).toMatchObject({ disabledAt: null })
    expect(await own(['update', '--requires-key'])).toMatchObject({ name: 'Weather', requiresKey: true })
    expect(await own(['update', '--own-middleware'])).toMatchObject({
      requiresKey: true,
      ownMiddleware: true,
    })
    expect(await own(['update', '--no-own-middleware'])).toMatchObject({ ownMiddleware: false })

    const service = await own([
      'update',
      '--no-listed',
      '--service-name',
      'Weather',
      '--tags',
      'weather',
      'data',
    ])
    expect(service).toMatchObject({ listed: false, serviceName: 'Weather', tags: ['weather', 'data'] })
    const schema = { type: 'object', properties: { city: { type: 'string' } } }
    const described = ['--input-schema', JSON.stringify(schema), '--input-example', '{"city":"Oslo"}']
    expect(await own(['endpoint', 'update', endpointId, ...described])).toMatchObject({
      listed: true,
      inputSchema: schema,
      inputExample: { city: 'Oslo' },
      outputSchema: null,
    })

    const stale = ['endpoint', 'update', endpointId, '--price', '0.07', '--if-version', String(version)]
    const env = { TOLLKEEPER_GATEWAY_URL: gatewayUrl, TOLLKEEPER_API_KEY: apiKey }
    await expectRefusal(/precondition_failed/, ['provider', ...stale, '--provider', providerId], env)

    const issued = await run(['provider', 'key', '--provider', providerId, '--json'], operatorEnv())
    expect(issued.status).toBe(0)
    const { keyId, apiKey: anew } = JSON.parse(issued.stdout)
    const { changes } = await own(['changes'], anew)
    expect(changes[0]).toMatchObject({ by: 'operator', subject: keyId, before: null })
    expect(changes).toHaveLength(16)
    const table = await run(['provider', 'changes', '--provider', providerId], env)
    expect(table.stdout).toMatch(new RegExp(`operator +${keyId} +label +\\(new\\) +issued by the operator`))
    expect(table.stdout + issued.stdout.replace(anew, '')).not.toContain(anew)

    const reader = await run(
      ['provider', 'key', '--provider', providerId, '--scope', 'read', '--json'],
      operatorEnv(),
    )
    const reading = { ...env, TOLLKEEPER_API_KEY: JSON.parse(reader.stdout).apiKey }
    expect((await run(['provider', 'changes', '--provider', providerId], reading)).status).toBe(0)
    await expectRefusal(/forbidden/, ['provider', 'disable', '--provider', providerId], reading)

    await expectRefusal(
      /unknown_provider/,
      ['provider', 'key', '--provider', `prov_${'8'.repeat(32)}`],
      operatorEnv(),
    )
  })
})

describe('tollkeeper provider: registered resources', () => {
  const told = async (args: string[], env: Record<string, string>) => {
    const { status, stdout, stderr } = await run(['provider', ...args], {
      TOLLKEEPER_GATEWAY_URL: gatewayUrl,
      ...env,
    })
    expect([args, status, stderr]).toEqual([args, 0, ''])
    return stdout
  }

  test('default: lists the registered resources of each kind, as tables and as JSON', async () => {
    const shop = await openShop(gateway.app)
    const env = providerEnv(shop)
    expect(await told(['show'], env)).toMatch(new RegExp(`^providerId +${shop.providerId}\n`))
    const wallets = JSON.parse(await told(['wallet', 'list', '--json'], env)).wallets
    expect(wallets).toMatchObject([{ providerId: shop.providerId, network: 'localhost' }])
    expect(await told(['wallet', 'list'], env)).toMatch(
      new RegExp(`^walletId .*\n${wallets[0].walletId} +localhost +${wallets[0].address} +\\S+Z\n$`),
    )
    expect(await told(['endpoint', 'list'], env)).toMatch(
      new RegExp(`\n${shop.endpointId} +\\S+ +https?:\\S+ +0\\.\\d{6} +localhost +(?:not )?listed\n`),
    )
  })

  test('behavior: issues, lists and revokes a key; revokes the last key only with --force', async () => {
    const shop = await openShop(gateway.app)
    const env = providerEnv(shop)
    const added = JSON.parse(await told(['key', 'add', '--label', 'ci', '--scope', 'read', '--json'], env))
    const reader = { ...env, TOLLKEEPER_API_KEY: added.apiKey }
    expect(await told(['key', 'list'], reader)).toMatch(new RegExp(`\n${added.keyId} +ci +read +\\S+Z\n`))
    expect(await told(['key', 'revoke', added.keyId], env)).toMatch(/^Revoked key_/)
    const { keys } = JSON.parse(await told(['key', 'list', '--json'], env))
    expect(keys.map(({ revokedAt }: { revokedAt: string | null }) => revokedAt !== null)).toEqual([
      false,
      true,
    ])
    const last = ['key', 'revoke', keys[0].keyId]
    await expectRefusal(/last_api_key/, ['provider', ...last, '--gateway', gatewayUrl], env)
    await told([...last, '--force'], env)
  })

  test('behavior: registers, lists, rotates and removes a webhook', async () => {
    const shop = await openShop(gateway.app)
    const env = providerEnv(shop)
    const flags = ['--url', 'https://192.0.2.1/told', '--events', 'payment.settled', 'refund.settled']
    const added = JSON.parse(await told(['webhook', ...flags, '--json'], env))
    expect(added).toMatchObject({ events: ['payment.settled', 'refund.settled'], secret: expect.any(String) })
    expect(await told(['webhook', 'list'], env)).toContain(`\n${added.webhookId}  https://192.0.2.1/told`)
    const rotated = JSON.parse(await told(['webhook', 'rotate', added.webhookId, '--json'], env))
    expect(rotated.secret).not.toBe(added.secret)
    expect(await told(['webhook', 'remove', added.webhookId], env)).toMatch(/^Removed wh_/)
    expect(JSON.parse(await told(['webhook', 'list', '--json'], env))).toEqual({ webhooks: [] })
  })
})
