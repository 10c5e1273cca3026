import { findMined } from '@tollkeeper/chain/receipts'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { ChainUnavailable, failedDependency, isTimeLimit } from '@tollkeeper/runtime/dependencies'
import type { Logger } from '@tollkeeper/runtime/log'
import {
  createStepBack,
  forEachRow,
  logBadRow,
  type OnBadRow,
  type StepBack,
} from '@tollkeeper/runtime/stepBack'
import type { Address, Hash } from 'viem'
import { readHeads } from '../facts/indexedHead.ts'
import { planRescan, type Rescans } from '../facts/planRescan.ts'
import {
  dropBlock,
  moveRecordHead,
  type NumberedBatch,
  type RecordedBlock,
  readConfirmedBlocks,
  readIndexGap,
  readUnconfirmedBlocks,
  readUnrecorded,
  readYoungBlocks,
  recordBatches,
  recordEvents,
  recordPayouts,
  setConfirmed,
  setFinal,
  type Unrecorded,
} from '../facts/record.ts'
import type { RecordState } from '../facts/recordState.ts'
import { reopenPayments } from '../queue/stages.ts'
import type { Database, Queryable } from '../store/database.ts'
import { readUndone, unfinishPayments } from './finalizations.ts'
import { notifyBatches, notifyReverted, notifySettled, readTold } from './notifications.ts'

/** Number of confirmed blocks that are checked against the chain at a time if the newest one is gone. */
const confirmedAtOnce = 20
const blocksAtOnce = 100
const rowsAtOnce = 2_000
/** Maximum concurrent queries to the chain about blocks. */
const asksAtOnce = 20
const defaultLookEveryMs = { young: 1_000, final: 30_000 }

export type RecorderOptions = {
  sql: Database
  served: ServedNetwork
  /** Depth in blocks beyond which no reorg is expected. */
  finalityBlocks: bigint
  log: Logger
  /**
   * Called for a recorded block that is gone. Returns `false` if it can't tell yet what else depended on the block; the block then stays in the
   * record.
   */
  onGone?: (block: RecordedBlock) => Promise<boolean>
  onTold?: (event: 'payment.settled' | 'payment.reverted', payments: number) => void
  /** Called when a reorg was deeper than our finality. */
  onUndone?: () => void
  /** Default: only logs the row. */
  onBadRow?: OnBadRow
  checkpoint?: (name: 'before-finalizations-undone' | 'after-finalizations-undone') => Promise<void> | void
  /**
   * Intervals in ms between checks of the chain: `young` while a reorg could still drop a block (default 1 s), `final` otherwise (default 30 s).
   */
  lookEveryMs?: { young: number; final: number }
}

export type Recorder = ReturnType<typeof createRecorder>

type Recording = Omit<RecorderOptions, 'onBadRow'> & {
  chainId: number
  network: string
  token: Address
  confirmations: number
  rescans: Rescans
  /** The head at the last check for reorgs, the time of that check (ms), and the highest final block. */
  look: { number: bigint; hash: Hash; safeBlock: bigint; at: number } | null
  /** The heads of the index and the record when nothing was left to record. */
  recorded: string
  /** Blocks whose confirmation could not be stored, keyed by hash. */
  unconfirmed: StepBack<Hash>
  /** Events of the index that could not be recorded, keyed by {@link keyOf}. */
  unrecorded: StepBack<string>
  onBadRow: OnBadRow
}

/**
 * Creates a recorder, which maintains the record of a network. Several processes may run one: they write the same rows, and each row is
 * written once.
 */
export function createRecorder(options: RecorderOptions) {
  const { network, token } = options.served
  const recording: Recording = {
    ...options,
    chainId: network.chainId,
    network: network.name,
    token,
    confirmations: network.confirmations,
    rescans: { replacedUpTo: 0n, rescannedAt: null },
    look: null,
    recorded: '',
    unconfirmed: createStepBack(),
    unrecorded: createStepBack(),
    onBadRow: options.onBadRow ?? logBadRow(options.log),
  }
  return {
    /**
     * Reverts the contents of blocks that are gone. Throws while an RPC fails, so that nothing is finalized from an incomplete view.
     *
     * @returns the last final block; null while a reorg isn't processed completely.
     */
    followReorgs: (state: RecordState) => followReorgs(recording, state),
    /** Reads new events of the index into the record, and notifies providers about newly confirmed blocks. */
    async record(): Promise<void> {
      const read = await readIndex(recording)
      if (read !== null) await confirm(recording, read)
    },
  }
}

async function stands(recording: Recording, { blockNumber, blockHash }: RecordedBlock): Promise<boolean> {
  const { served } = recording
  return (await served.client.getBlock({ blockNumber })).hash === blockHash
}

/**
 * Returns whether a head continues the chain of an earlier head. If that is unknown, returns false, so that everything is checked again.
 */
async function isSameChain(
  recording: Recording,
  before: { number: bigint; hash: Hash },
  head: { number: bigint; hash: Hash; parentHash: Hash },
): Promise<boolean> {
  if (head.hash === before.hash || head.parentHash === before.hash) return true
  return (
    head.number > before.number && stands(recording, { blockNumber: before.number, blockHash: before.hash })
  )
}

/** Finds the payments that were notified as settled and whose transactions are no longer mined. */
async function findReverted(recording: Recording, block: RecordedBlock): Promise<string[]> {
  const { sql, served, chainId, network } = recording
  const reverted: string[] = []
  for (const { paymentId, hashes } of await readTold(sql, { chainId, network, block })) {
    const mined = await Promise.all(hashes.map((hash) => findMined(served.clients, [hash])))
    if (mined.some((one) => one?.receipt.status !== 'success')) reverted.push(paymentId)
  }
  return reverted
}

/**
 * Deletes the events of lost blocks, and reverts the results that depend on them.
 *
 * @returns whether the reorg is processed completely. It isn't if a result was reverted, because those payments are checked again, or while
 * an RPC that might know the blocks' transactions doesn't answer.
 */
async function dropAll(recording: Recording, gone: readonly RecordedBlock[]): Promise<boolean> {
  const { sql, chainId, log, checkpoint, onUndone } = recording
  const { reopened, unfinished } = await readUndone(
    sql,
    chainId,
    gone.map(({ blockHash }) => blockHash),
  )
  const undone = [...reopened, ...unfinished]
  if (undone.length > 0) await checkpoint?.('before-finalizations-undone')
  for (const block of gone) if (!(await drop(recording, block))) return false
  if (undone.length === 0) return true
  await checkpoint?.('after-finalizations-undone')
  onUndone?.()
  log.error(
    { blocks: gone.length, payments: undone },
    'a reorg reverted the events that finalized payments: checking them again',
  )
  return false
}

/** @returns false while an RPC that might know the block's transactions doesn't answer. */
async function drop(recording: Recording, block: RecordedBlock): Promise<boolean> {
  const { sql, chainId, network, log, onGone, onTold } = recording
  try {
    if ((await onGone?.(block)) === false) return false
    const reverted = await findReverted(recording, block)
    const events = await sql.begin(async (tx) => {
      await notifyReverted(tx, network, reverted)
      const { reopened, unfinished } = await readUndone(tx, chainId, [block.blockHash])
      await unfinishPayments(tx, unfinished)
      await reopenPayments(tx, reopened)
      return dropBlock(tx, chainId, block)
    })
    if (reverted.length > 0) {
      onTold?.('payment.reverted', reverted.length)
      log.warn({ payments: reverted }, 'payments that were notified as settled were reverted by a reorg')
    }
    if (events > 0) log.warn({ block: block.blockHash, events }, 'a reorg dropped a recorded block')
    recording.recorded = ''
    return true
  } catch (error) {
    if (error instanceof ChainUnavailable) return false
    throw error
  }
}

/** Checks the recorded blocks that aren't final against the chain. Skips blocks that can't have changed since the last check. */
async function followReorgs(recording: Recording, state: RecordState): Promise<bigint | null> {
  const { sql, served, chainId, finalityBlocks, lookEveryMs = defaultLookEveryMs, rescans } = recording
  const before = recording.look
  const at = performance.now()
  if (before !== null && at - before.at < Math.min(lookEveryMs.young, lookEveryMs.final))
    return before.safeBlock
  const young = await readYoungBlocks(sql, chainId)
  const patienceMs = young.length > 0 ? lookEveryMs.young : lookEveryMs.final
  if (before !== null && at - before.at < patienceMs) return before.safeBlock

  recording.look = null
  const head = await served.client.getBlock()
  const hasGrown = before !== null && (await isSameChain(recording, before, head))
  if (!hasGrown) rescans.replacedUpTo = before && before.number > head.number ? before.number : head.number
  const safeBlock = state.status === 'current' ? state.head.readNumber - finalityBlocks : -1n
  const gone: RecordedBlock[] = []
  for (const block of young) {
    const isNew = !hasGrown || block.blockNumber > before.number
    const isDeep = block.blockNumber <= safeBlock
    if (block.blockNumber > head.number || !(isNew || isDeep)) continue
    if (!(await stands(recording, block))) gone.push(block)
    else if (isDeep) await setFinal(sql, chainId, block)
  }
  if (!(await dropAll(recording, gone))) return null
  const lost = await findLost(recording, head.number, hasGrown ? before.number : -1n)
  if (lost === null || !(await dropAll(recording, lost)) || lost.length > 0) return null
  recording.look = { number: head.number, hash: head.hash, safeBlock, at }
  return safeBlock
}

/**
 * Finds confirmed blocks that were dropped by a reorg deeper than our finality. If the newest confirmed block is still on the chain, so are
 * all earlier blocks.
 *
 * @param stood the highest block that is known to be on the chain. So all blocks before it are also on the chain.
 * @returns null if the queried node is too far behind to show this.
 */
async function findLost(recording: Recording, head: bigint, stood: bigint): Promise<RecordedBlock[] | null> {
  const { sql, chainId } = recording
  const gone: RecordedBlock[] = []
  for (;;) {
    const between = { above: stood, below: gone.at(-1)?.blockNumber }
    const limit = gone.length === 0 ? 1 : confirmedAtOnce
    const confirmed = await readConfirmedBlocks(sql, chainId, { ...between, limit })
    if (confirmed.length === 0) return gone
    for (const block of confirmed) {
      // The answering node hasn't reached that block yet.
      if (block.blockNumber > head) return null
      if (await stands(recording, block)) return gone
      gone.push(block)
    }
  }
}

/**
 * Reads new parts of the index into the record, except events of lost blocks.
 *
 * @returns the last block that was read, and the index's head; null without an index, or while a rebuilt index is behind the record.
 */
async function readIndex(recording: Recording): Promise<{ head: bigint; readUpTo: bigint } | null> {
  const { sql, chainId, token, finalityBlocks, rescans } = recording
  const heads = await readHeads(sql, chainId)
  if (heads === null) return null
  const { head, known } = heads
  const { blockNumber } = head
  const isBehind = known !== null && blockNumber < known.readNumber
  if (isBehind && (recording.look?.number ?? 0n) >= known.readNumber) return null
  const state = `${blockNumber} ${known?.blockNumber}`
  if (state === recording.recorded) return { head: blockNumber, readUpTo: blockNumber }
  const seen = known !== null && known.blockNumber < blockNumber ? known.blockNumber : blockNumber
  const scope = { chainId, token }
  const gap = await readIndexGap(sql, chainId)
  const { after, done } = planRescan(rescans, known === null ? 0n : seen, blockNumber, finalityBlocks)
  const range = { after: known === null || after < 0n ? -1n : after, upTo: blockNumber }
  const { events, payouts, batches } = await readUnrecorded(sql, scope, range, rowsAtOnce)
  // The next read starts at the block that was read only in part.
  const [cut] = [events, batches]
    .flatMap((rows) => (rows.length === rowsAtOnce ? (rows.at(-1) ?? []) : []))
    .toSorted((one, other) => Number(one.blockNumber - other.blockNumber))
  const found = new Map([...events, ...payouts, ...batches].map((one) => [one.blockHash, one]))
  const gone = new Set<Hash>()
  await askAbout([...found.values()], async (block) => {
    if (!(await stands(recording, block))) gone.add(block.blockHash)
  })
  const stays = ({ blockHash }: RecordedBlock) => !gone.has(blockHash)
  const lost = [...found.values()].filter((block) => !stays(block)).map((block) => block.blockNumber)
  const numbered = batches.filter(stays)
  await confirmOld(recording, numbered, blockNumber - finalityBlocks)
  const readUpTo = cut ? cut.blockNumber - 1n : blockNumber
  const blockTime = (cut ?? head).blockTime
  /** @param bad blocks with events that could not be recorded. From the first of them, the record is incomplete, as after an index gap. */
  const finish = async (tx: Queryable, bad: readonly bigint[]): Promise<bigint> => {
    const limits = [...lost, ...bad, ...(gap === null ? [] : [gap]), ...(cut ? [cut.blockNumber] : [])]
    const upTo = limits.reduce((least, block) => (block <= least ? block - 1n : least), blockNumber)
    await moveRecordHead(tx, chainId, { blockNumber: upTo, readNumber: readUpTo, blockTime })
    return upTo
  }
  const news = { events: events.filter(stays), payouts: payouts.filter(stays), batches: numbered }
  const upTo = await recordNews(recording, news, finish)
  // Notify about batches in blocks that were confirmed before the index had their receipts.
  await notifyOfRange(recording, range, numbered)
  if (lost.length > 0) recording.look = null
  if (upTo === blockNumber) {
    recording.recorded = `${blockNumber} ${upTo}`
    done()
  }
  return { head: blockNumber, readUpTo }
}

type News = Pick<Unrecorded, 'events' | 'payouts' | 'batches'>

/**
 * Records new events together with the index's head. If that fails, each event is recorded separately, and those that fail are retried
 * later.
 *
 * @returns the last block up to which the record is complete.
 */
async function recordNews(
  { sql, chainId, network, token, unrecorded, onBadRow }: Recording,
  news: News,
  finish: (tx: Queryable, bad: readonly bigint[]) => Promise<bigint>,
): Promise<bigint> {
  const scope = { chainId, token }
  const record = async (tx: Queryable, { events, payouts, batches }: News) => {
    await recordEvents(tx, scope, events, 'index')
    await recordPayouts(tx, scope, payouts)
    await recordBatches(tx, scope, batches)
  }
  const none: News = { events: [], payouts: [], batches: [] }
  const parts: { key: string; number: bigint; news: News }[] = [
    ...news.events.map((one) => partOf(one, { ...none, events: [one] })),
    ...news.payouts.map((one) => partOf(one, { ...none, payouts: [one] })),
    ...news.batches.map((one) => partOf(one, { ...none, batches: [one] })),
  ]
  const isClean = !parts.some(({ key }) => unrecorded.isWaiting(key))
  if (isClean) {
    try {
      return await sql.begin(async (tx) => {
        await record(tx, news)
        return finish(tx, [])
      })
    } catch (error) {
      if (failedDependency(error) !== undefined && !isTimeLimit(error)) throw error
    }
  }
  const [waiting, due] = [true, false].map((is) =>
    parts.filter(({ key }) => unrecorded.isWaiting(key) === is),
  )
  const failed = await forEachRow(
    due ?? [],
    ({ news: own }) => sql.begin((tx) => record(tx, own)),
    (error, { key }) => {
      unrecorded.failed(key)
      onBadRow('record', error, { network, event: key })
    },
    { ask: () => sql`select 1` },
  )
  return finish(
    sql,
    [...(waiting ?? []), ...failed].map(({ number }) => number),
  )
}

function partOf(
  { blockNumber, txHash, logIndex }: Pick<News['payouts'][number], 'blockNumber' | 'txHash' | 'logIndex'>,
  news: News,
) {
  const [kind] = Object.entries(news).find(([, rows]) => rows.length > 0) ?? ['']
  return { key: `${kind} ${txHash} ${logIndex}`, number: BigInt(blockNumber), news }
}

/** Notifies providers of new batches. If that fails because of one batch, notifies them separately for each block. */
async function notifyOfRange(
  { sql, chainId, network, onBadRow }: Recording,
  range: { after: bigint; upTo: bigint },
  batches: readonly NumberedBatch[],
): Promise<void> {
  const notify = (after: bigint, upTo: bigint) => notifyBatches(sql, { chainId, network, after, upTo })
  try {
    await notify(range.after, range.upTo)
  } catch (error) {
    if (failedDependency(error) !== undefined && !isTimeLimit(error)) throw error
    const blocks = [...new Set(batches.map(({ blockNumber }) => BigInt(blockNumber)))]
    await forEachRow(
      blocks,
      (block) => notify(block - 1n, block),
      (cause, block) => onBadRow('notification', cause, { network, number: `${block}` }),
      { ask: () => sql`select 1` },
    )
  }
}

/** Queries the chain about each item, several at a time. */
async function askAbout<Item>(items: readonly Item[], ask: (item: Item) => Promise<void>): Promise<void> {
  for (let at = 0; at < items.length; at += asksAtOnce)
    await Promise.all(items.slice(at, at + asksAtOnce).map(ask))
}

/**
 * Looks up when the blocks of batches were confirmed, if these blocks are already final. A new record begins with such batches. Because
 * their `confirmedAt` is set, no one is notified about them.
 */
async function confirmOld(
  { served, confirmations }: Recording,
  batches: readonly NumberedBatch[],
  safeBlock: bigint,
): Promise<void> {
  const old = batches.filter((batch) => batch.sequence !== null && batch.blockNumber <= safeBlock)
  await askAbout(old, async (batch) => {
    const blockNumber = batch.blockNumber + BigInt(confirmations)
    const { timestamp } = await served.client.getBlock({ blockNumber })
    batch.confirmedAt = new Date(Number(timestamp) * 1000)
  })
}

/**
 * Stores when each block reached its network's confirmation depth, and notifies providers about the payments that settled in the block, regardless
 * of who sent the transactions. The stored time is the time of the later block with which the depth was reached.
 */
async function confirm(
  recording: Recording,
  { head, readUpTo }: { head: bigint; readUpTo: bigint },
): Promise<void> {
  const { sql, served, chainId, network, confirmations, unconfirmed, onTold, onBadRow } = recording
  const deep = head - BigInt(confirmations)
  const upTo = deep < readUpTo ? deep : readUpTo
  const blocks = await readUnconfirmedBlocks(sql, chainId, upTo, blocksAtOnce, unconfirmed.waiting())
  if (blocks.length === 0) return
  for (const block of [...(await readConfirmedBlocks(sql, chainId, { limit: 1 })), ...blocks]) {
    if (await stands(recording, block)) continue
    await setFinal(sql, chainId, block, false)
    recording.look = null
    return
  }
  async function tell(block: RecordedBlock): Promise<void> {
    const depth = await served.client.getBlock({ blockNumber: block.blockNumber + BigInt(confirmations) })
    const told = await sql.begin(async (tx) => {
      const about = { chainId, network, block }
      if (!(await setConfirmed(tx, chainId, block, new Date(Number(depth.timestamp) * 1000)))) return 0
      const payments = await notifySettled(tx, about)
      await notifyBatches(tx, { chainId, network, after: block.blockNumber - 1n, upTo: block.blockNumber })
      return payments
    })
    if (told > 0) onTold?.('payment.settled', told)
  }
  await forEachRow(
    blocks,
    tell,
    (error, { blockNumber, blockHash }) => {
      unconfirmed.failed(blockHash)
      onBadRow('notification', error, { network, block: blockHash, number: `${blockNumber}` })
    },
    { ask: () => sql`select 1` },
  )
}
