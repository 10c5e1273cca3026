import { audit } from '@tollkeeper/sdk/audit/audit'
import { mapLimited } from '@tollkeeper/sdk/audit/concurrency'
import type { AuditedReceipt } from '@tollkeeper/sdk/audit/report'
import type { Deployments } from '@tollkeeper/sdk/protocol/deployments'
import type { JSONWebKeySet } from 'jose'
import type { PublicClient } from 'viem'
import type { Market, TabSales } from './market.ts'
import { patienceMs, untilStatus } from './paymentStatus.ts'
import type { Progress } from './progress.ts'

export type Audited = { settled: number; receiptsVerified: number; reconciled: number; problems: string[] }

const lookUpsAtOnce = 8

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
  await mapLimited(ids, lookUpsAtOnce, async (id) => {
    try {
      const settlement = await client?.waitForSettlement(id, { pollMs: 500, timeoutMs: patienceMs })
      if (settlement) texts.set(id, settlement.receipt)
      settled(texts.size)
    } catch (error) {
      audited.problems.push(`${id} isn't settled: ${(error as Error).message}`)
    }
  })
  audited.settled = texts.size

  const jwks = await fetchKeys(gateway)
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

/** Waits until the tab is settled, and audits its buyer's receipts, one for each request. @returns how many the chain covers. */
export async function auditTab(
  { paymentId, receipts, sales }: TabSales,
  gateway: string,
  { chain, deployments }: { chain: PublicClient; deployments: Deployments },
  progress: Progress,
): Promise<{ settled: number; problems: string[] }> {
  await untilStatus(gateway, paymentId, (status) => ['settled', 'failed'].includes(status))
  const options = { jwks: await fetchKeys(gateway), clients: [chain], deployments }
  let report = await audit({ receipts, ...options })
  for (const end = Date.now() + patienceMs; report.states.pending > 0 && Date.now() < end; ) {
    await new Promise((resolve) => setTimeout(resolve, 500))
    report = await audit({ receipts, ...options })
  }
  const { settled } = report.states
  progress.count('Receipts of the tab reconciled', receipts.length)(settled)
  const problems = report.receipts.flatMap(({ state, detail }) => (state === 'settled' ? [] : detail))
  const bought = sales.reduce((sum, { purchase }) => sum + purchase.price * BigInt(purchase.count), 0n)
  const [tab, ...others] = report.tabs
  if (tab?.movedAmount !== bought || others.length > 0)
    problems.push(`${tab?.movedAmount} units moved on the tab instead of ${bought}`)
  return { settled, problems: [...new Set(problems)] }
}

async function fetchKeys(gateway: string): Promise<JSONWebKeySet> {
  return (await (await fetch(new URL('/.well-known/jwks.json', gateway))).json()) as JSONWebKeySet
}
