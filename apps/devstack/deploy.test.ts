import { readFile, rm, writeFile } from 'node:fs/promises'
import { committedDeployments } from '@tollkeeper/sdk/protocol/deployments'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { createWalletClient, http } from 'viem'
import { expect, test } from 'vitest'
import { useDeploy } from '../../test/support/deploy.ts'
import { devAccount } from './chain/accounts.ts'
import { contractAddresses, contracts } from './chain/contracts.ts'
import { create2Data, create2Factory } from './chain/create2.ts'

const { batchSettlement, splitterFactory, tabSettlement } = contracts
const { address } = batchSettlement
const { deploy, playNetwork } = useDeploy()

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
