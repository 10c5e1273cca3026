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
import { reservePort } from '@tollkeeper/runtime/port'
import { verifyReceipt } from '@tollkeeper/sdk/audit/verifyReceipt'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { type Address, createTestClient, http } from 'viem'
import { privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { runCli, runCliHere } from '../../test/support/cli.ts'
import { createTestDatabase } from '../../test/support/database.ts'
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
import { withoutIndex } from '../../test/support/indexTables.ts'
import {
  createPayment,
  createTestIssuer,
  settle,
  type TestIssuer,
  type TestPayment,
} from '../../test/support/paidReceipts.ts'
import { seedPayment } from '../../test/support/seedPayments.ts'
import { startSigner } from '../../test/support/signer.ts'
import { devAccount, devPrivateKey } from '../devstack/chain/accounts.ts'
import { type LocalChain, startLocalChain } from '../devstack/chain/startLocalChain.ts'

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

/** As a process of its own: one command of each kind, and those that are one. */
const runProcess = (args: string[], env: Record<string, string> = {}, stdin = '') =>
  runCli(args, { cwd: folder, env, stdin })

/** The words of a command line: a value is one word, a list one for each item. */
const words = ({ raw }: TemplateStringsArray, ...values: (string | readonly string[])[]): string[] =>
  raw.flatMap((text, index) => [...text.split(' '), ...[values[index] ?? []].flat()]).filter(Boolean)

/** Expects a command to fail with status 2 and this message. */
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
  test('args: --help', async () => {
    const { status, stdout } = await runProcess(['keys', 'rotate', 'receipt', '--help'])
    expect([status, stdout]).toEqual([0, expect.stringContaining('Usage: tollkeeper keys rotate receipt')])
  })

  test('error: a wrong use is told in a line, with 2 and no stack trace', async () => {
    const cases: [string[], RegExp][] = [
      [['adit'], /unknown command 'adit'\n\(Did you mean audit\?\)/],
      [['audit', '--rpc', chain.url], /--receipts <file>' not specified/],
      [['audit', '--receipts', 'nowhere', '--rpc', chain.url], /nowhere can't be read.*\(unreadable_file\)/],
      [['audit', '--receipts', 'x', '--rpc', 'ftp://x'], /http\(s\) URL/],
      [['audit', '--receipts', 'x', '--rpc', chain.url, '--from', '2026-02-30'], /--from: expected a day/],
      [['--env', 'nowhere', 'doctor'], /nowhere.*\(unreadable_file\)/],
      [['provider', 'refund', 'pay_x', '--provider', 'prov_x', '--number', '4'], /Expected 1 to 3/],
      [['keeper', '--rpc', chain.url], /--rpc needs --network \(invalid_flags\)/],
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
  test('default: a table, and 0 if all reconcile', async () => {
    const payments = [pay(), pay('prov_b')]
    const transactionHash = await settle(
      chain,
      payments.map(({ item }) => item),
    )
    const [first, second] = await Promise.all(
      payments.map(({ claims }) => issuer.sign({ ...claims, transactionHash })),
    )
    // Each form in which receipts are handed around.
    const lines = [
      first,
      '',
      JSON.stringify(second),
      JSON.stringify({ paymentId: 'x', receipt: second }),
    ].join('\n')
    await writeFile(join(folder, 'good.jsonl'), lines)
    const { status, stdout } = await run(['audit', '--receipts', 'good.jsonl', ...auditFlags()])
    expect(status).toBe(0)
    expect(stdout).toMatch(/prov_a +localhost +1 +1 +0 +0 +0\.009500 +0\.000500 +0\.000000/)
    expect(stdout).toMatch(new RegExp(`${transactionHash} +\\d+ +\\S+Z +2 +0\\.019000 +0\\.001000`))
    expect(stdout).toMatch(/All reconcile: 3 settled; read up to localhost block \d+/)

    const piped = await runProcess(['audit', '--receipts', '-', '--json', ...auditFlags()], {}, lines)
    expect(piped.status).toBe(0)
    expect(JSON.parse(piped.stdout)).toMatchObject({
      reconciled: true,
      jwks: 'jwks.json',
      receipts: [{ line: 1, state: 'settled' }, { line: 3 }, { line: 4 }],
      batches: [{ transactionHash, payments: 2, providerAmount: '19000' }],
    })
  })

  test('behavior: 1 if one does not, listed with its line and reason; pending ones can be allowed', async () => {
    const open = await issuer.sign(pay().claims)
    await writeFile(join(folder, 'open.jsonl'), open)
    const flags = ['audit', '--receipts', 'open.jsonl', ...auditFlags()]
    const strict = await run(flags)
    expect([strict.status, strict.stdout]).toEqual([
      1,
      expect.stringMatching(/^ *1 +pending +waiting +pay_\d+ +Both/m),
    ])
    expect((await run([...flags, '--allow-pending'])).status).toBe(0)

    await writeFile(join(folder, 'forged.jsonl'), `${open}\n${open.slice(0, -8)}AAAAAAAA`)
    const forged = await run(['audit', '--receipts', 'forged.jsonl', '--allow-pending', ...auditFlags()])
    expect([forged.status, forged.stdout]).toEqual([1, expect.stringMatching(/^ *2 +forged +bad_signature/m)])
  })

  test('behavior: a wallet without receipts, by day', async () => {
    const payment = pay()
    await settle(chain, [payment.item])
    await writeFile(join(folder, 'none.jsonl'), '')
    const flags = ['audit', '--receipts', 'none.jsonl', '--wallet', provider, ...auditFlags()]
    const found = await run(flags)
    expect(found.status).toBe(1)
    expect(found.stdout).toMatch(/by authorization, \d+ without a receipt/)
    expect((await run([...flags, '--to', '2020-01-01'])).status).toBe(0)
  })

  test('behavior: a CSV whose cells no spreadsheet takes for formulas', async () => {
    const payment = pay('=HYPERLINK("http://evil.example","x")')
    await writeFile(join(folder, 'evil.jsonl'), await issuer.sign(payment.claims))
    await run(['audit', '--receipts', 'evil.jsonl', '--csv', 'out.csv', ...auditFlags()])
    const [header, row] = (await readFile(join(folder, 'out.csv'), 'utf8')).split('\r\n')
    expect(header).toMatch(/^line,state,reason,reconciled,payment_id,provider_id/)
    expect(row).toContain(`,"'=HYPERLINK(""http://evil.example"",""x"")",`)
  })

  test("behavior: without --jwks the keys are the receipts' own gateway's, and it says so", async () => {
    await writeFile(join(folder, 'own.jsonl'), await issuer.sign({ ...pay().claims }))
    const flags = ['audit', '--receipts', 'own.jsonl', '--rpc', chain.url]
    const { status, stderr } = await run(flags)
    expect(status).toBe(2)
    expect(stderr).toMatch(
      /https:\/\/gateway\.example\/\.well-known\/jwks\.json can't be fetched.*\(no_keys\)/,
    )
  })

  test('error: a chain that cannot be read is 2, whatever the receipts are', async () => {
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
  test('default: a provider, its wallet and its endpoint', async () => {
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

  test('error: the gateway says what is wrong, with its code', async () => {
    const wallet = words`provider wallet --provider prov_x --network localhost --address ${platform}`
    await expectRefusal(
      /TOLLKEEPER_API_KEY \(unauthorized\)\n$/,
      words`${wallet} --gateway ${gatewayUrl} --api-key tk_wrong`,
    )
    const gone = await run([...wallet, '--gateway', 'http://127.0.0.1:9'])
    expect(gone.stderr).toMatch(/can't be reached; is it running\? \(gateway_unreachable\)/)
    await expectRefusal(/\(not_a_gateway\)/, [...wallet, '--gateway', chain.url])
  })
})

describe('tollkeeper receipts', () => {
  test('default: a file, through connections that break; on from where it ended; no receipt twice', async () => {
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
      // The first two answers end in the middle of a line.
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

    // As a crash would leave it.
    await appendFile(path, '{"paymentId":"pay_')
    await seed(3)
    expect((await run(args, providerEnv(shop))).stderr).toBe(`3 receipts added to ${path}\n`)
    expect(await ids()).toEqual(expected)
    breaking.close()

    await expectRefusal(
      /jwks.json holds something else/,
      ['receipts', '--file', 'jwks.json', '--gateway', gatewayUrl],
      providerEnv(shop),
    )
    await expectRefusal(
      /\(invalid_cursor\)/,
      [...args.slice(0, 3), '--gateway', gatewayUrl, '--status', 'failed'],
      providerEnv(shop),
    )
  })

  test('behavior: into the auditor by a pipe; a payment that is refunded', async () => {
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
    // A script that runs again signs anew; with the same number, it is the same refund.
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
  test('default: receipt, what was signed before still verifies', async () => {
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

  test('args: macaroon, with the secret that is in force', async () => {
    const old = `a:${'1'.repeat(64)}`
    const { status, stdout } = await runProcess(['keys', 'rotate', 'macaroon'], { MACAROON_SECRETS: old })
    expect(status).toBe(0)
    expect(stdout).toMatch(new RegExp(`MACAROON_SECRETS=\\w+:[0-9a-f]{64},${old}`))
  })

  test('args: operator, a key that is shown this once, its hash beside those that are known', async () => {
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

  test('error: a key file that is none is left as it is', async () => {
    const file = join(folder, 'broken.json')
    await writeFile(file, '{}')
    const { status, stderr } = await runProcess(['keys', 'rotate', 'receipt', '--file', file])
    expect([status, stderr]).toEqual([2, expect.stringMatching(/broken\.json/)])
    expect(await readFile(file, 'utf8')).toBe('{}')
  })
})

describe('tollkeeper provider grant', () => {
  test('default: given, and taken back; error: nobody of that id', async () => {
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

describe('tollkeeper provider disable, by the operator', () => {
  test('default: it sells nothing, and can not enable itself; error: nobody of that id', async () => {
    const shop = await openShop(gateway.app)
    const env = operatorEnv()
    const ask = () => {
      // A registry of its own, since changes by another process show after two seconds.
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

describe('tollkeeper provider: what changes', () => {
  test('default: registers, changes, and shows who changed what; a lost key is the operator’s to replace', async () => {
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
    expect(changes).toHaveLength(14)
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

describe('tollkeeper provider: what is registered', () => {
  const told = async (args: string[], env: Record<string, string>) => {
    const { status, stdout, stderr } = await run(['provider', ...args], {
      TOLLKEEPER_GATEWAY_URL: gatewayUrl,
      ...env,
    })
    expect([args, status, stderr]).toEqual([args, 0, ''])
    return stdout
  }

  test('default: lists what there is, as tables and as JSON', async () => {
    const shop = await openShop(gateway.app)
    const env = providerEnv(shop)
    expect(await told(['show'], env)).toContain(`providerId   ${shop.providerId}\n`)
    const wallets = JSON.parse(await told(['wallet', 'list', '--json'], env)).wallets
    expect(wallets).toMatchObject([{ providerId: shop.providerId, network: 'localhost' }])
    expect(await told(['wallet', 'list'], env)).toMatch(
      new RegExp(`^walletId .*\n${wallets[0].walletId} +localhost +${wallets[0].address} +\\S+Z\n$`),
    )
    expect(await told(['endpoint', 'list'], env)).toMatch(
      new RegExp(`\n${shop.endpointId} +\\S+ +https?:\\S+ +0\\.\\d{6} +localhost\n$`),
    )
  })

  test('behavior: a key is issued, listed and revoked; the last one only by force', async () => {
    const shop = await openShop(gateway.app)
    const env = providerEnv(shop)
    const added = JSON.parse(await told(['key', 'add', '--label', 'ci', '--scope', 'read', '--json'], env))
    const reader = { ...env, TOLLKEEPER_API_KEY: added.apiKey }
    expect(await told(['key', 'list'], reader)).toMatch(new RegExp(`\n${added.keyId} +ci +read +\\S+Z\n`))
    expect(await told(['key', 'revoke', added.keyId], env)).toMatch(/^revoked +key_/)
    const { keys } = JSON.parse(await told(['key', 'list', '--json'], env))
    expect(keys.map(({ revokedAt }: { revokedAt: string | null }) => revokedAt !== null)).toEqual([
      false,
      true,
    ])
    const last = ['key', 'revoke', keys[0].keyId]
    await expectRefusal(/last_api_key/, ['provider', ...last, '--gateway', gatewayUrl], env)
    await told([...last, '--force'], env)
  })

  test('behavior: a webhook is registered, listed, given another secret, and removed', async () => {
    const shop = await openShop(gateway.app)
    const env = providerEnv(shop)
    const flags = ['--url', 'https://192.0.2.1/told', '--events', 'payment.settled', 'refund.settled']
    const added = JSON.parse(await told(['webhook', ...flags, '--json'], env))
    expect(added).toMatchObject({ events: ['payment.settled', 'refund.settled'], secret: expect.any(String) })
    expect(await told(['webhook', 'list'], env)).toContain(`\n${added.webhookId}  https://192.0.2.1/told`)
    const rotated = JSON.parse(await told(['webhook', 'rotate', added.webhookId, '--json'], env))
    expect(rotated.secret).not.toBe(added.secret)
    expect(await told(['webhook', 'remove', added.webhookId], env)).toMatch(/^removed +wh_/)
    expect(JSON.parse(await told(['webhook', 'list', '--json'], env))).toEqual({ webhooks: [] })
  })
})

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

  test('default: all is in place', async () => {
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
        'prices',
      ],
      ...['localhost: index', `localhost: gas of ${devAccount(9).address.slice(0, 8)}`],
    ])
    const { stdout } = await runProcess(['doctor'], environment())
    expect(stdout).toMatch(/✓ localhost: index +at block \d+, 0 behind/)
  })

  test('behavior: warns of prices over what other people’s clients pay as they come, and says what to do', async () => {
    const sell = async (price: string) => {
      await openShop(gateway.app, price)
      return (await examine()).checks.get('prices')
    }
    await gateway.database`update endpoint set disabled_at = now()`
    expect(await sell('0.10')).toMatchObject({ status: 'ok', found: '1 sold, at 0.10 USDC or less' })
    expect(await sell('0.11')).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/of 2 sold, 1 cost over 0.10 USDC, 0 over 1.00/),
    })
    expect(await sell('1.01')).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(
        /of 3 sold, 2 cost over 0.10 USDC, 1 over 1.00; the dearest is GET https?:\S+ at 1.010000/,
      ),
      advice: expect.stringMatching(/setSpendControls.*maxValue.*Cloudflare's agents/),
    })
    await gateway.database`update endpoint set disabled_at = now()`
  })

  test('behavior: has a remote signer sign nothing, and says what is wrong with it', async () => {
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

  test('behavior: says that there is no index', async () => {
    const { checks } = await withoutIndex(gateway.database, () => examine())
    const check = checks.get('localhost: index')
    expect(check?.status).toBe('fail')
    expect(`${check?.found} → ${check?.advice}`).toMatch(/no index.*npx --no-install tollkeeper indexer/)
  })

  test('behavior: says what is wrong and what to do, each by itself', async () => {
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

  test('behavior: looks at each thing after what it needs, and says what it skipped and why', async () => {
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

    // Nothing is deployed yet: the node, the token and the price feed can be checked, the index can't.
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
      'ok prices',
      'skip base-sepolia: index',
      'ok base-sepolia: gas of ',
    ])
    const { found, advice } = undeployed.checks.get('base-sepolia: BatchSettlement') ?? {}
    expect(`${found} → ${advice}`).toMatch(
      /no code at 0x.* → .*tollkeeper deploy --network base-sepolia, before/,
    )
    expect(undeployed.checks.get('base-sepolia: index')?.found).toBe(
      'skipped: it needs the contracts on base-sepolia, which it reads',
    )

    // Without node and database, nothing is said of what depends on them.
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
      'skip prices',
      'skip base-sepolia: index',
      'skip base-sepolia: gas',
    ])
    for (const [, check] of dark.checks)
      if (check.status === 'skip') expect(check.found).toMatch(/^skipped: it needs a (node|database)/)

    // Without any network, the database is checked all the same.
    expect(statuses(await examine({ NETWORKS: 'nowhere' }))).toEqual([
      'fail configuration',
      'skip nodes, contracts, index',
      'warn database',
      'ok migrations',
      'ok prices',
    ])
  })

  test('behavior: contracts that stand, but are not on record, have only to be recorded', async () => {
    await using base = await startLocalChain({ network: 'base-sepolia', blockTimeMs: 0 })
    const { checks } = await examine({
      NETWORKS: 'base-sepolia',
      RPC_URL_BASE_SEPOLIA: base.url,
      DEPLOYMENTS_FILE: join(folder, 'none.json'),
    })
    const { status, found, advice } = checks.get('base-sepolia: BatchSettlement') ?? {}
    expect(status).toBe('fail')
    expect(`${found} → ${advice}`).toMatch(
      /it stands at 0x.* but \S+none\.json doesn't say so → .*only records/,
    )
  })

  test('behavior: says that the database is newer than this version', async () => {
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
      advice: expect.stringMatching(/^Start the version/),
    })
  })

  test('behavior: says that the database is of another baseline; commands that would write to it refuse', async () => {
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
        found: expect.stringMatching(/made by Tollkeeper 0\.0\.9, from another 0001_schema\.sql/),
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
        expect(refused.stderr).toMatch(/made by Tollkeeper 0\.0\.9, .* \(other_schema\)/)
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

  test('behavior: the price feed of a network that has one: in order, stale, or gone', async () => {
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
    await client.setCode({ address: networks['base-sepolia'].ethUsdFeed as Address, bytecode: '0x' })
    expect(await look()).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/no price at/),
      advice,
    })
  })

  test('behavior: an index that has fallen behind, or is being rebuilt', async () => {
    await gateway.index()
    const client = createTestClient({ mode: 'hardhat', transport: http(chain.url) })
    const examineAfter = async (blocks: number) => {
      await client.mine({ blocks })
      return (await examine()).checks.get('localhost: index')
    }
    expect(await examineAfter(20)).toMatchObject({ status: 'ok', found: expect.stringMatching(/20 behind/) })
    expect(await examineAfter(1)).toMatchObject({ status: 'fail', found: expect.stringMatching(/21 behind/) })
  })
})
