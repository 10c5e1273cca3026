import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { devPrivateKey } from '../../apps/devstack/chain/accounts.ts'
import { cliPath, runCli } from '../support/cli.ts'
import { mine } from '../support/keeperScenes.ts'
import { root } from '../support/processes.ts'
import { newBuyer, openShop } from '../support/shop.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'

let stack: TestStack
let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-cli-'))
  stack = await startTestStack({ env: { keeper: { TRIGGER_COUNT: '3' } } })
})
afterAll(async () => {
  await stack?.close()
  await rm(folder, { recursive: true, force: true })
})

test('behavior: an auditor who has only an RPC node and the receipts gets the same result as the gateway', async () => {
  const shop = await openShop(stack, { usdcPerUnit: '0.05' })
  const buyer = await newBuyer(stack, '1')
  const receipts: string[] = []
  const paymentIds: string[] = []
  for (let i = 0; i < 3; i++) {
    const { receipt = '', paymentId = '' } = await buyer.client.request(shop.url)
    receipts.push(receipt)
    paymentIds.push(paymentId)
  }
  await Promise.all(
    paymentIds.map((id) =>
      expect.poll(async () => (await stack.get(`/payments/${id}`)).body.payment_status).toBe('settled'),
    ),
  )
  // The auditor counts a payment only once another block follows its block. The gateway reports the payment as
  // settled earlier.
  await mine(stack, 1)
  const file = join(folder, 'receipts.jsonl')
  // The receipts that the buyer got, and the receipts that the gateway signed again after settlement.
  const signedAgain = await Promise.all(
    paymentIds.map(async (id) => JSON.stringify((await stack.get(`/receipts/${id}`)).body)),
  )
  await writeFile(file, [...receipts, ...signedAgain].join('\n'))

  const flags = ['--receipts', file, '--rpc', stack.chain.url, '--wallet', shop.address]
  const { status, stdout, stderr } = await runCli(['audit', ...flags, '--json'], { cwd: folder })
  expect(stderr).toBe(
    `Keys: ${stack.api.url}/.well-known/jwks.json, named by the receipts themselves; use --jwks to pass keys that you trust\n`,
  )
  const report = JSON.parse(stdout)
  expect(report).toMatchObject({
    reconciled: true,
    states: { settled: 6 },
    providers: [
      { providerId: shop.providerId, payments: 3, providerAmount: '142500', platformAmount: '7500' },
    ],
    wallets: [{ transfers: 3, unreceipted: [] }],
  })
  expect(status).toBe(0)
  // The gateway lists a batch only once it is in the index. A payment counts as settled earlier, as soon as the keeper has its receipt, so
  // poll for the batches.
  const batches = async () => {
    const { body } = await stack.get(`/settlements/batches?wallet=${shop.address}`)
    const listed = body.batches as { tx_hash: string; payment_count: number }[]
    return listed.map(({ tx_hash, payment_count }) => [tx_hash, payment_count]).reverse()
  }
  await expect
    .poll(batches)
    .toEqual(
      report.batches.map((one: { transactionHash: string; payments: number }) => [
        one.transactionHash,
        one.payments,
      ]),
    )
  await shop.close()
})

test('behavior: the commands in docs/audit.md work as written', async () => {
  const text = (await readFile(join(root, 'docs/audit.md'), 'utf8'))
    .replaceAll('http://127.0.0.1:8545', stack.chain.url)
    .replaceAll('http://127.0.0.1:4020', stack.api.url)
  const blocks = (language: string) =>
    [...text.matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, 'gs'))].map(([, code = '']) => code)
  const commands = blocks('sh').flatMap((block) => block.trim().split('\n'))
  expect(commands).toHaveLength(5)
  const env = { PATH: process.env.PATH, NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE }
  for (const command of commands) {
    expect(command).toMatch(/^npx --no-install tollkeeper audit /)
    // Runs the command that npx would find, without asking a registry. Rejects if the status isn't 0.
    const line = command.replace('npx --no-install tollkeeper', `${process.execPath} ${cliPath}`)
    await promisify(execFile)('sh', ['-c', line], { cwd: folder, env })
  }
  const [program = ''] = blocks('ts')
  const [receipt = ''] = (await readFile(join(folder, 'receipts.jsonl'), 'utf8')).split('\n')
  const flags = [
    '--conditions=@tollkeeper/source',
    '--input-type=module-typescript',
    '-e',
    program,
    'audit.ts',
    receipt,
  ]
  const { stdout } = await promisify(execFile)(process.execPath, flags, { cwd: root, env })
  expect(stdout).toMatch(/^true \{\s*settled: 1/)
})

test('behavior: doctor reports the running system as healthy', async () => {
  const env = { ...stack.env, KEEPER_PRIVATE_KEYS: devPrivateKey(1) }
  const { status, stdout } = await runCli(['doctor'], { cwd: folder, env })
  expect(stdout).toMatch(/✓ localhost: index/)
  expect([status, stdout]).toEqual([0, expect.stringMatching(/Everything works/)])
})

test('behavior: each process exits with a one-line message if its environment is empty', async () => {
  for (const [command, message] of [
    ['api', /^api: /],
    ['keeper', /^keeper: /],
    ['indexer', /expected/],
  ] as const) {
    const { status, stderr } = await runCli([command], { cwd: folder })
    expect([command, status]).toEqual([command, 1])
    expect(stderr).toMatch(message)
    expect(stderr).not.toMatch(/\n {4}at /)
  }
})
