import { audit } from '@tollkeeper/sdk/audit/audit'
import { mapLimited } from '@tollkeeper/sdk/audit/concurrency'
import type { AuditReport } from '@tollkeeper/sdk/audit/report'
import type { Stack } from '../stack/stack.ts'
import type { Market } from './market.ts'
import { patienceMs } from './paymentStatus.ts'
import type { Progress } from './progress.ts'

const lookUpsAtOnce = 8

/** Waits until every payment is settled. The audit reports payments that take too long. */
export async function waitForSettlements({ paymentIds, buyers }: Market, progress: Progress): Promise<void> {
  // No key is needed: any client can ask about any payment.
  const [{ client } = { client: undefined }] = buyers
  let settled = 0
  const report = progress.count('Settled', paymentIds.length)
  report(settled)
  await mapLimited(paymentIds, lookUpsAtOnce, async (id) => {
    const settlement = await client
      ?.waitForSettlement(id, { pollingInterval: 100, timeoutMs: patienceMs })
      .catch(() => undefined)
    if (settlement) report(++settled)
  })
}

/** Audits the buyers' receipts like `tollkeeper audit`. Besides the chain, it reads only the gateway's keys. */
export function auditReceipts(
  { chain, api }: Stack,
  receipts: readonly string[],
  progress: Progress,
): Promise<AuditReport> {
  const verified = progress.count('Audited', receipts.length)
  return audit({
    receipts,
    jwks: new URL('/.well-known/jwks.json', api.url),
    rpcUrls: [chain.url],
    deployments: chain.deployments,
    onProgress: ({ step, done }) => {
      if (step === 'signatures') verified(done)
    },
  })
}
