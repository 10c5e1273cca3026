import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { type Address, type Hash, type PublicClient, parseEventLogs, type TransactionReceipt } from 'viem'

/** Names of the triggers, by their number in the event BatchSettled. */
const triggerNames = ['amount', 'count', 'time', 'high_value', 'expiry', 'submission'] as const
type TriggerName = (typeof triggerNames)[number]

export type Batch = {
  txHash: Hash
  trigger: TriggerName
  /** The keeper that sent the batch. For a batch of tabs, it also earned the reward. */
  keeper: Address
  /** Number of payments, which is the length of `outcomes` in bytes. */
  payments: number
  gasUsed: bigint
  receipt: TransactionReceipt
}

/** Reads all settlement transactions of one contract, oldest first. BatchSettlement and TabSettlement emit the same event. */
export async function readBatches(client: PublicClient, contract: Address): Promise<Batch[]> {
  const logs = await client.getLogs({ address: contract, fromBlock: 0n })
  const settled = parseEventLogs({ abi: batchSettlementAbi, eventName: 'BatchSettled', logs })
  return Promise.all(
    settled.map(async ({ args, transactionHash }) => {
      const trigger = triggerNames[args.trigger]
      if (trigger === undefined) throw new Error(`${transactionHash}: no trigger has number ${args.trigger}`)
      const receipt = await client.getTransactionReceipt({ hash: transactionHash })
      const payments = (args.outcomes.length - 2) / 2
      return {
        txHash: transactionHash,
        trigger,
        keeper: args.keeper,
        payments,
        gasUsed: receipt.gasUsed,
        receipt,
      }
    }),
  )
}
