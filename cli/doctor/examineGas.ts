import { type Address, formatEther } from 'viem'
import { privateKeyToAddress } from 'viem/accounts'
import { readPrivateKeys } from '#keeper/settings/config'
import { ConfigError, type Environment } from '#process/env'
import { type Check, reasonOf, skipped } from './check.ts'
import type { ExaminedNetwork } from './networks.ts'

/** Gas of a full batch. */
const batchGas = 15_500_000n
/** How many full batches a wallet should be able to pay for. */
const comfortable = 20n

/** Checks that each wallet of the keeper can pay for batches at the network's current gas price. */
export async function* examineGas(
  env: Environment,
  networks: readonly ExaminedNetwork[],
): AsyncGenerator<Check> {
  let wallets: Address[]
  try {
    wallets = readPrivateKeys(env).map((key) => privateKeyToAddress(key))
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    yield {
      name: 'gas',
      status: 'fail',
      found: error.message,
      advice: '32-byte hex keys, one a line or with commas',
    }
    return
  }
  if (wallets.length === 0) {
    yield { name: 'gas', status: 'skip', found: 'no keeper keys here (KEEPER_KEY_FILE, KEEPER_PRIVATE_KEYS)' }
    return
  }
  for (const { network, client } of networks) {
    if (!client) {
      yield skipped(`${network.name}: gas`, 'a node that answers for this chain')
      continue
    }
    for (const wallet of wallets) {
      const name = `${network.name}: gas of ${wallet.slice(0, 8)}`
      try {
        const [balance, gasPrice] = await Promise.all([
          client.getBalance({ address: wallet }),
          client.getGasPrice(),
        ])
        const batches = balance / (gasPrice * batchGas || 1n)
        const found = `${formatEther(balance)} ETH, good for ${batches > 9999n ? 'over 9999' : batches} full batches`
        if (batches >= comfortable) yield { name, status: 'ok', found }
        else {
          const status = batches === 0n ? 'fail' : 'warn'
          yield { name, status, found, advice: `send ETH on ${network.name} to ${wallet}` }
        }
      } catch (error) {
        yield {
          name,
          status: 'fail',
          found: `its balance can't be read: ${reasonOf(error)}`,
          advice: 'check the RPC',
        }
      }
    }
  }
}
