import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { committedDeployments } from '@tollkeeper/sdk/protocol/deployments'
import { type NetworkName, networks } from '@tollkeeper/sdk/protocol/networks'
import { createPublicClient, createWalletClient, http, parseEther } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { devAccount, devPrivateKey } from './chain/accounts.ts'
import { contractAddresses, contracts } from './chain/contracts.ts'
import { create2Data, create2Factory } from './chain/create2.ts'
import { type LocalChainOptions, startLocalChain } from './chain/startLocalChain.ts'

const { batchSettlement, splitterFactory, tabSettlement } = contracts
const { address } = batchSettlement
let directory: string

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'deploy-test-'))
})

afterAll(async () => {
  await rm(directory, { recursive: true })
})

async function deploy(args: string[], env: Record<string, string> = {}) {
  const deploying = spawn(process.execPath, [join(import.meta.dirname, 'deploy.ts'), ...args], {
    env: {
      PATH: process.env.PATH ?? '',
      HOME: directory,
      NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let [stdout, stderr] = ['', '']
  deploying.stdout.on('data', (chunk) => {
    stdout += chunk
  })
  deploying.stderr.on('data', (chunk) => {
    stderr += chunk
  })
  const [code] = await once(deploying, 'close')
  return { code, stdout, stderr }
}

const variable = (network: string) => `RPC_URL_${network.toUpperCase().replaceAll('-', '_')}`

/** A chain that plays the network, without our contracts, and what `deploy` needs to reach it. */
async function playNetwork(network: NetworkName, options: LocalChainOptions = {}) {
  const chain = await startLocalChain({ network, withContracts: false, blockTimeMs: 0, ...options })
  const file = join(directory, `${network}-${chain.port}.json`)
  const args = ['--network', network, '--deployments-file', file]
  const env = { [variable(network)]: chain.url, DEPLOYER_PRIVATE_KEY: devPrivateKey(1) }
  const client = createPublicClient({ transport: http(chain.url) })
  return { chain, file, args, env, client, [Symbol.asyncDispose]: chain.close }
}

const readJson = async (file: string) => JSON.parse(await readFile(file, 'utf8'))

const publicNetworks = Object.values(networks).filter(({ name }) => name !== 'localhost')

test.each(publicNetworks)('default: $name', async ({ name, usdc }) => {
  await using played = await playNetwork(name)
  const { code, stdout, stderr } = await deploy(played.args, played.env)
  expect([code, stderr]).toEqual([0, ''])
  // Printed before anything is sent.
  expect(stdout.indexOf(address)).toBeGreaterThan(-1)
  expect(stdout.indexOf(address)).toBeLessThan(stdout.indexOf('sent'))
  for (const { address, runtimeCode } of Object.values(contracts)) {
    expect(await played.client.getCode({ address })).toBe(runtimeCode)
  }
  // The last two blocks have the other contracts, the one before them BatchSettlement.
  const startBlock = Number(await played.client.getBlockNumber()) - 2
  expect(await readJson(played.file)).toEqual({
    ...committedDeployments,
    [name]: { ...contractAddresses, usdc, startBlock },
  })
  expect(stdout).toMatch(
    /api, keeper and indexer look in \S+deployments\.json: give them DEPLOYMENTS_FILE=\S+\n/,
  )
  expect(stdout).toContain(`DEPLOYMENTS_FILE=${played.file}\n`)
})

test('behavior: a second run sends nothing, and finds a start block that is not on record; other networks stay on record', async () => {
  await using played = await playNetwork('base')
  const other = { polygon: { batchSettlement: address, usdc: address, startBlock: 7 } }
  await writeFile(played.file, JSON.stringify(other))
  await deploy(played.args, played.env)
  const recorded = await readJson(played.file)
  expect(recorded).toEqual({ ...other, base: expect.anything() })

  const nonce = () => played.client.getTransactionCount({ address: devAccount(1).address })
  const sent = await nonce()
  const second = await deploy(played.args, played.env)
  expect(second).toMatchObject({ code: 0, stderr: '' })
  expect(second.stdout).toContain(`already deployed in block ${recorded.base.startBlock}`)
  expect(await readJson(played.file)).toEqual(recorded)

  for (let i = 0; i < 5; i++) await played.chain.mintUsdc([address], 1n)
  await rm(played.file)
  // Recorded in the file that processes are told to read.
  const told = await deploy(['--network', 'base'], { ...played.env, DEPLOYMENTS_FILE: played.file })
  expect(told.stdout).toMatch(new RegExp(`recorded  ${played.file}\\n$`))
  expect(await readJson(played.file)).toEqual({ ...committedDeployments, base: recorded.base })
  expect(await nonce()).toBe(sent)
})

test('behavior: where one contract is there already, only the others are sent', async () => {
  await using played = await playNetwork('base')
  const wallet = createWalletClient({ account: devAccount(1), transport: http(played.chain.url) })
  const data = create2Data(batchSettlement.creationCode)
  await wallet.sendTransaction({ chain: null, to: create2Factory, data })
  const startBlock = Number(await played.client.getBlockNumber())
  for (let i = 0; i < 2; i++) await played.chain.mintUsdc([address], 1n)

  const { stdout } = await deploy(played.args, played.env)
  expect(stdout.match(/^sent /gm)).toHaveLength(2)
  for (const { address, runtimeCode } of [splitterFactory, tabSettlement]) {
    expect(await played.client.getCode({ address })).toBe(runtimeCode)
  }
  expect(await readJson(played.file)).toMatchObject({ base: { startBlock } })
})

test('args: --help', async () => {
  const { code, stdout } = await deploy(['--help'])
  expect(code).toBe(0)
  expect(stdout).toContain('npm run deploy -- --network <name>')
})

test.each([
  ['no network', [], /^deploy: --network must be one of base, base-sepolia/],
  ['an unknown network', ['--network', 'solana'], /got "solana"/],
  ['an unknown option', ['--newtork', 'base'], /Unknown option '--newtork'.*Usage:/s],
  ['no RPC', ['--network', 'base'], /^deploy: RPC_URL_BASE: expected an http.*but it is not set/],
] as const)('error: %s', async (_, args, message) => {
  const { code, stderr } = await deploy([...args])
  expect(code).toBe(1)
  expect(stderr).toMatch(message)
})

test('error: an RPC that is no URL, or that nobody serves; its URL is not repeated', async () => {
  const env = { DEPLOYER_PRIVATE_KEY: devPrivateKey(1) }
  const malformed = await deploy(['--network', 'base'], { ...env, RPC_URL_BASE: 'secret' })
  expect(malformed).toMatchObject({
    code: 1,
    stderr:
      'deploy: RPC_URL_BASE: expected an http(s) URL, or several with commas between, got something else\n',
  })
  const dead = await deploy(['--network', 'base'], { ...env, RPC_URL_BASE: 'http://127.0.0.1:1/secret' })
  expect(dead).toMatchObject({ code: 1, stderr: expect.stringContaining("the RPC of base doesn't answer") })
  expect(dead.stderr).not.toContain('secret')
})

test('error: no key, or a malformed one, which is not repeated', async () => {
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

test('error: a deployments file that is no JSON, or can’t be written: known before anything is sent', async () => {
  const env = { RPC_URL_BASE: 'http://127.0.0.1:1', DEPLOYER_PRIVATE_KEY: devPrivateKey(1) }
  const broken = join(directory, 'broken.json')
  await writeFile(broken, '{')
  for (const file of [broken, join(directory, 'nowhere', 'deployments.json')]) {
    const { code, stderr } = await deploy(['--network', 'base', '--deployments-file', file], env)
    expect(code).toBe(1)
    expect(stderr).toMatch(/^deploy: \S+ can't be read and written \(--deployments-file\): .*\n$/)
  }
})

test('error: an RPC of another chain', async () => {
  await using played = await playNetwork('base-sepolia', { chainId: 8453 })
  const { code, stderr } = await deploy(played.args, played.env)
  expect(code).toBe(1)
  expect(stderr).toBe(
    'deploy: the RPC answers for chain id 8453, but base-sepolia is 84532; use an RPC of base-sepolia\n',
  )
})

test('error: a chain without USDC', async () => {
  await using played = await playNetwork('base', { bare: true })
  const { code, stderr } = await deploy(played.args, played.env)
  expect(code).toBe(1)
  expect(stderr).toContain(`there is no USDC at ${networks.base.usdc}; is this RPC really base?`)
})

test('error: a deployer without money, or with too little', async () => {
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
