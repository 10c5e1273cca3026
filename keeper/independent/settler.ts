import type { Hex } from 'viem'
import { broadcast } from '#chain/broadcast'
import { ChainUnavailable } from '#chain/everywhere'
import { estimateFees } from '#chain/feeEstimate'
import { bumpFees, type Fees } from '#chain/fees'
import { batchGasCut, countThatFit } from '#chain/gas'
import type { PayersWithCode } from '#chain/payerCode'
import { findMined, hasPending, type Mined, readNonce } from '#chain/receipts'
import type { ServedNetwork } from '#chain/servedNetworks'
import { estimateSettlementCost, readGasTokenPrice, weiToUsd } from '#chain/settlementCost'
import type { BatchItem } from '#ledger/items'
import type { Logger } from '#process/log'
import type { SettlementWallet } from '../loops/context.ts'
import { isUnfunded } from '../loops/funds.ts'
import type { Plan, PlannedBatch } from '../loops/plan.ts'
import { prepareItems } from '../loops/prepare.ts'
import { signTransaction } from '../loops/settle.ts'
import type { Budget } from './budget.ts'
import type { PendingBatch } from './pendingQueue.ts'

export type SettlerSettings = {
  rebroadcastAfterMs: number
  replaceAfterMs: number
  priorityFeePerGas: bigint | null
  maxFeePerGas: bigint
  gasTokenUsd: bigint
}

export type SettlerDependencies = {
  served: ServedNetwork
  wallet: SettlementWallet
  settings: SettlerSettings
  budget: Budget
  payersWithCode: PayersWithCode
  readPending: () => Promise<PendingBatch[]>
  now: () => Date
  randomBytes32: () => Hex
  log: Logger
}

type Attempt = Awaited<ReturnType<typeof signTransaction>> & {
  payments: number
  at: number
  triedAt: number
}

/** What is out. A process that forgets it loses nothing: the chain knows the nonce, the gateway what is left to settle. */
type InFlight = {
  batch: PlannedBatch
  items: BatchItem[]
  attempts: [Attempt, ...Attempt[]]
  goneSince: number | null
}

/** A nonce that is used by none of our transactions is given up after this long. */
const lostAfterMs = 10_000
const plainTransferGas = 21_000n

export type Settler = {
  /** To be taken again and again: `busy` if there may be more to do at once. */
  step: () => Promise<'busy' | 'idle'>
  /** What it has done so far, and what of it is still out. */
  report: () => { batches: number; payments: number; stillOut: Hex | null }
}

/** One wallet that settles what a gateway publishes, at its own cost, with one transaction in flight. */
export function createSettler(dependencies: SettlerDependencies): Settler {
  const { served, wallet, settings, budget, readPending, now, log } = dependencies
  let inFlight: InFlight | null = null
  /** Since when (ms) it waits for what a run before this one may have left behind; `over` once it needn't. */
  let waitsForEarlier: number | 'not yet' | 'over' = 'not yet'
  let wasIdle = false
  let lastSaid = ''
  const done = { batches: 0, payments: 0 }

  /**
   * A run before this one may have been killed with its transaction out. That one settles what this one would: it is
   * given the time that a transaction of our own is given. After that ours takes its nonce, and offers more.
   */
  async function mustWait(): Promise<boolean> {
    if (waitsForEarlier === 'over') return false
    if (!(await hasPending(served.clients, wallet.address))) {
      waitsForEarlier = 'over'
      return false
    }
    if (waitsForEarlier === 'not yet') {
      waitsForEarlier = now().getTime()
      log.info('a transaction of this wallet from before the start is not mined yet: waiting for it')
    }
    if (now().getTime() - waitsForEarlier < settings.replaceAfterMs) return true
    log.warn('the transaction from before the start is not mined in time: its nonce is used again')
    waitsForEarlier = 'over'
    return false
  }

  async function settleNext(): Promise<'busy' | 'idle'> {
    if (await mustWait()) return 'idle'
    const isBusy = await settlePending()
    if (!isBusy && !wasIdle) log.info('nothing more to settle at the moment')
    wasIdle = !isBusy
    return isBusy ? 'busy' : 'idle'
  }

  async function settlePending(): Promise<boolean> {
    for (const pending of await readPending()) {
      const batch: PlannedBatch = {
        batchId: dependencies.randomBytes32(),
        token: served.token,
        feeRecipient: pending.feeRecipient,
        trigger: pending.trigger,
      }
      const items = await takeFitting(pending.items)
      const { plan } = await prepareItems(dependencies, batch, items, wallet.address)
      if (plan && (await send(batch, items, plan))) return true
    }
    return false
  }

  /** As many as fit into a transaction, all of payers with code or none, as the first. */
  async function takeFitting(items: BatchItem[]): Promise<BatchItem[]> {
    const withCode = await dependencies.payersWithCode(
      items.map(({ provider }) => provider.authorization.from),
    )
    const isOfCode = (item: BatchItem) => withCode.has(item.provider.authorization.from)
    const [first] = items
    if (!first) return []
    const alike = items.filter((item) => isOfCode(item) === isOfCode(first))
    const shapes = alike.map(({ provider, fee }) => ({
      isPair: fee !== null,
      payee: provider.authorization.to,
    }))
    return alike.slice(0, countThatFit(shapes, isOfCode(first), batchGasCut))
  }

  async function send(batch: PlannedBatch, items: BatchItem[], plan: Plan): Promise<boolean> {
    const [nonce, fees, balance, { usdPerToken }] = await Promise.all([
      readNonce(served.clients, wallet.address),
      estimateFees(served.client, settings),
      served.client.getBalance({ address: wallet.address }),
      readPrice(),
    ])
    const cost = await estimateSettlementCost(served.client, {
      network: served.network,
      contract: served.deployment.batchSettlement,
      from: wallet.address,
      shape: plan.shape,
      gasPrice: fees.baseFeePerGas + fees.maxPriorityFeePerGas,
      usdPerToken,
    })
    if (!budget.allows(cost)) {
      sayOnce("the day's gas budget is used up", { cost: `${cost}`, spentToday: `${budget.spentToday()}` })
      return false
    }
    if (balance < plan.gas * fees.maxFeePerGas) {
      sayOnce('the wallet is out of gas money', { balance: `${balance}` })
      return false
    }
    const attempt = await sign(plan, nonce, fees, 'settle')
    inFlight = { batch, items, attempts: [attempt], goneSince: null }
    log.info(
      { batch: batch.batchId, hash: attempt.hash, payments: plan.entries.length, trigger: batch.trigger },
      'batch signed',
    )
    const result = await hand(attempt)
    if (isUnfunded(result)) {
      // The money went since the look at the balance. No node has it: the next look says what is wrong.
      inFlight = null
      return false
    }
    lastSaid = ''
    return true
  }

  /** What keeps it from working would else be said at every look. */
  function sayOnce(message: string, details: Record<string, string>): void {
    if (message !== lastSaid) log.warn(details, message)
    lastSaid = message
  }

  async function sign(
    plan: Pick<Plan, 'calldata' | 'gas' | 'entries'>,
    nonce: number,
    fees: Fees,
    kind: Attempt['kind'],
  ): Promise<Attempt> {
    const signed = await signTransaction(served, wallet, plan, nonce, fees, kind)
    return { ...signed, payments: plan.entries.length, at: now().getTime(), triedAt: 0 }
  }

  async function hand(attempt: Attempt) {
    attempt.triedAt = now().getTime()
    const result = await broadcast(served.clients, attempt.raw, attempt.hash)
    if (result.status !== 'sent') {
      log.warn(
        { hash: attempt.hash, status: result.status, reason: result.reason },
        'no node has confirmed to have the transaction',
      )
    }
    return result
  }

  async function follow(current: InFlight): Promise<'busy' | 'idle'> {
    const [dearest] = current.attempts
    const mined = await findOurs(current)
    if (mined === 'unknown') {
      await handAgainIfDue(dearest)
      return 'idle'
    }
    if (mined) {
      await conclude(current, mined)
      return 'busy'
    }
    const nextNonce = await readNonce(served.clients, wallet.address)
    if (nextNonce > dearest.nonce) {
      current.goneSince ??= now().getTime()
      if (now().getTime() - current.goneSince < lostAfterMs) return 'idle'
      log.error(
        { batch: current.batch.batchId },
        'the nonce was used by a transaction that is not of this run',
      )
      inFlight = null
      return 'idle'
    }
    current.goneSince = null
    const isStuck = now().getTime() - dearest.at >= settings.replaceAfterMs
    if (isStuck && nextNonce < dearest.nonce) {
      // A reorg dropped what was mined before it, and nobody sends that again: the next batch starts from there.
      log.warn({ batch: current.batch.batchId }, 'a reorg took the nonce before this one back: starting anew')
      inFlight = null
      return 'busy'
    }
    if (isStuck && (await replace(current, dearest))) return 'idle'
    const again = await handAgainIfDue(dearest)
    // A transaction of this nonce from before a restart is still out, or the base fee has risen over the offer.
    if (again?.status === 'rejected' && again.code === 'underpriced') await replace(current, dearest)
    return 'idle'
  }

  async function findOurs({ attempts }: InFlight): Promise<Mined | null | 'unknown'> {
    return findMined(
      served.clients,
      attempts.map(({ hash }) => hash),
    ).catch((error: unknown) => {
      if (error instanceof ChainUnavailable) return 'unknown' as const
      throw error
    })
  }

  async function handAgainIfDue(attempt: Attempt) {
    return now().getTime() - attempt.triedAt < settings.rebroadcastAfterMs ? null : hand(attempt)
  }

  /** Offers more: for what of the batch is still to be settled, or to have the nonce back. */
  async function replace(current: InFlight, dearest: Attempt): Promise<boolean> {
    const fees = bumpFees(dearest, await estimateFees(served.client, settings), settings.maxFeePerGas)
    if (!fees) return false
    const { plan } = await prepareItems(dependencies, current.batch, current.items, wallet.address)
    const balance = await served.client.getBalance({ address: wallet.address })
    if (balance < (plan?.gas ?? plainTransferGas) * fees.maxFeePerGas) {
      sayOnce('the wallet has too little gas money to offer more', { balance: `${balance}` })
      return false
    }
    const attempt = plan
      ? await sign(plan, dearest.nonce, fees, 'replacement')
      : await sign(
          { calldata: '0x', gas: plainTransferGas, entries: [] },
          dearest.nonce,
          fees,
          'cancellation',
        )
    current.attempts.unshift(attempt)
    log.warn(
      { batch: current.batch.batchId, replaced: dearest.hash, hash: attempt.hash },
      'offered more for the nonce',
    )
    await hand(attempt)
    return true
  }

  async function conclude({ batch, attempts }: InFlight, { hash, receipt }: Mined): Promise<void> {
    const { usdPerToken } = await readPrice()
    const l1Fee = 'l1Fee' in receipt && typeof receipt.l1Fee === 'bigint' ? receipt.l1Fee : 0n
    budget.spend(weiToUsd(receipt.gasUsed * receipt.effectiveGasPrice + l1Fee, usdPerToken))
    inFlight = null
    const { status, blockNumber, gasUsed } = receipt
    const mined = attempts.find((attempt) => attempt.hash === hash)
    if (status === 'success' && mined) {
      done.batches += mined.payments > 0 ? 1 : 0
      done.payments += mined.payments
    }
    log.info(
      {
        batch: batch.batchId,
        hash,
        status,
        payments: mined?.payments,
        block: `${blockNumber}`,
        gasUsed: `${gasUsed}`,
        spentToday: `${budget.spentToday()}`,
      },
      'batch mined',
    )
  }

  function readPrice() {
    return readGasTokenPrice(served.client, served.network.ethUsdFeed, settings.gasTokenUsd)
  }

  return {
    step: () => (inFlight ? follow(inFlight) : settleNext()),
    report: () => ({ ...done, stillOut: inFlight?.attempts[0].hash ?? null }),
  }
}
