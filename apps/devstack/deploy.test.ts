import { readFile, rm, writeFile } from 'node:fs/promises'
import { committedDeployments } from '@tollkeeper/sdk/protocol/deployments'
import { defineNetwork } from '@tollkeeper/sdk/protocol/networkDefinition'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { createWalletClient, http } from 'viem'
import { expect, test } from 'vitest'
import { useDeploy } from '../../test/support/deploy.ts'
import { forgetOwnNetworks } from '../../test/support/ownNetworks.ts'
import { devAccount } from './chain/accounts.ts'
import { contractAddresses, contracts } from './chain/contracts.ts'
import { create2Data, create2Factory, create2GasLimit } from './chain/create2.ts'
import { playedPostingGas } from './chain/prepareChain.ts'

const { batchSettlement, splitterFactory, tabSettlement } = contracts
const { address } = batchSettlement
forgetOwnNetworks()
const { deploy, playNetwork, pathOf } = useDeploy()

const readJson = async (file: string) => JSON.parse(await readFile(file, 'utf8'))

const publicNetworks = Object.values(networks).filter(({ name }) => name !== 'localhost')

test.each(publicNetworks)(
  'default: deploys all contracts to $name, and records their addresses',
  async ({ name, usdc }) => {
    await using played = await playNetwork(name)
    const { code, stdout, stderr } = await deploy(played.args, played.env)
    expect([code, stderr]).toEqual([0, ''])
    // The address is printed before anything is sent.
    expect(stdout.indexOf(address)).toBeGreaterThan(-1)
    expect(stdout.indexOf(address)).toBeLessThan(stdout.indexOf('sent'))
    for (const { address, runtimeCode } of Object.values(contracts)) {
      expect(await played.client.getCode({ address })).toBe(runtimeCode)
    }
    // The last two blocks contain the other contracts. BatchSettlement is in the block before them.
    const startBlock = Number(await played.client.getBlockNumber()) - 2
    expect(await readJson(played.file)).toEqual({
      ...committedDeployments,
      [name]: { ...contractAddresses, usdc, startBlock },
    })
    expect(stdout).toMatch(
      /api, keeper and indexer read \S+deployments\.json: give them DEPLOYMENTS_FILE=\S+\n/,
    )
    expect(stdout).toContain(`DEPLOYMENTS_FILE=${played.file}\n`)
  },
)

test('deploys to a network of NETWORKS_FILE at the usual addresses, with enough gas for the transaction data if it is an Arbitrum chain', async () => {
  const definition = {
    chainId: 7_000_001,
    usdc: '0x5afe5afe5afe5afe5afe5afe5afe5afe5afe5afe',
    eip712: { name: 'USDC', version: '2' },
    testnet: true,
    confirmations: 2,
    blockTimeMs: 500,
    gasModel: 'arbitrum',
  } as const
  defineNetwork('deploy-chain', definition)
  const file = pathOf('networks.json')
  await writeFile(file, JSON.stringify({ 'deploy-chain': definition }))
  await using played = await playNetwork('deploy-chain')
  const { code, stderr } = await deploy(played.args, { ...played.env, NETWORKS_FILE: file })
  expect([code, stderr]).toEqual([0, ''])
  expect(await readJson(played.file)).toMatchObject({
    'deploy-chain': { ...contractAddresses, usdc: definition.usdc },
  })
  const { transactions } = await played.client.getBlock({ includeTransactions: true })
  expect(transactions.map(({ gas }) => gas)).toEqual([
    create2GasLimit(tabSettlement.creationCode) + 2n * BigInt(playedPostingGas),
  ])

  const unknown = await deploy(played.args, played.env)
  expect([unknown.code, unknown.stderr]).toEqual([
    1,
    expect.stringMatching(/--network must be one of base, .*; got "deploy-chain"/),
  ])
})

test('behavior: sends nothing in a second run, finds an unrecorded start block, and keeps other networks’ records', async () => {
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
  const { stdout, stderr } = await deploy([...played.args, '--json'], played.env)
  expect(JSON.parse(stdout)).toEqual({ network: 'base', file: played.file, ...recorded.base })
  expect(stderr).toContain('already deployed')

  for (let i = 0; i < 5; i++) await played.chain.mintUsdc([address], 1n)
  await rm(played.file)
  // The addresses are recorded in the file that the processes are configured to read.
  const told = await deploy(['--network', 'base'], { ...played.env, DEPLOYMENTS_FILE: played.file })
  expect(told.stdout).toMatch(new RegExp(`recorded  ${played.file}\\n$`))
  expect(await readJson(played.file)).toEqual({ ...committedDeployments, base: recorded.base })
  expect(await nonce()).toBe(sent)
})

test('behavior: deploys only the contracts that are missing', async () => {
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
