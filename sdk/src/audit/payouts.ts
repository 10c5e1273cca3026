import type { Address, RpcLog } from 'viem'
import type { ReceiptClaims } from '../protocol/receipt.ts'
import { splitterAddress } from '../protocol/splitter.ts'
import { smallest } from './bigints.ts'
import { type ChainReader, topics } from './chainReader.ts'
import { chunk } from './concurrency.ts'
import { addressToTopic, topicToAddress } from './evidence.ts'
import type { AuditedHalf, AuditedPayout } from './report.ts'

/** The payouts of each splitter, in chain order. */
export type Payouts = ReadonlyMap<Address, readonly Payout[]>

type Payout = Omit<AuditedPayout, 'isPlatformPaid'> & { platform: Address; provider: Address }

/** Maximum number of senders in one log filter. */
const sendersPerFilter = 100

/**
 * Finds what splitters paid out. A payout is two consecutive Transfers of one sender. Transfers of 0 are ignored, because anyone can make the
 * token log a Transfer of 0 from any address.
 *
 * @param paid the splitters that settled receipts paid, each with the first block in which a receipt paid it.
 */
export async function findPayouts(
  reader: ChainReader,
  paid: readonly { splitter: Address; since: bigint }[],
): Promise<Payouts> {
  const logs = new Map<Address, RpcLog[]>()
  for (const part of chunk(paid, sendersPerFilter)) {
    const from = smallest(reader.head.number, ...part.map(({ since }) => since))
    const senders = part.map(({ splitter }) => addressToTopic(splitter))
    for await (const found of reader.searchLogs([topics.transfer, senders], from, reader.head.number)) {
      for (const log of found) {
        const sender = topicToAddress(log.topics[1])
        logs.set(sender, [...(logs.get(sender) ?? []), log])
      }
    }
  }
  return new Map([...logs].map(([splitter, own]) => [splitter, pairTransfers(own)]))
}

function pairTransfers(logs: readonly RpcLog[]): Payout[] {
  const inOrder = logs
    .filter(({ data }) => BigInt(data) > 0n)
    .sort(
      (a, b) =>
        Number(BigInt(a.blockNumber ?? 0) - BigInt(b.blockNumber ?? 0)) ||
        Number(a.logIndex) - Number(b.logIndex),
    )
  return inOrder.flatMap((log, index): Payout[] => {
    const next = inOrder[index + 1]
    const isPair =
      next?.transactionHash === log.transactionHash && Number(next?.logIndex) === Number(log.logIndex) + 1
    if (!isPair || !log.transactionHash || !log.blockNumber) return []
    return [
      {
        transactionHash: log.transactionHash,
        blockNumber: BigInt(log.blockNumber),
        logIndex: Number(log.logIndex),
        platform: topicToAddress(log.topics[2]),
        provider: topicToAddress(next?.topics[2]),
      },
    ]
  })
}

/**
 * Returns the payout that contains a payment. It is the first payout after the payment arrived, because a sweep pays out the whole balance.
 */
export function payoutOf(
  { split, tab }: ReceiptClaims,
  { to, onChain }: AuditedHalf,
  payouts: Payouts,
  factory: Address,
): AuditedPayout | 'waiting' | undefined {
  if (!split || tab || !onChain) return undefined
  const own = { provider: split.platform, platform: split.platform, providerShare: 1n, platformShare: 0n }
  const recipients = [split.platform, splitterAddress({ ...own, factory })]
  const found = payouts
    .get(to)
    ?.find(
      ({ blockNumber, logIndex, platform, provider }) =>
        recipients.includes(platform) &&
        provider === split.provider &&
        (blockNumber > onChain.blockNumber ||
          (blockNumber === onChain.blockNumber && logIndex > onChain.logIndex)),
    )
  if (!found) return 'waiting'
  const { platform, provider: _, ...place } = found
  return { ...place, isPlatformPaid: platform === split.platform }
}
