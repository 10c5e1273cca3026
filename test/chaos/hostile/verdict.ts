import type { Address, Hex } from 'viem'
import { halvesOfPayment } from '#ledger/facts/halves'
import type { Readiness } from '#process/health'
import { formatUsdc, parseUsdc } from '#protocol/amount'
import { decodeSettle } from '#protocol/settlement'
import { splitPrice } from '#protocol/tier'
import { findBlamed, findBreaches } from '../../support/ledger.ts'
import { until } from '../../support/until.ts'
import { readBalance } from '../../support/usdc.ts'
import type { Trade } from './honest.ts'
import { keeperEnv, type Market, usdcOfBuyer } from './scene.ts'

/** How long to wait at most until everything is settled. A quiet machine takes a few seconds, one that is busy many. */
export const settleSeconds = 180
/**
 * How many transactions the keepers may have mined while an honest payment waited: those of its trigger's two seconds,
 * and of the time in which the keeper that had claimed it stood still.
 */
const mostBefore = 100
/** What a buyer may be told while one of our hosts or its database is away. */
const outages = new Set(['dependency_unavailable', 'timeout', 'network_error', 'settlement_pending'])
/** How many transactions the keepers may send in vain for one payer. */
const transactionsALiar = 3

export type Verdict = {
  /** Refusals that no outage explains, and any after the last outage. */
  refused: string[]
  /** Payments that were served and are not settled, both halves. */
  unsettled: string[]
  /** Settled, but after too many transactions for others. */
  starved: string[]
  /** Blamed for what others did. */
  blamed: string[]
  /** Buyers and providers whose balance isn't what was served. */
  misplaced: string[]
  /** Settled, and the provider's webhook was not told. */
  unannounced: string[]
  /** Payers for whom the keepers sent too many transactions. */
  costly: string[]
  /** What was spent on gas for payments that pay no fee, beyond what is given for it. */
  drained: string[]
  /** Batches that don't end, and what {@link findBreaches} finds. */
  stuck: string[]
  /** What the keepers' `/readyz` complains about. */
  unready: string[]
}

/** What must hold once everybody has left, read from chain and database. Waits for what is still on its way. */
export async function judge(scene: Market, { purchases, announced }: Trade): Promise<Verdict> {
  const { database, chain, token, liars } = scene
  const served = purchases.flatMap(({ paymentId }) => (paymentId === undefined ? [] : [paymentId]))
  const unsettled = async () => {
    const halves = await Promise.all(served.map((paymentId) => halvesOfPayment(database, paymentId)))
    return served.filter((_, index) => !halves[index]?.every(({ state }) => state === 'settled'))
  }
  const unannounced = () => served.filter((paymentId) => !announced.has(paymentId))
  // As they were at the end of the trade: what strangers left behind is tried again now and then, and opens batches later.
  let open: string[] = []
  let unready: string[] = []
  const isOver = async () => {
    const batches = await database<{ id: string; state: string }[]>`
      select id::text, state from batch where state <> 'closed'`
    open = batches.map(({ id, state }) => `batch ${id} is ${state}`)
    unready = await readComplaints(scene)
    if (open.length + unready.length + unannounced().length > 0) return false
    return (await unsettled()).length === 0
  }
  // What is still missing when the time is up is told below, by its name.
  await until('the trade is over', isOver, settleSeconds * 1_000).catch(() => {})

  const waits = await countWaits(scene, served)
  scene.events.push(
    `most transactions for others before an honest payment: ${Math.max(0, ...waits.values())}`,
  )
  const withoutCode: { id: string; attempts: number }[] = []
  for (const one of await findBlamed(database)) {
    if (!served.includes(one.id)) continue
    if (!(await chain.getCode({ address: one.payer }))) withoutCode.push(one)
  }

  const owed = new Map<Address, bigint>()
  const add = (address: Address, amount: bigint) => owed.set(address, (owed.get(address) ?? 0n) + amount)
  for (const payer of new Set(purchases.map((one) => one.payer))) add(payer, parseUsdc(usdcOfBuyer))
  for (const { payer, shop, price, paymentId } of purchases) {
    add(payer, paymentId === undefined ? 0n : -price)
    add(shop.address, paymentId === undefined ? 0n : splitPrice(price).providerAmount)
  }
  const misplaced: string[] = []
  for (const [address, amount] of owed) {
    const balance = await readBalance(chain, token, address)
    if (balance !== amount) misplaced.push(`${address} has ${balance} instead of ${amount}`)
  }

  const costs = await countVain(scene)
  for (const [payer, lie] of liars) scene.events.push(`${lie}: ${costs.get(payer) ?? 0} transactions in vain`)
  return {
    refused: purchases.flatMap(({ refusal, afterwards, shop }) =>
      refusal === undefined || (outages.has(refusal) && !afterwards) ? [] : [`${refusal} at ${shop.url}`],
    ),
    unsettled: await unsettled(),
    starved: [...waits].flatMap(([id, before]) =>
      before > mostBefore ? [`${id}: after ${before} transactions`] : [],
    ),
    blamed: withoutCode.map(({ id, attempts }) => `${id}: ${attempts} attempts`),
    misplaced,
    unannounced: unannounced(),
    costly: [...liars].flatMap(([payer, lie]) => {
      const vain = costs.get(payer) ?? 0
      return vain > transactionsALiar ? [`${payer}, ${lie}: ${vain} transactions`] : []
    }),
    drained: await readDrained(scene),
    stuck: [...open, ...(await findBreaches(database))],
    unready,
  }
}

/** Transactions that were replaced by dearer ones may have cost more than was reserved for them. */
const dearer = 1.25

async function readDrained({ database, events }: Market): Promise<string[]> {
  const [row] = await database<[{ drawn: bigint; settled: number }]>`
    select coalesce(max(drawn), 0) as drawn, (
      select count(*)::int from payment p join authorization_event e on e.payment_id = p.id and e.state = 'settled'
      where p.source = 'facilitator'
    ) as settled
    from gas_draw where drawer = 'common'`
  events.push(`freeriders: ${row.settled} payments settled, ${formatUsdc(row.drawn)} USD of gas a day`)
  const allowance = Number(parseUsdc(keeperEnv.GAS_ALLOWANCE_USD))
  return Number(row.drawn) > allowance * dearer ? [`${formatUsdc(row.drawn)} USD`] : []
}

async function readComplaints({ keepers }: Market): Promise<string[]> {
  const complaints = keepers.map(async ({ name, service }) => {
    try {
      const answer = await fetch(new URL('/readyz', service.url), { signal: AbortSignal.timeout(5_000) })
      const { checks } = (await answer.json()) as Readiness
      return checks.flatMap((check) => (check.ok ? [] : [`${name}: ${check.name}: ${check.detail}`]))
    } catch (error) {
      // One that is gone says here what it died of.
      return [`${name}: ${error}`, ...(service.isRunning ? [] : service.lastLines)]
    }
  })
  return (await Promise.all(complaints)).flat()
}

/** By settled payment: the keepers' transactions, of batches claimed after it was accepted, that were mined before it. */
async function countWaits({ database }: Market, served: readonly string[]): Promise<Map<string, number>> {
  const mined = await database<{ claimedAt: Date; block: bigint }[]>`
    select b.created_at as "claimedAt", t.mined_block as block
    from transaction t join batch b on b.id = t.batch_id where t.mined_block is not null`
  const settled = await database<{ id: string; acceptedAt: Date; block: bigint }[]>`
    select p.id, p.accepted_at as "acceptedAt", max(seen.block_number) as block
    from payment p join signed_authorization a on a.payment_id = p.id
    join indexer.authorization seen on seen.nonce = a.nonce and seen.authorizer = a.authorizer
    where p.id = any (${served}) group by p.id`
  return new Map(
    settled.map(({ id, acceptedAt, block }) => [
      id,
      mined.filter((one) => one.claimedAt > acceptedAt && one.block < block).length,
    ]),
  )
}

/** By payer: the keepers' mined transactions that carried a payment of its and moved nothing of it. Read from the chain alone. */
async function countVain({ chain, token, keepers }: Market): Promise<Map<Address, number>> {
  const wallets = new Set(keepers.map(({ wallet }) => wallet?.toLowerCase()))
  const head = await chain.getBlockNumber({ cacheTime: 0 })
  const vain = new Map<Address, number>()
  for (let blockNumber = 0n; blockNumber <= head; blockNumber++) {
    const { transactions } = await chain.getBlock({ blockNumber, includeTransactions: true })
    for (const { from, input, hash } of transactions) {
      if (!wallets.has(from)) continue
      const carried = payersIn(input)
      if (carried.size === 0) continue
      const { logs } = await chain.getTransactionReceipt({ hash })
      const moved = new Set(
        logs
          .filter(({ address }) => address === token)
          .flatMap(({ topics }) => topics.slice(1).map((topic) => `0x${topic?.slice(26)}`)),
      )
      for (const payer of carried) if (!moved.has(payer)) vain.set(payer, (vain.get(payer) ?? 0) + 1)
    }
  }
  return vain
}

function payersIn(calldata: Hex): Set<Address> {
  try {
    return new Set(decodeSettle(calldata).items.map(({ authorization }) => authorization.from))
  } catch {
    // A cancellation of a nonce, which carries nobody.
    return new Set()
  }
}
