import {
  decodeAbiParameters,
  decodeEventLog,
  type Hex,
  hexToBigInt,
  hexToNumber,
  parseAbi,
  parseAbiParameters,
  size,
} from 'viem'

// Event topics: keccak256 of the event's signature.
export const authorizationUsed = '0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5'
export const authorizationCanceled = '0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81'
export const transfer = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef'
export const batchSettled = '0x3e7d7699b20e4c25099ef9830c59d478e9ce596cfca9fe9334ef927c7bd51e63'
export const tabsSettled = '0xb623c942560e1008a118e3653cdb81eb8977f22447bc85dff19926cf51a09361'

const batchSettledData = parseAbiParameters(
  'uint8 trigger, uint256 authorizations, uint256 providerTotal, uint256 feeTotal, bytes outcomes',
)

const tabsSettledData = parseAbiParameters('uint16 rewardShare, uint256[] splits, bytes lines')

const batchSettledEvent = parseAbi([
  'event BatchSettled(bytes32 indexed batchId, address indexed keeper, address indexed token, uint8 trigger, uint256 authorizations, uint256 providerTotal, uint256 feeTotal, bytes outcomes)',
])

const settled = 1 // the value of a settled authorization in `outcomes`

/** A receipt as a node returns it. Only OP-stack chains have `l1Fee`. */
export type Receipt = {
  transactionHash: Hex
  blockHash: Hex
  gasUsed: Hex
  effectiveGasPrice: Hex
  l1Fee?: Hex | null | undefined
  logs: readonly ReceiptLog[]
}

export type ReceiptLog = { address: Hex; topics: readonly Hex[]; data: Hex; logIndex: Hex }

/** The addresses that are needed to interpret a receipt, in lower case. */
export type Addresses = {
  settlement: Hex
  tabSettlement: Hex
  token: Hex
  /** Recipients of the platform's parts. */
  platforms: readonly Hex[]
}

/** An authorization according to USDC's logs. */
export type AuthorizationEntry = {
  authorizer: Hex
  nonce: Hex
  logIndex: number
  /** Log position of its batch's BatchSettled. Null if the authorization was sent to USDC directly. */
  batchLogIndex: number | null
} & (
  | { state: 'used'; recipient: Hex; value: bigint; half: 'provider' | 'fee' | null; tab: Hex | null }
  | { state: 'cancelled'; recipient: null; value: null; half: null; tab: null }
)

/** A splitter's payout according to USDC's logs: the platform's Transfer, directly followed by the provider's. */
export type PayoutEntry = {
  splitter: Hex
  platformRecipient: Hex
  platformAmount: bigint
  provider: Hex
  providerAmount: bigint
  logIndex: number
}

export type Unreadable = {
  logIndex: number
  reason: 'unpaired_authorization' | 'outcomes_mismatch'
  detail: string
}

/** The facts that a transaction's receipt proves. */
export type Reading = {
  /**
   * Pairs of consecutive Transfers from one sender, of which the first pays the platform. Readers of the index must check whether the sender is a
   * splitter.
   */
  payouts: PayoutEntry[]
  entries: AuthorizationEntry[]
  unreadable: Unreadable[]
  /** The log positions of the transaction's BatchSettled events for the token, in ascending order. */
  batches: number[]
  /** What each wallet received in the transaction's batches of tabs, keyed by the log position of the batch's BatchSettled. */
  paidByTabs: ReadonlyMap<number, Received>
}

/** The number of payments and the amount that each wallet received in a batch. */
export type Received = ReadonlyMap<Hex, { paymentCount: number; total: bigint }>

/** A TabsSettled event: the settled tabs of a batch, in order. */
type TabBatch = { logIndex: number; tabs: { packed: Hex; providers: ReadonlySet<Hex> }[] }

/**
 * Reads the authorizations from a receipt.
 *
 * Only the token's logs prove an authorization: an AuthorizationUsed at log i must be followed by the token's Transfer at log i + 1 with the same
 * `from`. The batch of an authorization follows from the order of the logs. `settle` emits BatchSettled last, with one outcome for each authorization
 * that it tried. So the n settled authorizations of a batch are the last n AuthorizationUsed events before its BatchSettled and after the previous
 * BatchSettled. Calldata is never decoded, because the calldata of a wrapper contract would mean something else.
 *
 * A batch of tabs logs TabsSettled between its last AuthorizationUsed and its BatchSettled. TabsSettled doesn't contain the token, but BatchSettled
 * does. A malicious token can call the contract again before its own batch logs BatchSettled. The logs of such an inner batch are complete by then,
 * so each BatchSettled belongs to the last TabsSettled before it that has no BatchSettled yet.
 */
export function readReceipt(logs: readonly ReceiptLog[], addresses: Addresses): Reading {
  const { settlement, tabSettlement, token } = addresses
  const entries: AuthorizationEntry[] = []
  const unreadable: Unreadable[] = []
  const batches: number[] = []
  const payouts: PayoutEntry[] = []
  const paidByTabs = new Map<number, Received>()
  const begun: TabBatch[] = []
  let intervalStart = 0 // the first entry after the previous BatchSettled

  for (const [position, log] of logs.entries()) {
    const [topic, first, second, third] = log.topics
    const logIndex = hexToNumber(log.logIndex)
    const address = log.address.toLowerCase()
    if (address === token && topic === authorizationUsed && first && second) {
      const next = logs[position + 1]
      const isPaired =
        next?.address.toLowerCase() === token &&
        next.topics[0] === transfer &&
        next.topics[1] === first &&
        hexToNumber(next.logIndex) === logIndex + 1
      const recipient = next?.topics[2]
      if (!isPaired || recipient === undefined) {
        unreadable.push({
          logIndex,
          reason: 'unpaired_authorization',
          detail: `expected the token's Transfer from ${toAddress(first)} at log ${logIndex + 1}`,
        })
        continue
      }
      entries.push({
        state: 'used',
        authorizer: toAddress(first),
        nonce: second,
        recipient: toAddress(recipient),
        value: hexToBigInt(next.data),
        logIndex,
        batchLogIndex: null,
        half: null,
        tab: null,
      })
    } else if (address === token && topic === authorizationCanceled && first && second) {
      entries.push({
        state: 'cancelled',
        authorizer: toAddress(first),
        nonce: second,
        recipient: null,
        value: null,
        logIndex,
        batchLogIndex: null,
        half: null,
        tab: null,
      })
    } else if (address === token && topic === transfer) {
      const payout = readPayout(log, logs[position + 1], addresses)
      if (payout) payouts.push(payout)
    } else if (address === tabSettlement && topic === tabsSettled) {
      begun.push({ logIndex, tabs: readTabs(log) })
    } else if ((address === settlement || address === tabSettlement) && topic === batchSettled && third) {
      const ofTabs = address === tabSettlement ? begun.pop() : undefined
      if (toAddress(third) === token) {
        batches.push(logIndex)
        if (ofTabs) {
          paidByTabs.set(logIndex, readPaid(logs.slice(0, position), ofTabs, addresses))
          const own = entries.filter((entry) => entry.state === 'used' && entry.logIndex < ofTabs.logIndex)
          for (const [i, entry] of own.slice(-ofTabs.tabs.length).entries())
            if (entry.state === 'used') entry.tab = ofTabs.tabs[i]?.packed ?? null
        }
        const used = entries.slice(intervalStart).filter((entry) => entry.state === 'used')
        const halves = readHalves(log.data)
        const isExplained = halves !== null && halves.length <= used.length
        if (!isExplained) {
          unreadable.push({
            logIndex,
            reason: 'outcomes_mismatch',
            detail: `outcomes contain ${halves?.length ?? 'no'} settled authorizations, the token's logs show ${used.length}`,
          })
        }
        const first = isExplained ? used.length - halves.length : 0
        for (const [i, entry] of used.slice(first).entries()) {
          entry.batchLogIndex = logIndex
          entry.half = isExplained ? (halves[i] ?? null) : null
        }
      }
      intervalStart = entries.length
    }
  }
  return { entries, unreadable, batches, payouts, paidByTabs }
}

/**
 * Reads the tabs of a TabsSettled event. For each tab, the data has the number of lines (2 bytes), the sequence (5), and for each line the
 * index of its split (2) and its amount (6). A packed tab is the platform (20 bytes) and the reward (2) that its payer signed, its sequence
 * (5), and for each line its split (32) and its amount (6).
 */
function readTabs({ topics, data }: ReceiptLog): TabBatch['tabs'] {
  const [rewardShare, splits, lines] = decodeAbiParameters(tabsSettledData, data)
  const terms = `${(topics[2] ?? '0x').slice(-40)}${rewardShare.toString(16).padStart(4, '0')}`
  const tabs: TabBatch['tabs'] = []
  let at = 2
  const next = (bytes: number) => {
    at += 2 * bytes
    return lines.slice(at - 2 * bytes, at)
  }
  while (at < lines.length) {
    const count = Number.parseInt(next(2), 16)
    const providers = new Set<Hex>()
    let packed: Hex = `0x${terms}${next(5)}`
    for (let i = 0; i < count; i++) {
      const split = (splits[Number.parseInt(next(2), 16)] ?? 0n).toString(16).padStart(64, '0')
      providers.add(`0x${split.slice(0, 40)}`)
      packed = `${packed}${split}${next(6)}`
    }
    tabs.push({ packed, providers })
  }
  return tabs
}

/** Returns what each wallet received in a batch of tabs. A provider is paid for its own tabs, the platform and the settling keeper for all tabs. */
function readPaid(
  logs: readonly ReceiptLog[],
  { logIndex, tabs }: TabBatch,
  { token, tabSettlement }: Addresses,
): Received {
  const received = new Map<Hex, { paymentCount: number; total: bigint }>()
  for (const { address, topics, data, logIndex: position } of logs) {
    const [topic, from, to] = topics
    if (address.toLowerCase() !== token || topic !== transfer || !from || !to) continue
    if (hexToNumber(position) < logIndex || toAddress(from) !== tabSettlement) continue
    const recipient = toAddress(to)
    const own = tabs.filter(({ providers }) => providers.has(recipient))
    const total = (received.get(recipient)?.total ?? 0n) + hexToBigInt(data)
    received.set(recipient, { paymentCount: own.length || tabs.length, total })
  }
  return received
}

/** Reads a payout from two logs. Transfers of 0 don't count, because anyone can send them on behalf of any account (`transferFrom` of 0). */
function readPayout(
  first: ReceiptLog,
  second: ReceiptLog | undefined,
  { token, tabSettlement, platforms }: Addresses,
): PayoutEntry | null {
  const [, splitter, platform] = first.topics
  const logIndex = hexToNumber(first.logIndex)
  const provider = second?.topics[2]
  if (
    !splitter ||
    toAddress(splitter) === tabSettlement ||
    !platform ||
    !platforms.includes(toAddress(platform)) ||
    !provider ||
    second.address.toLowerCase() !== token ||
    second.topics[0] !== transfer ||
    second.topics[1] !== splitter ||
    hexToNumber(second.logIndex) !== logIndex + 1
  )
    return null
  const [platformAmount, providerAmount] = [hexToBigInt(first.data), hexToBigInt(second.data)]
  if (platformAmount === 0n || providerAmount === 0n) return null
  return {
    splitter: toAddress(splitter),
    platformRecipient: toAddress(platform),
    platformAmount,
    provider: toAddress(provider),
    providerAmount,
    logIndex,
  }
}

/**
 * Returns the part of a transaction that one of its batches records: everything between the previous batch's event and its own event. The last batch
 * also records everything after its event. So exactly one event records each authorization, and no check for duplicates is needed.
 */
export function shareOf(
  { entries, unreadable, batches, payouts }: Omit<Reading, 'paidByTabs'>,
  batchLogIndex: number,
): Pick<Reading, 'entries' | 'unreadable' | 'payouts'> {
  const position = batches.indexOf(batchLogIndex)
  const after = batches[position - 1] ?? -1
  const until = position === batches.length - 1 ? Number.POSITIVE_INFINITY : batchLogIndex
  const isOurs = ({ logIndex }: { logIndex: number }) => logIndex > after && logIndex <= until
  return {
    entries: entries.filter(isOurs),
    unreadable: unreadable.filter(isOurs),
    payouts: payouts.filter(isOurs),
  }
}

/** Reads the BatchSettled event at a log position. The event's sums are used only for tabs; for other batches, USDC's logs show the sums. */
export function readBatchSettled(logs: readonly ReceiptLog[], logIndex: number) {
  const log = logs.find((log) => hexToNumber(log.logIndex) === logIndex)
  if (log === undefined) throw new Error(`the receipt has no log ${logIndex}`)
  const { args } = decodeEventLog({
    abi: batchSettledEvent,
    data: log.data,
    topics: log.topics as [Hex, ...Hex[]],
  })
  const { batchId, trigger, outcomes, providerTotal, feeTotal } = args
  const [keeper, token] = [args.keeper.toLowerCase() as Hex, args.token.toLowerCase() as Hex]
  return { event: { batchId, keeper, token, trigger, outcomes }, totals: { providerTotal, feeTotal } }
}

/**
 * Returns for each settled authorization of a batch, in order, whether it is the provider's authorization or the fee's. Returns null if the data is
 * unreadable.
 */
function readHalves(data: Hex): ('provider' | 'fee')[] | null {
  try {
    const [, , , , outcomes] = decodeAbiParameters(batchSettledData, data)
    return readOutcomes(outcomes).flatMap(({ provider, fee }) => [
      ...(provider === settled ? (['provider'] as const) : []),
      ...(fee === settled ? (['fee'] as const) : []),
    ])
  } catch {
    return null
  }
}

/** Returns the number of a batch's payments with at least one settled authorization. */
export function countPayments(outcomes: Hex): number {
  return readOutcomes(outcomes).filter(({ provider, fee }) => provider === settled || fee === settled).length
}

/** Reads the outcomes, one byte for each payment: the provider's in the high nibble, the fee's in the low one. */
function readOutcomes(outcomes: Hex): { provider: number; fee: number }[] {
  return Array.from({ length: size(outcomes) }, (_, i) => ({
    provider: Number.parseInt(outcomes.charAt(2 + 2 * i), 16),
    fee: Number.parseInt(outcomes.charAt(3 + 2 * i), 16),
  }))
}

/** Returns the address in a topic, in lower case as in nodes' answers. */
function toAddress(topic: Hex): Hex {
  return `0x${topic.slice(26)}`
}
