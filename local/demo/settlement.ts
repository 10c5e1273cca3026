import type { JSONWebKeySet } from 'jose'
import type { PublicClient } from 'viem'
import type { Deployments } from '#protocol/deployments'
import { audit } from '#sdk/audit/audit'
import type { AuditedReceipt } from '#sdk/audit/report'
import { forEachLimited } from './buyers.ts'
import type { Market } from './market.ts'
import type { Progress } from './progress.ts'

export type Audited = { settled: number; receiptsVerified: number; reconciled: number; problems: string[] }

const lookUpsAtOnce = 8
const patienceMs = 150_000

/** Waits until every payment is settled, and audits the receipts with the SDK, as an auditor would. */
export async function auditPayments(
  { sales, buyers }: Market,
  gateway: string,
  { chain, deployments }: { chain: PublicClient; deployments: Deployments },
  progress: Progress,
): Promise<Audited> {
  const ids = sales.flatMap(({ paymentIds }) => paymentIds)
  const audited: Audited = { settled: 0, receiptsVerified: 0, reconciled: 0, problems: [] }

  // Any client can ask about any payment.
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
  const receipts = [...texts.values()]
  const report = await audit({ receipts, jwks, clients: [chain], deployments })
  const each = [...texts.keys()].map((id, position) => ({
    id,
    ...(report.receipts[position] as AuditedReceipt),
  }))
  const verified = progress.count('Receipts verified', texts.size)
  for (const { id, payment, detail } of each) {
    if (payment?.paymentId === id) verified(++audited.receiptsVerified)
    else audited.problems.push(`receipt of ${id}: ${payment ? `it is ${payment.paymentId}'s` : detail}`)
  }
  const reconciled = progress.count('Reconciled with the chain', texts.size)
  for (const { id, state, isSuperseded, detail } of each) {
    if (state === 'settled' && !isSuperseded) reconciled(++audited.reconciled)
    else audited.problems.push(`${id}: ${isSuperseded ? 'its receipt names another transaction' : detail}`)
  }
  return audited
}
