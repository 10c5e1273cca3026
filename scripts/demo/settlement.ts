import type { JSONWebKeySet } from 'jose'
import type { Address, PublicClient } from 'viem'
import type { ReceiptClaims } from '#protocol/receipt'
import { verifyReceipt } from '#sdk/audit/verifyReceipt'
import { forEachLimited } from './buyers.ts'
import type { Market } from './market.ts'
import type { Progress } from './progress.ts'
import { createReconciler } from './reconcile.ts'

export type Audited = { settled: number; receipts: ReceiptClaims[]; reconciled: number; problems: string[] }

const lookUpsAtOnce = 8
const patienceMs = 150_000

/** Waits until every payment is settled, verifies what receipt it got then, and holds that against the chain's logs. */
export async function auditPayments(
  { sales, buyers }: Market,
  gateway: string,
  { chain, token }: { chain: PublicClient; token: Address },
  progress: Progress,
): Promise<Audited> {
  const ids = sales.flatMap(({ paymentIds }) => paymentIds)
  const audited: Audited = { settled: 0, receipts: [], reconciled: 0, problems: [] }

  // Any client can ask for any payment.
  const [{ client } = { client: undefined }] = buyers
  const texts = new Map<string, string>()
  const settled = progress.count('Settled', ids.length)
  settled(0)
  await forEachLimited(ids, lookUpsAtOnce, async (id) => {
    try {
      const settlement = await client?.waitForSettlement(id, { pollMs: 500, timeoutMs: patienceMs })
      if (settlement) texts.set(id, settlement.receipt)
      settled(texts.size)
    } catch (error) {
      audited.problems.push(`${id} isn't settled: ${(error as Error).message}`)
    }
  })
  audited.settled = texts.size

  const jwks = (await (await fetch(new URL('/.well-known/jwks.json', gateway))).json()) as JSONWebKeySet
  const verified = progress.count('Receipts verified', texts.size)
  for (const [id, text] of texts) {
    try {
      const claims = await verifyReceipt(text, jwks)
      if (claims.paymentId !== id) throw new Error(`it is ${claims.paymentId}'s`)
      audited.receipts.push(claims)
      verified(audited.receipts.length)
    } catch (error) {
      audited.problems.push(`receipt of ${id}: ${(error as Error).message}`)
    }
  }

  const reconcile = createReconciler(chain, token)
  const reconciled = progress.count('Reconciled with the chain', audited.receipts.length)
  for (const claims of audited.receipts) {
    const found = await reconcile(claims)
    audited.problems.push(...found.map((problem) => `${claims.paymentId}: ${problem}`))
    if (found.length === 0) reconciled(++audited.reconciled)
  }
  return audited
}
