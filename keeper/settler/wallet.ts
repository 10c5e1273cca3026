import { hashHex } from '@tollkeeper/chain/keccak256'
import type { KeeperAccount, RemoteAccount } from '@tollkeeper/chain/remoteSigner'
import { SignerError, type SigningAccount, signTransaction } from '@tollkeeper/chain/signTransaction'
import type { Probe } from '@tollkeeper/runtime/health'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { type Address, type PrivateKeyAccount, parseSignature, serializeTransaction } from 'viem'
import type { SettlementWallet } from './context.ts'

type Failure = { error: SignerError; at: number }

/**
 * Time in ms for which a signer that returned no signature is reported as failing, even if it answers probes. The report must end by itself, because
 * the next signature may not be needed for hours.
 */
const rememberedMs = 300_000

/** Creates the wallet of an account on one network. Signatures by a key in this process need no check; all others are checked. */
export function createWallet(account: KeeperAccount, network: Network): SettlementWallet {
  let failure: Failure | null = null
  const isOwn = isKeyHere(account)
  return {
    address: account.address.toLowerCase() as Address,
    async sign(transaction) {
      const typed = { ...transaction, type: 'eip1559' } as const
      if (isOwn) {
        const hash = hashHex(serializeTransaction(typed))
        return serializeTransaction(typed, parseSignature(await account.sign({ hash })))
      }
      try {
        const raw = await signTransaction(account, typed)
        failure = null
        return raw
      } catch (error) {
        if (error instanceof SignerError) failure = { error, at: performance.now() }
        throw error
      }
    },
    ...(!isOwn && { probe: probeOf(account, network, () => failure) }),
  }
}

/** Returns the probes of wallets with a remote signer. If there are several wallets, a failing signer doesn't make the keeper unready. */
export function signerProbes(wallets: readonly SettlementWallet[]): Probe[] {
  const isOneOfSeveral = wallets.length > 1
  return wallets.flatMap(({ probe }) =>
    probe ? { ...probe, ...(isOneOfSeveral && { optional: true as const }) } : [],
  )
}

/** Returns a probe that fails if the last signature failed, if the signer doesn't answer, or if it lacks the key. */
function probeOf(account: SigningAccount, { name, chainId }: Network, failure: () => Failure | null): Probe {
  return {
    name: `signer ${name} ${account.address.toLowerCase()}`,
    network: name,
    async ask() {
      const last = failure()
      const isOver =
        last && last.error.code !== 'signer_mismatch' && performance.now() - last.at > rememberedMs
      if (last && !isOver) throw last.error
      if ('check' in account) await (account as RemoteAccount).check(chainId)
    },
  }
}

function isKeyHere(account: KeeperAccount): account is PrivateKeyAccount {
  return 'source' in account && account.source === 'privateKey'
}
