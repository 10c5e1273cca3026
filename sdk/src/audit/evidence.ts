import { type Address, type Hash, type Hex, pad, type RpcLog } from 'viem'
import { ProtocolError } from '../protocol/errors.ts'
import { readTabBatches, tabsByUse } from '../protocol/tabBatches.ts'
import type { SettledTab } from '../protocol/tabSettlement.ts'
import { largest, smallest } from './bigints.ts'
import { type ChainReader, topics } from './chainReader.ts'
import { chunk } from './concurrency.ts'

/** USDC's own logs about one authorization. */
export type Evidence = {
  kind: 'used' | 'cancelled'
  authorizer: Address
  nonce: Hex
  /** The Transfer log directly after AuthorizationUsed, from the same address. */
  transfer?: { to: Address; value: bigint }
  transactionHash: Hash
  blockNumber: bigint
  blockHash: Hash
  /** Unix seconds. */
  blockTime: bigint
  /** The state of the tab that was settled, as TabSettlement logged it. Undefined if TabSettlement didn't use the authorization. */
  tab?: SettledTab
  /** The index of the AuthorizationUsed or AuthorizationCanceled log. */
  logIndex: number
}

/** An authorization to search for, with the times and the transaction from its receipt. */
export type Wanted = {
  payer: Address
  nonce: Hex
  /** Unix seconds. */
  acceptedAt: bigint
  validBefore: bigint
  /** The transaction that the receipt names. It only tells where to look: the transaction's logs are the evidence. */
  hint?: Hash
}

/** Evidence by nonce. A nonce can have several entries, because any other address can use the same nonce. */
export type EvidenceByNonce = Map<Hex, Evidence[]>

/** Maximum number of nonces in one log filter. Nodes accept at most 1,000. */
const noncesPerFilter = 250
/** A chain with fewer blocks than this is searched completely. */
const wholeRange = 10_000n
const windowSlackSeconds = 3600n
/** Maximum number of times that the same transactions are read. If reorgs continue after that, the audit fails. */
const attempts = 4

/**
 * Finds the logs about each authorization: first in the transactions that the receipts name, then by searching for the
 * nonces.
 *
 * Fails if a call fails, because an authorization that a failed call didn't find would look unused.
 */
export async function findEvidence(
  reader: ChainReader,
  wanted: readonly Wanted[],
  onFound: (count: number) => void = () => {},
): Promise<EvidenceByNonce> {
  const evidence: EvidenceByNonce = new Map()
  const nonces = new Set(wanted.map(({ nonce }) => nonce))
  const isOpen = ({ payer, nonce }: Wanted) =>
    !evidence.get(nonce)?.some(({ authorizer }) => authorizer === payer)

  const readTransactions = async (hashes: readonly Hash[]) => {
    for (const part of chunk([...new Set(hashes)], 50)) {
      for (const found of await readAuthorizations(reader, part)) {
        const known = evidence.get(found.nonce) ?? []
        const isKnown = known.some(({ authorizer }) => authorizer === found.authorizer)
        if (nonces.has(found.nonce) && !isKnown) evidence.set(found.nonce, [...known, found])
      }
      onFound(wanted.filter((one) => !isOpen(one)).length)
    }
  }

  await readTransactions(wanted.flatMap(({ hint }) => hint ?? []))

  const open = wanted.filter(isOpen).sort((a, b) => (a.acceptedAt < b.acceptedAt ? -1 : 1))
  for (const part of chunk(open, noncesPerFilter)) {
    const { from, to } = await chooseWindow(reader, part)
    await readTransactions(await findTransactions(reader, part, from, to))
    if (from === reader.fromBlock && to === reader.head.number) continue
    // The authorizations may have been used outside this window. Search the whole chain only for those that USDC's storage marks as used.
    const notFound = part.filter(isOpen)
    const isUsed = await reader.getAuthorizationStates(notFound)
    const outside = notFound.filter((_, i) => isUsed[i])
    if (outside.length === 0) continue
    await readTransactions(await findTransactions(reader, outside, reader.fromBlock, reader.head.number))
  }
  return evidence
}

/** Reads every authorization that the given transactions used or cancelled, in canonical blocks. */
export async function readAuthorizations(reader: ChainReader, hashes: readonly Hash[]): Promise<Evidence[]> {
  for (let attempt = 1; ; attempt++) {
    const logs = await reader.getLogs(hashes)
    const found = [...logs.values()].flatMap((own) => pairLogs(own, reader))
    const blocks = await reader.getBlocks(found.map(({ blockNumber }) => blockNumber))
    const isCanonical = found.every((one) => blocks.get(one.blockNumber)?.hash === one.blockHash)
    if (isCanonical) {
      return found.map((one) => ({ ...one, blockTime: blocks.get(one.blockNumber)?.time ?? 0n }))
    }
    if (attempt === attempts) {
      throw new ProtocolError(
        'dependency_unavailable',
        'The chain was reorganized repeatedly while it was being read',
      )
    }
  }
}

/**
 * Pairs each AuthorizationUsed of the token with the Transfer at the next log index, if both name the same address. Adds the tab that the
 * authorization settled, if any.
 *
 * @param all the logs of one transaction.
 */
export function pairLogs(
  all: readonly RpcLog[],
  { token, tabSettlement }: Pick<ChainReader, 'token' | 'tabSettlement'>,
): Omit<Evidence, 'blockTime'>[] {
  const logs = all.filter(({ address }) => address.toLowerCase() === token)
  const transfers = new Map(
    logs
      .filter((log) => log.topics[0] === topics.transfer)
      .map((log) => [Number(log.logIndex), log] as const),
  )
  const batches = readTabBatches(
    all.map((log) => ({ ...log, logIndex: Number(log.logIndex) })),
    { token, tabSettlement },
  )
  const uses = logs.filter((log) => log.topics[0] === topics.used)
  const tabs = tabsByUse(
    batches,
    uses.map((log) => Number(log.logIndex)),
  )
  return logs.flatMap((log) => {
    const [topic, authorizer, nonce] = log.topics
    const kind = topic === topics.used ? 'used' : topic === topics.cancelled ? 'cancelled' : undefined
    if (!kind || !authorizer || !nonce || !log.transactionHash || !log.blockHash || !log.blockNumber)
      return []
    const logIndex = Number(log.logIndex)
    const transfer = kind === 'used' ? transfers.get(logIndex + 1) : undefined
    const recipient = transfer?.topics[1] === authorizer ? transfer.topics[2] : undefined
    const tab = tabs.get(logIndex)
    return {
      kind,
      authorizer: topicToAddress(authorizer),
      nonce,
      ...(transfer &&
        recipient && { transfer: { to: topicToAddress(recipient), value: BigInt(transfer.data) } }),
      ...(tab && { tab }),
      transactionHash: log.transactionHash,
      blockNumber: BigInt(log.blockNumber),
      blockHash: log.blockHash,
      logIndex,
    }
  })
}

export function addressToTopic(address: Address): Hex {
  return pad(address, { size: 32 })
}

export function topicToAddress(topic: Hex | undefined): Address {
  return `0x${topic?.slice(26)}`
}

/**
 * Finds the transactions that used or cancelled any of the nonces. It accepts any payer, so that the audit can tell a receipt with a wrong payer from
 * a receipt that was never paid.
 */
async function findTransactions(
  reader: ChainReader,
  wanted: readonly Wanted[],
  from: bigint,
  to: bigint,
): Promise<Hash[]> {
  const hashes = new Set<Hash>()
  const left = new Set(wanted.map(({ payer, nonce }) => `${addressToTopic(payer)} ${nonce}`))
  const nonces = wanted.map(({ nonce }) => nonce)
  for await (const logs of reader.searchLogs([[topics.used, topics.cancelled], null, nonces], from, to)) {
    for (const log of logs) {
      if (log.transactionHash) hashes.add(log.transactionHash)
      left.delete(`${log.topics[1]} ${log.topics[2]}`)
    }
    if (left.size === 0) break
  }
  return [...hashes]
}

/** Returns the range of blocks from one hour before the first payment was accepted to one hour after the last payment expires. */
async function chooseWindow(reader: ChainReader, wanted: readonly Wanted[]) {
  const { fromBlock, head } = reader
  if (head.number - fromBlock < wholeRange) return { from: fromBlock, to: head.number }
  const earliest = smallest(head.time, ...wanted.map(({ acceptedAt }) => acceptedAt))
  const latest = largest(0n, ...wanted.map(({ validBefore }) => validBefore))
  const from = await reader.findBlockBefore(earliest - windowSlackSeconds)
  // `findBlockBefore` may return a block that is up to two hours too early.
  const to = await reader.findBlockBefore(latest + 3n * windowSlackSeconds)
  return { from, to: largest(from, to) }
}
