import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { decodeOutcomes } from '@tollkeeper/sdk/protocol/batchSettlement'
import type { Deployment } from '@tollkeeper/sdk/protocol/deployments'
import { providerOfSplit } from '@tollkeeper/sdk/protocol/tab'
import { type Address, decodeEventLog, type Hash, type Hex, type TransactionReceipt } from 'viem'
import { type EvidenceScope, readEvidence, transferTopic } from './evidence.ts'
import { batchSettled, readTabBatches, type TabBatch } from './settledTabs.ts'

/** A BatchSettled event, with what USDC's own logs show about the batch. */
export type SettledBatch = {
  txHash: Hash
  logIndex: number
  /** The caller of `settle`. */
  keeper: Address
  triggerCode: number
  /** Number of payments of which at least one authorization settled. */
  paymentCount: number
  /** USDC base units. */
  providerTotal: bigint
  feeTotal: bigint
  /** Gas of the whole transaction. */
  gasUsed: bigint
  /** Cost of the whole transaction in wei, including the L1 fee. */
  gasCost: bigint
  recipients: { recipient: Address; paymentCount: number; total: bigint }[]
  blockNumber: bigint
  blockHash: Hex
  /** Unix seconds. */
  blockTime: bigint
}

/** Returns the cost of a transaction in wei, including the L1 fee of the OP stack. */
export function gasCostOf(receipt: TransactionReceipt): bigint {
  const l1Fee = 'l1Fee' in receipt && typeof receipt.l1Fee === 'bigint' ? receipt.l1Fee : 0n
  return receipt.gasUsed * receipt.effectiveGasPrice + l1Fee
}

/**
 * Returns the batches that a transaction settled. `settle` emits BatchSettled last, with one outcome for each authorization that
 * it tried. So if n authorizations settled, they are the last n uses before this event, and come after the previous BatchSettled. In
 * a batch of tabs, the contract's own transfers pay the recipients. The indexer reads logs in the same way.
 */
export function readSettledBatches(
  receipt: TransactionReceipt,
  scope: EvidenceScope & { deployment: Pick<Deployment, 'batchSettlement'> },
  blockTime: bigint,
): SettledBatch[] {
  const { token, deployment } = scope
  const { batchSettlement, tabSettlement } = deployment
  const uses = readEvidence(receipt, scope, blockTime).flatMap(({ logIndex, recipient, value }) =>
    recipient === null || value === null ? [] : [{ logIndex, recipient, value }],
  )
  const tabBatches = readTabBatches(receipt.logs, { token, tabSettlement })
  const { transactionHash: txHash, blockNumber, blockHash, gasUsed } = receipt
  let before = -1
  return receipt.logs.flatMap(({ address, topics, data, logIndex }): SettledBatch[] => {
    const contract = address.toLowerCase()
    if ((contract !== batchSettlement && contract !== tabSettlement) || topics[0] !== batchSettled) return []
    const own = uses.filter((use) => use.logIndex > before && use.logIndex < logIndex)
    before = logIndex
    const { args } = decodeEventLog({ abi: batchSettlementAbi, eventName: 'BatchSettled', topics, data })
    if (args.token.toLowerCase() !== token) return []
    const outcomes = decodeOutcomes(args.outcomes)
    const halves = outcomes.flatMap(({ provider, fee }) => [
      ...(provider === 'settled' ? [0] : []),
      ...(fee === 'settled' ? [1] : []),
    ])
    const ofTabs = contract === tabSettlement ? tabBatches.find(({ to }) => to === logIndex) : undefined
    const settled = ofTabs ? [] : own.slice(-halves.length || own.length)
    const recipients = ofTabs
      ? readTabRecipients(receipt, ofTabs, scope)
      : new Map<Address, SettledBatch['recipients'][number]>()
    const totals: [bigint, bigint] = ofTabs ? [args.providerTotal, args.feeTotal] : [0n, 0n]
    for (const [index, { recipient, value }] of settled.entries()) {
      totals[halves[index] === 1 ? 1 : 0] += value
      const sum = recipients.get(recipient) ?? { recipient, paymentCount: 0, total: 0n }
      recipients.set(recipient, { ...sum, paymentCount: sum.paymentCount + 1, total: sum.total + value })
    }
    return [
      {
        txHash,
        logIndex,
        blockNumber,
        blockHash,
        blockTime,
        gasUsed,
        gasCost: gasCostOf(receipt),
        keeper: args.keeper.toLowerCase() as Address,
        triggerCode: args.trigger,
        paymentCount: outcomes.filter(({ provider, fee }) => provider === 'settled' || fee === 'settled')
          .length,
        providerTotal: totals[0],
        feeTotal: totals[1],
        recipients: [...recipients.values()],
      },
    ]
  })
}

/** Returns the recipients of a batch of tabs: each provider, the platform (once for all tabs), and the account that settled. */
function readTabRecipients(
  { logs }: TransactionReceipt,
  { from, to, tabs }: TabBatch,
  { token, deployment: { tabSettlement } }: EvidenceScope,
): Map<Address, SettledBatch['recipients'][number]> {
  const recipients = new Map<Address, SettledBatch['recipients'][number]>()
  for (const { address, topics, data, logIndex } of logs) {
    const [topic, sender, receiver] = topics
    if (address.toLowerCase() !== token || topic !== transferTopic || !sender || !receiver) continue
    if (logIndex < from || logIndex > to || `0x${sender.slice(-40)}` !== tabSettlement) continue
    const recipient: Address = `0x${receiver.slice(-40)}`
    const own = tabs.filter(({ lines }) => lines.some(({ split }) => providerOfSplit(split) === recipient))
    const total = (recipients.get(recipient)?.total ?? 0n) + BigInt(data)
    recipients.set(recipient, { recipient, paymentCount: own.length || tabs.length, total })
  }
  return recipients
}
