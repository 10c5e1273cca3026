import { classifyRevert, type Failure } from '@tollkeeper/chain/failures'
import { callGasLimit } from '@tollkeeper/chain/gas'
import type { Mined } from '@tollkeeper/chain/receipts'
import { gasCostOf } from '@tollkeeper/chain/settledBatches'
import { areNoncesSpent, diagnose, isPaused, simulateBatch } from '@tollkeeper/chain/simulate'
import type { BatchItem, ItemHalf } from '@tollkeeper/ledger/batches/items'
import type { Offer } from '@tollkeeper/ledger/batches/transactions'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { type Address, formatEther, type Hex, parseTransaction } from 'viem'
import type { SettlerContext } from './context.ts'
import type { MinedVerdict, OpenBatch } from './journal.ts'
import { authorizationKey, readOutcomes, readReward, readTransaction } from './outcomes.ts'
import { diagnosisGas } from './prepare.ts'

const outOfGasPauseMs = 60_000

const noVerdict: MinedVerdict = { failed: [], spent: [], untried: [], ranOut: false }

/** Stores the mined transaction and the conclusions about the batch's payers. */
export async function recordMined(context: SettlerContext, open: OpenBatch, mined: Mined): Promise<void> {
  const { served, log, metrics, checkpoint, address: wallet } = context
  const { batchId: batch } = open.batch
  const { hash, receipt } = mined
  const { blockNumber, status, gasUsed } = receipt
  const verdict = await judgeMined(context, open, mined)
  const cost = await open.gas.costOf(receipt)
  const reward = readReward(receipt, served, wallet)
  await checkpoint('before-mined-recorded')
  await open.markMined(mined, verdict, { cost, reward })
  const labels = { network: served.network.name, wallet }
  metrics.spent.inc(labels, Number(cost) / 1_000_000)
  metrics.spentEther.inc(labels, Number(formatEther(gasCostOf(receipt))))
  metrics.earned.inc(labels, Number(reward) / 1_000_000)
  context.missingSince.delete(batch)
  const books = { spent: formatUsdc(cost), earned: formatUsdc(reward) }
  log.info({ batch, hash, block: `${blockNumber}`, status, gasUsed: `${gasUsed}`, ...books }, 'batch mined')
  if (status !== 'success') {
    const { failed, spent, untried, ranOut } = verdict
    const counts = { failed: failed.length, spent: spent.length, untried: untried.length }
    log.warn({ batch, hash, ...counts }, 'the batch reverted on chain')
    if (ranOut) {
      await context.journal.pause(outOfGasPauseMs, 'out_of_gas')
      log.error({ wallet, batch }, 'a batch ran out of gas: wallet paused')
    }
  }
  await checkpoint('after-mined-recorded')
}

/**
 * Draws conclusions from our mined transaction about items that had passed the simulation.
 *
 * If all items of a batch have their full gas, the contract tries at least the first item of each payer. So if such a batch reverts, the
 * token refused the first unused nonce of each payer, even if that payer deceived the simulation. The payer's other items were skipped.
 * In a batch with less gas, some items may not have been tried, because others burned their gas. Their next transaction has full gas for
 * each item.
 */
async function judgeMined(
  context: SettlerContext,
  { offers, batch, readItems }: OpenBatch,
  { hash, receipt }: Mined,
): Promise<MinedVerdict> {
  const offer = offers.find((one) => one.hash === hash)
  if (!offer || offer.kind === 'cancellation') return noVerdict
  if (receipt.status !== 'success') return judgeReverted(context, offer, await readItems(), receipt)
  // The contract's event names the failures. Here they only count against payers; `finalizeMined` handles the payments.
  const outcomes = readOutcomes(context.served.deployment, batch.batchId, offer, receipt)
  if (!outcomes.hasFailed) return noVerdict
  const [items, tried] = await Promise.all([readItems(), outcomes.readTried()])
  const failed: MinedVerdict['failed'] = []
  for (const item of items) {
    for (const half of [item.provider, item.fee]) {
      const outcome = half && tried.get(authorizationKey(half.authorization))
      if (outcome?.outcome !== 'failed') continue
      const failure = classifyRevert(outcome.reason ?? '0x')
      if (failure.owner === 'payment') failed.push({ item, failure })
    }
  }
  return { ...noVerdict, failed }
}

async function judgeReverted(
  context: SettlerContext,
  offer: Offer,
  items: readonly BatchItem[],
  { blockNumber, gasUsed, effectiveGasPrice }: Mined['receipt'],
): Promise<MinedVerdict> {
  const { client, token, deployment } = context.served
  const at = { blockNumber }
  const raw = await offer.readRaw()
  // This isn't the payers' fault. The next simulation leaves out the tabs that pay the refused account.
  if (await isPayeeRefused(context, raw, at)) return noVerdict
  const { callGasLimit: callGas, items: planned } = readTransaction(raw, deployment.tabSettlement)
  const [paused, spent] = await Promise.all([
    isPaused(client, token, at),
    areNoncesSpent(
      client,
      token,
      planned.map(({ authorization }) => authorization),
      at,
    ),
  ])
  // The token is paused, which is not the payers' fault.
  if (paused) return noVerdict
  const isBudgetedInFull = callGas >= callGasLimit(true) || planned.length === 1
  const ranOut = isBudgetedInFull && gasUsed * 100n >= offer.gas * 97n
  const byAuthorization = indexItems(items)
  const verdict: MinedVerdict = { failed: [], spent: [], untried: [], ranOut }
  const refused = new Set<Address>()
  for (const [index, { authorization }] of planned.entries()) {
    const item = byAuthorization.get(authorizationKey(authorization))
    if (!item) continue
    if (spent[index]) verdict.spent.push(item)
    else if (!isBudgetedInFull || ranOut || refused.has(authorization.from)) verdict.untried.push(item)
    else {
      refused.add(authorization.from)
      const half = halfOf(item, authorization.nonce)
      verdict.failed.push({ item, failure: await whyRefused(context, effectiveGasPrice, half, at) })
    }
  }
  return verdict
}

/** Whether a batch of tabs reverts on a block's state because the token refuses every way to pay one of its payees. */
async function isPayeeRefused(
  { served: { client, deployment }, address: from }: SettlerContext,
  raw: Hex,
  at: { blockNumber: bigint },
): Promise<boolean> {
  const { to, data: calldata = '0x', gas = 0n } = parseTransaction(raw)
  if (to?.toLowerCase() !== deployment.tabSettlement) return false
  const call = { from, to: deployment.tabSettlement, calldata, gas }
  return (await simulateBatch(client, call, at)).status === 'payee_refused'
}

/**
 * Diagnoses why the token refused an authorization. A wallet that deceives the simulation passes this diagnosis as well, so if there is no
 * other reason, its signature is blamed.
 */
async function whyRefused(
  { served, address }: SettlerContext,
  gasPrice: bigint,
  { authorization }: ItemHalf,
  at: { blockNumber: bigint },
): Promise<Pick<Failure, 'code' | 'detail'>> {
  const call = { gas: diagnosisGas, gasPrice }
  const failure = await diagnose(served.client, served.token, address, authorization, at, call)
  if (failure?.owner === 'payment') return failure
  return { code: 'invalid_signature', detail: 'it passed the simulation, but failed when it was mined' }
}

function halfOf({ provider, fee }: BatchItem, nonce: string): ItemHalf {
  return fee?.authorization.nonce === nonce ? fee : provider
}

function indexItems(items: readonly BatchItem[]): Map<string, BatchItem> {
  const index = new Map<string, BatchItem>()
  for (const item of items)
    for (const half of [item.provider, item.fee])
      if (half) index.set(authorizationKey(half.authorization), item)
  return index
}
