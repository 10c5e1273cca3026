import { type BroadcastResult, broadcast } from '@tollkeeper/chain/broadcast'
import type { Fees } from '@tollkeeper/chain/fees'
import { hashHex } from '@tollkeeper/chain/keccak256'
import { postingGasLimit } from '@tollkeeper/chain/postingGas'
import type { Offer, SignedTransaction } from '@tollkeeper/ledger/batches/transactions'
import type { Hex } from 'viem'
import { requireFunds, type SettlementWallet, type SettlerContext, Unfunded } from './context.ts'
import type { OpenBatch } from './journal.ts'
import type { Drop, Plan } from './plan.ts'

/** Gas of a transaction that only uses its nonce. */
const cancellationGas = 21_000n

export type Offerable = {
  /** Null if nothing is left to settle. */
  plan: Plan | null
  nonce: number
  fees: Fees
  /** The balance of the wallet in wei. */
  balance: bigint
}

/**
 * Offers a transaction for a nonce: signs the plan, or an empty transaction to the wallet itself if nothing is left to settle, stores it,
 * and only then sends it.
 *
 * @param drops the items that leave the batch, because the transaction doesn't contain them
 * @throws {Unfunded} if the wallet can't pay for it. The transaction may be stored by then.
 */
export async function sendOffer(...offer: Parameters<typeof signAndSend>): Promise<void> {
  const [{ tracer, served }, wallet, { batch }, { plan }, kind] = offer
  const links = tracer && plan?.entries.flatMap(({ item: { trace } }) => trace ?? [])
  if (!links?.length) return void (await signAndSend(...offer))
  const span = tracer?.startSpan('settle', {
    links,
    attributes: {
      'tollkeeper.network': served.network.name,
      'tollkeeper.batch.id': batch.batchId,
      'tollkeeper.wallet': wallet.address,
      'tollkeeper.transaction.kind': kind,
      'tollkeeper.payments': plan?.entries.length ?? 0,
    },
  })
  try {
    span?.set({ 'tollkeeper.transaction.hash': await signAndSend(...offer) })
    span?.end()
  } catch (error) {
    span?.end(error)
    throw error
  }
}

/** @returns the transaction's hash. */
async function signAndSend(
  context: SettlerContext,
  wallet: SettlementWallet,
  open: OpenBatch,
  { plan, nonce, fees, balance }: Offerable,
  kind: SignedTransaction['kind'],
  drops: readonly Drop[],
): Promise<Hex> {
  const { served, log, metrics, checkpoint } = context
  const { batch, offers } = open
  const ownGas =
    plan?.gas ?? cancellationGas + (await postingGasLimit(served, { to: wallet.address, data: '0x' }))
  if (!plan) requireFunds(balance, ownGas * fees.maxFeePerGas)
  const { maxFeePerGas, maxPriorityFeePerGas } = fees
  const offered = { nonce, gas: ownGas, maxFeePerGas, maxPriorityFeePerGas }
  const raw = await wallet.sign({
    ...offered,
    chainId: served.network.chainId,
    to: plan ? served.deployment[plan.contract] : wallet.address,
    data: plan?.calldata ?? '0x',
  })
  // The hash is known and stored before anyone else sees the transaction.
  const hash = hashHex(raw)
  const step = kind === 'settle' ? 'write-ahead' : 'replacement-write-ahead'
  await checkpoint(`before-${step}`)
  await open.save({ ...offered, hash, kind, raw }, drops)
  await checkpoint(`after-${step}`)
  const payments = { payments: plan?.entries.length ?? 0, sweeps: plan?.shape?.sweeps ?? 0 }
  const said = { batch: batch.batchId, trigger: batch.trigger, wallet: wallet.address, hash, ...payments }
  if (kind === 'settle') log.info(said, 'batch signed')
  else {
    metrics.replacements.inc({ network: served.network.name, kind })
    log.warn({ ...said, kind, replaced: offers[0]?.hash }, 'offered a higher fee for the nonce')
  }
  await sendStored(context, { hash, raw, kind })
  return hash
}

/** Sends a stored transaction again if it was last sent long enough ago. */
export async function resendIfDue(context: SettlerContext, offer: Offer): Promise<BroadcastResult | null> {
  const { triedAgoMs } = offer
  if (triedAgoMs !== null && triedAgoMs < context.settings.rebroadcastAfterMs) return null
  return sendStored(context, { ...offer, raw: await offer.readRaw() })
}

/**
 * Sends a stored transaction, for the first time or again.
 *
 * @throws {Unfunded} if every node refuses it because the wallet's gas money was spent after it was checked
 */
async function sendStored(
  { served, journal, metrics, log, checkpoint, address }: SettlerContext,
  { hash, raw, kind }: Pick<SignedTransaction, 'hash' | 'raw' | 'kind'>,
): Promise<BroadcastResult> {
  await checkpoint('before-broadcast')
  const result = await broadcast(served.clients, raw, hash)
  await checkpoint('after-broadcast')
  metrics.broadcasts.inc({
    network: served.network.name,
    kind,
    result: result.status === 'rejected' ? result.code : result.status,
  })
  await journal.markTried(hash, result.status === 'sent')
  await checkpoint('after-broadcast-recorded')
  if (result.status !== 'sent') {
    const { status, reason } = result
    log.warn({ hash, wallet: address, status, reason }, 'no node has confirmed that it has the transaction')
  }
  if (result.status === 'rejected' && result.code === 'insufficient_gas_funds') throw new Unfunded()
  return result
}
