/**
 * Measures how long a payment of 1 to 50 USDC takes from the buyer's request until its settlement is confirmed, by price and by trigger,
 * compared with x402's own programs on the same chain of two-second blocks. Buyers come at a steady rate, each with a separate wallet. The
 * bench also counts blocks, from the head when the buyer started to the block that settled the payment, because a busy machine affects seconds
 * more than blocks.
 */
import { alignColumns } from '@tollkeeper/runtime/alignColumns'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { type Address, createPublicClient, http, parseAbiItem } from 'viem'
import { type CallRig, startCallRig } from './gateway/callRig.ts'
import { watch } from './support/benchEnv.ts'
import { atMost, type Goals } from './support/goals.ts'
import { median, percentile, round1, type Say } from './support/statistics.ts'

const prices = [1, 2, 5, 10, 20, 50] as const
/** Maximum seconds at p95 until a payment of high value is confirmed. Such a payment settles immediately, in a separate batch. */
const goalSeconds = 6
/** Maximum blocks at p95 until any payment has settled. */
const goalBlocks = 2
const { confirmations } = networks.localhost
const used = parseAbiItem('event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)')

/** If there was no transfer for `graceMs`, the remaining payments count as waiting for the time trigger. */
export const options = { payments: 48, everyMs: 1_000, graceMs: 12_000 }

export const figures = () => [
  'byPrice',
  'byTrigger',
  'waiting',
  'reference.p50Seconds',
  'reference.p95Seconds',
  'reference.p50Blocks',
  'reference.p95Blocks',
  'reference.failed',
]

export const goals = (): Goals => ({
  'byTrigger.high_value.p95Seconds': atMost(goalSeconds),
  ...Object.fromEntries(prices.map((price) => [`byPrice.${price}.p95Blocks`, atMost(goalBlocks)])),
})

/** `blocks` counts from the head when the buyer started to the block that settled the payment. */
type Waited = { seconds: number; blocks: number }
type Moved = Waited & { price: number; trigger: string }

export async function run({ payments, everyMs, graceMs }: typeof options, say: Say) {
  const path = (price: number) => `/p${price}`
  await using rig = await startCallRig({
    buyers: payments,
    prices: Object.fromEntries(prices.map((price) => [path(price), String(price)])),
    // The seller serves before a payment settles, so that only the keeper's triggers decide when the payment settles.
    settlesFirst: false,
  })
  const seenAt = watchMoney(rig, graceMs)
  const asked = prices.map((price) => `${rig.ours.url}${path(price)}`)
  const ours = await rig.run({ kind: 'ours', url: asked, callers: payments, calls: payments, everyMs })
  if (ours.failures.length > 0) throw new Error(`${ours.failures.length} calls failed: ${ours.failures[0]}`)
  say(`made ${payments} purchases; waiting for payments that settle by amount or count`)
  await seenAt.untilQuiet()
  const triggers = await readTriggers(rig)
  const moved = rig.buyers.slice(0, payments).flatMap((payer, index): Moved[] => {
    const waited = seenAt.of(payer, ours.begunAt[index] as number)
    if (waited === undefined) return []
    const price = prices[index % prices.length] as number
    return [{ ...waited, price, trigger: triggers.get(payer) ?? 'unknown' }]
  })
  const waiting = payments - moved.length

  const seller = await rig.startExactSeller('reference', parseUsdc('10').toString())
  const url = `${seller.url}/exact`
  seenAt.forget()
  const reference = await rig.run({ kind: 'x402', url, callers: payments, calls: payments, everyMs })
  await seenAt.untilQuiet()
  const waited = rig.buyers
    .slice(0, payments)
    .flatMap((payer, index) => seenAt.of(payer, reference.begunAt[index] as number) ?? [])
  await seenAt.stop()
  const { p50Seconds, p95Seconds, p50Blocks, p95Blocks } = summarize(waited)
  return {
    byPrice: Object.fromEntries(
      prices.map((price) => [price, summarize(moved.filter((one) => one.price === price))]),
    ),
    byTrigger: Object.fromEntries(
      [...Map.groupBy(moved, ({ trigger }) => trigger)].map(([trigger, own]) => [trigger, summarize(own)]),
    ),
    /** Number of payments that wait for the time trigger at the end. */
    waiting,
    reference: {
      p50Seconds,
      p95Seconds,
      p50Blocks,
      p95Blocks,
      failed: reference.failures.length,
    },
  }
}

function summarize(moved: readonly Waited[]) {
  const seconds = moved.map((one) => one.seconds)
  const blocks = moved.map((one) => one.blocks)
  const figure = (value: number) => (Number.isNaN(value) ? null : round1(value))
  return {
    count: moved.length,
    p50Seconds: figure(median(seconds)),
    p95Seconds: figure(percentile(seconds, 0.95)),
    p50Blocks: figure(median(blocks)),
    p95Blocks: figure(percentile(blocks, 0.95)),
  }
}

/** Records when each payer's settlement was first seen in a block with enough confirmations. */
function watchMoney({ chain, usdc }: CallRig, graceMs: number) {
  const client = createPublicClient({ transport: http(chain.url), cacheTime: 0 })
  const at = new Map<Address, { seenAt: number; block: bigint }>()
  /** Each block that became the head, with the time, in order. */
  const heads: { block: bigint; seenAt: number }[] = []
  let next: bigint | undefined
  let lastSeen = performance.now()
  const loop = watch(async () => {
    const head = await client.getBlockNumber()
    if (head !== heads.at(-1)?.block) heads.push({ block: head, seenAt: Date.now() })
    const confirmed = head - BigInt(confirmations - 1)
    next ??= confirmed + 1n
    if (confirmed < next) return
    const logs = await client.getLogs({ address: usdc, event: used, fromBlock: next, toBlock: confirmed })
    next = confirmed + 1n
    for (const { args, blockNumber } of logs) {
      const payer = args.authorizer?.toLowerCase() as Address
      if (!at.has(payer)) at.set(payer, { seenAt: Date.now(), block: blockNumber })
      lastSeen = performance.now()
    }
  })
  return {
    /** Returns the wait of a buyer who started at this time, or undefined if the payment hasn't settled. */
    of(payer: Address, begunAt: number): Waited | undefined {
      const moved = at.get(payer)
      const head = heads.findLast(({ seenAt }) => seenAt <= begunAt)
      if (moved === undefined || head === undefined) return undefined
      return { seconds: (moved.seenAt - begunAt) / 1000, blocks: Number(moved.block - head.block) }
    },
    forget: () => at.clear(),
    /** Waits until nothing has settled for a while. The remaining payments wait for the time trigger. */
    async untilQuiet() {
      lastSeen = performance.now()
      while (performance.now() - lastSeen < graceMs) await new Promise((resolve) => setTimeout(resolve, 200))
    },
    stop: () => loop.stop(),
  }
}

/** Reads the trigger of the batch that settled each payer's payment. */
async function readTriggers({ database }: CallRig): Promise<Map<string, string>> {
  const rows = await database<{ payer: string; trigger: string }[]>`
    select p.payer, b.trigger from batch_item i join batch b on b.id = i.batch_id join payment p on p.id = i.payment_id
    order by b.id`
  return new Map(rows.map(({ payer, trigger }) => [payer, trigger]))
}

export function format({ byPrice, byTrigger, waiting, reference }: Awaited<ReturnType<typeof run>>): string {
  const row = ([name, own]: [string, ReturnType<typeof summarize>]) => [
    name,
    String(own.count),
    String(own.p50Seconds ?? ''),
    String(own.p95Seconds ?? ''),
    String(own.p50Blocks ?? ''),
    String(own.p95Blocks ?? ''),
  ]
  const header = ['', 'payments', 'p50 s', 'p95 s', 'p50 blocks', 'p95 blocks']
  return [
    ...alignColumns(['USDC', ...header.slice(1)], Object.entries(byPrice).map(row)),
    '',
    ...alignColumns(['trigger', ...header.slice(1)], Object.entries(byTrigger).map(row)),
    '',
    `${waiting} wait for the time trigger`,
    `x402's own programs, 10 USDC: p50 ${reference.p50Seconds} s, p95 ${reference.p95Seconds} s, or ${reference.p50Blocks} and ${reference.p95Blocks} blocks; ${reference.failed} failed`,
  ].join('\n')
}
