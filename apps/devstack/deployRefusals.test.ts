import { writeFile } from 'node:fs/promises'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { createWalletClient, http, parseEther } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { expect, test } from 'vitest'
import { useDeploy } from '../../test/support/deploy.ts'
import { devAccount, devPrivateKey } from './chain/accounts.ts'
import { contracts } from './chain/contracts.ts'

const { address } = contracts.batchSettlement
const { deploy, playNetwork, pathOf } = useDeploy()

test('args: --help prints the usage', async () => {
  const { code, stdout } = await deploy(['--help'])
  expect(code).toBe(0)
  expect(stdout).toContain('npm run deploy -- --network <name>')
})

test.each([
  ['no network', [], /^deploy: --network must be one of base, base-sepolia/],
  ['an unknown network', ['--network', 'solana'], /got "solana"/],
  ['an unknown option', ['--newtork', 'base'], /Unknown option '--newtork'.*Usage:/s],
  ['no RPC', ['--network', 'base'], /^deploy: RPC_URL_BASE: expected an http.*but it is not set/],
] as const)('error: rejects %s', async (_, args, message) => {
  const { code, stderr } = await deploy([...args])
  expect(code).toBe(1)
  expect(stderr).toMatch(message)
})

test('error: rejects an RPC that is not a URL, or that is unreachable, without repeating its URL', async () => {
  const env = { DEPLOYER_PRIVATE_KEY: devPrivateKey(1) }
  const malformed = await deploy(['--network', 'base'], { ...env, RPC_URL_BASE: 'secret' })
  expect(malformed).toMatchObject({
    code: 1,
    stderr:
      'deploy: RPC_URL_BASE: expected an http(s) URL, or several separated by commas, got something else\n',
  })
  const dead = await deploy(['--network', 'base'], { ...env, RPC_URL_BASE: 'http://127.0.0.1:1/secret' })
  expect(dead).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('the RPC of base is not responding'),
  })
  expect(dead.stderr).not.toContain('secret')
})

test('error: rejects a missing or malformed key, without repeating it', async () => {
  const env = { RPC_URL_BASE: 'http://127.0.0.1:1' }
  const missing = await deploy(['--network', 'base'], env)
  expect(missing).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/DEPLOYER_PRIVATE_KEY: expected .* not set/),
  })
  for (const key of ['0xabcdef', `0x${'00'.repeat(32)}`, `0x${'ff'.repeat(32)}`]) {
    const malformed = await deploy(['--network', 'base'], { ...env, DEPLOYER_PRIVATE_KEY: key })
    expect(malformed.stderr).toBe(
      'deploy: DEPLOYER_PRIVATE_KEY: expected a private key of 32 bytes in hex, got something else\n',
    )
  }
})

test('error: rejects a deployments file that is not JSON, or not writable, before anything is sent', async () => {
  const env = { RPC_URL_BASE: 'http://127.0.0.1:1', DEPLOYER_PRIVATE_KEY: devPrivateKey(1) }
  const broken = pathOf('broken.json')
  await writeFile(broken, '{')
  for (const file of [broken, pathOf('nowhere/deployments.json')]) {
    const { code, stderr } = await deploy(['--network', 'base', '--deployments-file', file], env)
    expect(code).toBe(1)
    expect(stderr).toMatch(/^deploy: \S+ can't be read and written \(--deployments-file\): .*\n$/)
  }
})

test('error: rejects an RPC of another chain', async () => {
  await using played = await playNetwork('base-sepolia', { chainId: 8453 })
  const { code, stderr } = await deploy(played.args, played.env)
  expect(code).toBe(1)
  expect(stderr).toBe(
    'deploy: the RPC serves chain id 8453, but base-sepolia is 84532; use an RPC of base-sepolia\n',
  )
})

test('error: rejects a chain without USDC', async () => {
  await using played = await playNetwork('base', { bare: true })
  const { code, stderr } = await deploy(played.args, played.env)
  expect(code).toBe(1)
  expect(stderr).toContain(`there is no USDC at ${networks.base.usdc}; check that this RPC serves base`)
})

test('error: rejects a deployer with too little money, or none', async () => {
  await using played = await playNetwork('base')
  const key = generatePrivateKey()
  const env = { ...played.env, DEPLOYER_PRIVATE_KEY: key }
  const empty = await deploy(played.args, env)
  expect(empty).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('has nothing to pay gas with on base'),
  })

  const wallet = createWalletClient({ account: devAccount(1), transport: http(played.chain.url) })
  await wallet.sendTransaction({
    chain: null,
    to: privateKeyToAccount(key).address,
    value: parseEther('0.00000001'),
  })
  const poor = await deploy(played.args, env)
  expect(poor).toMatchObject({ code: 1, stderr: expect.stringContaining('has too little to pay gas with') })
  expect(await played.client.getCode({ address })).toBeUndefined()
})
