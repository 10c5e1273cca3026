import { createLogRangeSearch, type LogRangeSearch } from '@tollkeeper/sdk/nodes/logRanges'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { type Address, type Hex, type Log, type RpcLog, type TransactionReceipt, toEventSelector } from 'viem'
import { canonicalReceipt } from './receipts.ts'
import type { ServedNetwork } from './servedNetworks.ts'
import { readTabBatches, type SettledTab } from './settledTabs.ts'

const usedTopic = toEventSelector('AuthorizationUsed(address,bytes32)')
const cancelledTopic = toEventSelector('AuthorizationCanceled(address,bytes32)')
export const transferTopic = toEventSelector('Transfer(address,address,uint256)')

/** The token, and the contract whose logs report what happened to tabs. */
export type EvidenceScope = Pick<ServedNetwork, 'token'> & {
  deployment: Pick<ServedNetwork['deployment'], 'tabSettlement'>
}

/** A use or cancellation of an authorization, from USDC's own logs. */
export type Evidence = {
  authorizer: Address
  nonce: Hex
  state: 'used' | 'cancelled'
  recipient: Address | null
  value: bigint | null
  /** The state of the tab that was settled, if TabSettlement settled it. */
  tab?: SettledTab | null
  txHash: Hex
  logIndex: number
  blockNumber: bigint
  blockHash: Hex
  /** Unix seconds. */
  blockTime: bigint
}

/**
 * Returns what a transaction did to authorizations, from the token's logs in its receipt. USDC emits the Transfer directly
 * after its AuthorizationUsed, from the same payer; a use without a Transfer doesn't prove a payment and is left out. TabSettlement
 * logs what it settled directly after the last use.
 */
export function readEvidence(
  receipt: TransactionReceipt,
  { token, deployment }: EvidenceScope,
  blockTime: bigint,
): Evidence[] {
  const logs = receipt.logs.filter((log) => log.address.toLowerCase() === token)
  const byIndex = new Map(logs.map((log) => [log.logIndex, log]))
  const { transactionHash: txHash, blockNumber, blockHash } = receipt
  const uses = logs.filter(({ topics }) => topics[0] === usedTopic).map(({ logIndex }) => logIndex)
  const tabs = new Map<number, SettledTab>()
  for (const batch of readTabBatches(receipt.logs, { token, tabSettlement: deployment.tabSettlement })) {
    const own = uses.filter((logIndex) => logIndex < batch.from).slice(-batch.tabs.length)
    for (const [index, logIndex] of own.entries()) {
      const tab = batch.tabs[index]
      if (tab) tabs.set(logIndex, tab)
    }
  }
  return logs.flatMap((log): Evidence[] => {
    const [event, authorizer, nonce] = log.topics
    if ((event !== usedTopic && event !== cancelledTopic) || !authorizer || !nonce) return []
    const { logIndex } = log
    const place = { txHash, logIndex, blockNumber, blockHash, blockTime }
    const key = { authorizer: addressOf(authorizer), nonce }
    if (event === cancelledTopic)
      return [{ ...key, state: 'cancelled', recipient: null, value: null, ...place }]
    const moved = byIndex.get(logIndex + 1)
    const recipient = moved?.topics[2]
    if (moved?.topics[0] !== transferTopic || moved.topics[1] !== authorizer || !recipient) return []
    const paid = {
      recipient: addressOf(recipient),
      value: BigInt(moved.data),
      tab: tabs.get(logIndex) ?? null,
    }
    return [{ ...key, state: 'used', ...paid, ...place }]
  })
}

/** Maximum number of blocks per request: most public nodes accept this many, and the others report their maximum. */
const longestRange = 2_000n
/** Maximum time in ms for which a search waits for a node that limits the rate of calls. Callers wait for the search. */
const patienceMs = 60_000

/** One search per client, which remembers what its nodes reject. */
const searches = new WeakMap<object, LogRangeSearch>()

function searchOf(client: ServedNetwork['client']): LogRangeSearch {
  const known = searches.get(client) ?? createLogRangeSearch(client, { longest: longestRange, patienceMs })
  searches.set(client, known)
  return known
}

/** An authorization to look for, and the earliest time (Unix seconds) at which it can have been used. */
export type WantedEvidence = Pick<SignedAuthorization, 'from' | 'nonce'> & { since: bigint }

/**
 * Finds the transactions that used or cancelled authorizations, by the nonces in USDC's own logs, from the head backwards. It
 * sends one request per range, for any number of authorizations.
 *
 * @returns what was found. The use of an authorization may be missing although another node reports it, because that node may be
 * ahead of the node that responds here.
 */
export async function findEvidence(
  { client, ...scope }: EvidenceScope & Pick<ServedNetwork, 'client'>,
  wanted: readonly WantedEvidence[],
  signal?: AbortSignal,
): Promise<Evidence[]> {
  const missing = new Map(wanted.map((one) => [keyOf(one.from, one.nonce), one]))
  const found: Evidence[] = []
  if (missing.size === 0) return found
  const nonces = [...missing.values()].map(({ nonce }) => nonce)
  const head = await client.getBlockNumber({ cacheTime: 0 })
  const parts = searchOf(client)(
    { address: scope.token, topics: [[usedTopic, cancelledTopic], null, nonces] },
    { fromBlock: 0n, toBlock: head, isBackwards: true, signal },
  )
  for await (const { fromBlock, logs } of parts) {
    const hashes = new Set(
      logs.filter((log) => missing.has(keyOfLog(log))).flatMap((log) => log.transactionHash ?? []),
    )
    for (const hash of hashes) {
      const mined = await canonicalReceipt(client, hash)
      if (mined === null) continue
      for (const evidence of readEvidence(mined.receipt, scope, mined.timestamp)) {
        if (missing.delete(keyOf(evidence.authorizer, evidence.nonce))) found.push(evidence)
      }
    }
    if (missing.size === 0) break
    const { timestamp } = await client.getBlock({ blockNumber: fromBlock })
    for (const [key, { since }] of missing) if (timestamp < since) missing.delete(key)
    if (missing.size === 0) break
  }
  return found
}

function keyOfLog({ topics }: Pick<Log | RpcLog, 'topics'>): string {
  return keyOf(addressOf(topics[1] ?? '0x'), topics[2] ?? '0x')
}

function keyOf(authorizer: string, nonce: string): string {
  return `${authorizer}:${nonce}`
}

function addressOf(topic: Hex): Address {
  return `0x${topic.slice(-40)}`
}
