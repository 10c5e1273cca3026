import type { KeeperAccount, RemoteAccount } from '@tollkeeper/chain/remoteSigner'
import { type SignerCode, SignerError, signTransaction } from '@tollkeeper/chain/signTransaction'
import { openAccounts, readWallets } from '@tollkeeper/keeper/settings/config'
import { ConfigError, type Environment } from '@tollkeeper/runtime/env'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { formatEther } from 'viem'
import { type Check, fail, ok, reasonOf, skipped, warn } from './check.ts'
import type { ExaminedNetwork } from './networks.ts'

/** Gas of a full batch. */
const batchGas = 15_500_000n
/** Number of full batches that a wallet should be able to pay for. */
const comfortable = 20n

/** Checks that each wallet of the keeper can pay for batches at the current gas price, and that its signer works. */
export async function* examineGas(
  env: Environment,
  networks: readonly ExaminedNetwork[],
): AsyncGenerator<Check> {
  let accounts: KeeperAccount[]
  try {
    accounts = openAccounts(readWallets(env))
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    const advice =
      '32-byte hex keys, one per line or separated by commas; for a remote signer, its URL, addresses and PEM files'
    yield fail('gas', error.message, advice)
    return
  }
  if (accounts.length === 0) {
    const found = 'no keeper keys here (KEEPER_KEY_FILE, KEEPER_PRIVATE_KEYS, KEEPER_SIGNER_URL)'
    yield { name: 'gas', status: 'skip', found }
    return
  }
  for (const { network } of networks)
    for (const account of accounts) if ('check' in account) yield await examineSigner(account, network)
  const wallets = accounts.map(({ address }) => address)
  for (const { network, client } of networks) {
    if (!client) {
      yield skipped(`${network.name}: gas`, 'a node that responds for this chain')
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
        const found = `${formatEther(balance)} ${network.gasToken}, good for ${batches > 9999n ? 'over 9999' : batches} full batches`
        const judge = batches === 0n ? fail : warn
        yield batches >= comfortable
          ? ok(name, found)
          : judge(name, found, `send ${network.gasToken} on ${network.name} to ${wallet}`)
      } catch (error) {
        yield fail(name, `its balance can't be read: ${reasonOf(error)}`, 'check the RPC')
      }
    }
  }
}

/**
 * Asks the signer for a signature, because only a signature shows for which chain the signer is configured. The signed transaction
 * has no gas, so no chain would accept it.
 */
async function examineSigner(account: RemoteAccount, { name: network, chainId }: Network): Promise<Check> {
  const { address } = account
  const name = `${network}: signer of ${address.slice(0, 8)}`
  const nothing = {
    value: 0n,
    data: '0x',
    nonce: 0,
    gas: 0n,
    maxFeePerGas: 0n,
    maxPriorityFeePerGas: 0n,
  } as const
  try {
    const begun = performance.now()
    await account.check(chainId)
    await signTransaction(account, { ...nothing, type: 'eip1559', chainId, to: address })
    return ok(name, `signs, in ${Math.round(performance.now() - begun)} ms`)
  } catch (error) {
    const code = error instanceof SignerError ? error.code : 'signer_unavailable'
    return fail(name, `${code}: ${reasonOf(error)}`, advices[code])
  }
}

const advices: Record<SignerCode, string> = {
  signer_unavailable:
    'check that KEEPER_SIGNER_URL is right, that the signer runs, and that its certificates match KEEPER_SIGNER_CA_FILE and _CERT_FILE',
  signer_refused:
    'load its key into the signer, or correct KEEPER_SIGNER_ADDRESSES; see the log of the signer',
  signer_mismatch:
    "configure the signer for this chain (web3signer's --chain-id); each network needs a separate signer. Until then, no transaction is sent on this network",
}
