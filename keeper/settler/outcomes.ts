import {
  type Address,
  decodeEventLog,
  type Hex,
  parseTransaction,
  type TransactionReceipt,
  toEventSelector,
} from 'viem'
import { batchSettlementAbi } from '#protocol/abi/batchSettlement'
import { decodeOutcomes, decodeSettle, type Outcome } from '#protocol/settlement'

/** What became of one authorization in our own transaction. */
export type Tried = { outcome: Outcome; reason: Hex | null }

/**
 * What our own transaction made of each authorization in it, by payer and nonce. Read from its stored calldata and its
 * own receipt: events of anybody else's transaction can say what they like.
 *
 * @param contract lower-case.
 */
export function readOutcomes(
  contract: string,
  batchId: Hex,
  { hash, raw }: { hash: Hex; raw: Hex },
  receipt: TransactionReceipt,
): Map<string, Tried> {
  const tried = new Map<string, Tried>()
  const own = receipt.logs.filter((log) => log.address.toLowerCase() === contract)
  const reasons = new Map<string, Hex>()
  let packed: Hex | null = null
  for (const log of own) {
    if (log.topics[0] === settledTopic) {
      const { args } = decodeEventLog({
        abi: batchSettlementAbi,
        eventName: 'BatchSettled',
        ...topicsOf(log),
      })
      if (args.batchId === batchId) packed = args.outcomes
    } else if (log.topics[0] === failedTopic) {
      const { args } = decodeEventLog({
        abi: batchSettlementAbi,
        eventName: 'AuthorizationFailed',
        ...topicsOf(log),
      })
      reasons.set(authorizationKey(args), args.reason)
    }
  }
  if (packed === null) throw new Error(`the receipt of ${hash} has no BatchSettled of its batch`)

  const { items } = decodeSettle(parseTransaction(raw).data ?? '0x')
  for (const [index, outcome] of decodeOutcomes(packed).entries()) {
    const { authorization, fee } = items[index] ?? {}
    if (authorization) add(authorization, outcome.provider)
    if (fee) add(fee, outcome.fee)
  }
  return tried

  function add(authorization: { from: string; nonce: string }, outcome: Outcome): void {
    const key = authorizationKey(authorization)
    tried.set(key, { outcome, reason: reasons.get(key) ?? null })
  }
}

/** Which splitters paid something out in a transaction, and which of those that were to be swept didn't. */
export function readSweeps(
  { logs }: TransactionReceipt,
  { factory, token }: { factory: Address; token: Address },
): { swept: Address[]; failed: Address[] } {
  const topicOf = (event: Hex, by: Address, position: number) =>
    logs.flatMap(({ address, topics }): Address[] => {
      const topic = topics[position]
      return address.toLowerCase() === by && topics[0] === event && topic ? [`0x${topic.slice(-40)}`] : []
    })
  return { swept: topicOf(transferTopic, token, 1), failed: topicOf(sweepFailedTopic, factory, 2) }
}

/** Names an authorization among those of one token. */
export function authorizationKey({ from, nonce }: { from: string; nonce: string }): string {
  return `${from.toLowerCase()}:${nonce}`
}

const sweepFailedTopic = toEventSelector('SweepFailed(address,address,bytes)')
const transferTopic = toEventSelector('Transfer(address,address,uint256)')
const [settledTopic, failedTopic] = ['BatchSettled', 'AuthorizationFailed'].map((name) => {
  const event = batchSettlementAbi.find((entry) => entry.type === 'event' && entry.name === name)
  if (event?.type !== 'event') throw new Error(`the contract has no event ${name}`)
  return toEventSelector(event)
})

function topicsOf(log: TransactionReceipt['logs'][number]) {
  return { topics: log.topics, data: log.data }
}
