import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import {
  decodeOutcomes,
  decodeSettle,
  type Outcome,
  type PaymentOutcome,
  type SettlementItem,
} from '@tollkeeper/sdk/protocol/batchSettlement'
import type { Deployment } from '@tollkeeper/sdk/protocol/deployments'
import { decodeSettleTabs } from '@tollkeeper/sdk/protocol/tabSettlement'
import {
  type Address,
  decodeEventLog,
  type Hex,
  parseTransaction,
  type TransactionReceipt,
  toEventSelector,
} from 'viem'

/** The outcome of one authorization in our own transaction. */
export type Tried = { outcome: Outcome; reason: Hex | null }

/** The outcomes of all authorizations in our own transaction. */
export type Outcomes = {
  /** Whether any authorization was tried and refused. */
  hasFailed: boolean
  /** Returns the outcomes by {@link authorizationKey}. */
  readTried: () => Promise<ReadonlyMap<string, Tried>>
}

/**
 * Reads the outcome of each authorization from a transaction's stored calldata and its own receipt. Events of other transactions aren't
 * trusted. The calldata is only read when `readTried` is called, because it isn't needed if all authorizations settled.
 */
export function readOutcomes(
  { batchSettlement, tabSettlement }: Contracts,
  batchId: Hex,
  { hash, readRaw }: { hash: Hex; readRaw: () => Promise<Hex> },
  receipt: TransactionReceipt,
): Outcomes {
  const contracts: readonly string[] = [batchSettlement, tabSettlement]
  const own = receipt.logs.filter((log) => contracts.includes(log.address.toLowerCase()))
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

  const outcomes = decodeOutcomes(packed)
  return {
    hasFailed: outcomes.some(({ provider, fee }) => provider === 'failed' || fee === 'failed'),
    readTried: async () =>
      indexTried(readTransaction(await readRaw(), tabSettlement).items, outcomes, reasons),
  }
}

type Contracts = Pick<Deployment, 'batchSettlement' | 'tabSettlement'>

/** The items that one of our transactions tries, in order, and the gas limit of each. */
export type TriedItems = {
  callGasLimit: bigint
  items: { authorization: TriedHalf; fee?: TriedHalf }[]
}

type TriedHalf = Pick<SettlementItem['authorization'], 'from' | 'nonce'>

/** Reads the items from the calldata of one of our signed transactions. */
export function readTransaction(raw: Hex, tabSettlement: Address): TriedItems {
  const { to, data = '0x' } = parseTransaction(raw)
  if (to?.toLowerCase() !== tabSettlement) {
    const { batch, items } = decodeSettle(data)
    return { callGasLimit: batch.callGasLimit, items }
  }
  const { batch, tabs } = decodeSettleTabs(data)
  const items = tabs.map(({ payer: from, nonce }) => ({ authorization: { from, nonce } }))
  return { callGasLimit: batch.callGasLimit, items }
}

function indexTried(
  items: TriedItems['items'],
  outcomes: readonly PaymentOutcome[],
  reasons: ReadonlyMap<string, Hex>,
): Map<string, Tried> {
  const tried = new Map<string, Tried>()
  for (const [index, { authorization, fee }] of items.entries()) {
    const outcome = outcomes[index]
    if (!outcome) continue
    add(authorization, outcome.provider)
    if (fee) add(fee, outcome.fee)
  }
  return tried

  function add(authorization: { from: string; nonce: string }, outcome: Outcome): void {
    const key = authorizationKey(authorization)
    tried.set(key, { outcome, reason: reasons.get(key) ?? null })
  }
}

/** Returns the splitters that paid out in a transaction, and the splitters whose payout failed. */
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

/** Returns TabSettlement's payment to a wallet in a transaction, in USDC base units. */
export function readReward(
  { logs }: TransactionReceipt,
  { token, deployment }: { token: Address; deployment: Pick<Deployment, 'tabSettlement'> },
  wallet: Address,
): bigint {
  const isOf = (topic: Hex | undefined, party: Address) =>
    topic !== undefined && `0x${topic.slice(-40)}` === party
  return logs.reduce((sum, { address, topics: [event, from, to], data }) => {
    const isReward = event === transferTopic && isOf(from, deployment.tabSettlement) && isOf(to, wallet)
    return isReward && address.toLowerCase() === token ? sum + BigInt(data) : sum
  }, 0n)
}

/** Returns a key that identifies an authorization among the authorizations of one token. */
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
