import type { Address, Hash, RpcLog } from 'viem'
import { type ChainReader, topics } from './chainReader.ts'
import { chunk } from './concurrency.ts'
import { addressToTopic, type Evidence, readAuthorizations } from './evidence.ts'

/**
 * Finds every transfer of the token to or from a wallet in a period, and which of these transfers used an authorization.
 *
 * @param from Unix seconds, inclusive like `to`.
 * @returns `plain`: the number of transfers without an authorization.
 */
export async function findWalletTransfers(
  reader: ChainReader,
  wallet: Address,
  from: bigint,
  to: bigint,
  onFound: (count: number) => void = () => {},
): Promise<{ authorized: Evidence[]; plain: number }> {
  if (from > reader.head.time) return { authorized: [], plain: 0 }
  const first = await reader.findBlockBefore(from)
  // Extends the period by two hours, because `findBlockBefore` may return a block that is up to two hours too early.
  const last = await reader.findBlockBefore(to + 7200n)
  const topic = addressToTopic(wallet)
  const logs = new Map<string, RpcLog>()
  for (const filter of [
    [topics.transfer, null, topic],
    [topics.transfer, topic],
  ]) {
    for await (const found of reader.searchLogs(filter, first, last)) {
      for (const log of found) logs.set(`${log.transactionHash} ${log.logIndex}`, log)
      onFound(logs.size)
    }
  }

  const blocks = await reader.getBlocks([...logs.values()].map((log) => BigInt(log.blockNumber ?? 0)))
  const inTime = [...logs.values()].filter((log) => {
    const time = blocks.get(BigInt(log.blockNumber ?? 0))?.time
    return time !== undefined && time >= from && time <= to
  })
  const hashes = new Set(inTime.map(({ transactionHash }) => transactionHash as Hash))
  const authorized: Evidence[] = []
  for (const part of chunk([...hashes], 50)) {
    const found = await readAuthorizations(reader, part)
    authorized.push(
      ...found.filter(
        ({ authorizer, transfer }) => transfer && (authorizer === wallet || transfer.to === wallet),
      ),
    )
  }
  return { authorized, plain: inTime.length - authorized.length }
}
