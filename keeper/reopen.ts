import { parseArgs } from 'node:util'
import { type Address, createPublicClient, fallback, http } from 'viem'
import { type NetworkSettings, readNetworkSettings } from '#chain/networkSettings'
import { type Database, openDatabase } from '#ledger/database'
import { readActedBlock, readIndexedHead } from '#ledger/indexedHead'
import { judgeIndex } from '#ledger/indexState'
import { dropEvidence, readHeldWallets, reopenUnsettled } from '#ledger/reopen'
import { ConfigError, readVariable, requireVariable } from '#process/env'

// After a reorg that was deeper than the indexer's finality, when the rebuilt index has caught up (docs/operations.md):
// opens again what was concluded on the word of blocks that are gone.
//   node keeper/reopen.ts [--network base]

const { values } = parseArgs({ options: { network: { type: 'string', multiple: true } } })

try {
  const served = readNetworkSettings(process.env)
  const unknown = values.network?.find((name) => !served.some(({ network }) => network.name === name))
  if (unknown !== undefined) throw new ConfigError('--network', 'a network that is served', unknown)
  const url = requireVariable(process.env, 'DATABASE_URL')
  const database = openDatabase({ url, max: 1, applicationName: 'tollkeeper-reopen', limited: false })
  try {
    for (const one of served) {
      if (values.network === undefined || values.network.includes(one.network.name))
        await reopen(database, one)
    }
  } finally {
    await database.end({ timeout: 1 })
  }
} catch (error) {
  process.stderr.write(`reopen: ${error instanceof Error ? error.message : String(error)}\n`)
  process.exitCode = 1
}

async function reopen(database: Database, { network, deployment, rpcUrls }: NetworkSettings): Promise<void> {
  const { chainId, name } = network
  const held = await readHeldWallets(database, chainId)
  if (held.length > 0) throw new Error(`${name}: a keeper holds ${held.join(', ')}: stop the keepers first`)
  const indexed = await readIndexedHead(database, chainId)
  const client = createPublicClient({ transport: fallback(rpcUrls.map((url) => http(url))) })
  const head = await client.getBlockNumber().catch(() => {
    throw new Error(`${name}: no RPC answers, and the index can't be held against the chain`)
  })
  const lag = BigInt(readVariable(process.env, 'INDEX_MAX_LAG_BLOCKS'))
  const index = judgeIndex(indexed, await readActedBlock(database, chainId), head, lag)
  // An index that is only beginning shows nothing settled.
  if (index.status === 'behind')
    throw new Error(`${name}: the index is behind (${index.reason}): let it catch up`)

  const token = deployment.usdc.toLowerCase() as Address
  const dropped = await dropEvidence(database, { chainId, token }, async ({ blockNumber, blockHash }) => {
    if (blockNumber > head) return true
    return (await client.getBlock({ blockNumber })).hash !== blockHash
  })
  const { settled, failed } = await reopenUnsettled(database, chainId)
  process.stdout.write(
    `${name}: ${settled} concluded and ${failed} failed payments are open again, ` +
      `${dropped} pieces of evidence are dropped; start the keepers\n`,
  )
}
