import type { Hex } from 'viem'
import { z } from 'zod'
import { type TransferReport, transferStatuses } from '#ledger/transferReports'
import { errorCodes } from '#protocol/errors'
import { parsePayload } from '#protocol/payload'
import { maxTransfers, nameOf } from '../http/parseSubmission.ts'
import type { Context } from './context.ts'

const timeoutMs = 30_000

export type FacilitatorAnswer = ({ status: 'taken'; hash: Hex } | { status: 'refused'; code: string }) & {
  /** What it says of each transfer, if it does. */
  report: TransferReport[]
}

/**
 * Posts transfers to another facilitator's `POST /submit`.
 *
 * @throws where the answer says nothing of the transfers: it may have taken them, and is asked again, later and later.
 */
export async function askFacilitator(
  { served, settings, checkpoint }: Context,
  url: string,
  transfers: string[],
): Promise<FacilitatorAnswer> {
  await checkpoint('before-push')
  const response = await fetch(new URL('/submit', url), {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(settings.facilitatorKey ? { authorization: `Bearer ${settings.facilitatorKey}` } : {}),
    },
    body: JSON.stringify({ network: served.network.name, transfers }),
    signal: AbortSignal.timeout(timeoutMs),
  })
  const body: unknown = await response.json().catch(() => null)
  await checkpoint('after-push')
  const hash = typeof body === 'object' && body !== null && 'txHash' in body ? body.txHash : null
  const report = readReport(body, transfers)
  if (response.ok && typeof hash === 'string' && /^0x[0-9a-f]{64}$/.test(hash))
    return { status: 'taken', hash: hash as Hex, report }
  const code = typeof body === 'object' && body !== null && 'code' in body ? String(body.code) : 'no code'
  // Of the transfers it speaks in definite words only; of us (a wrong key, too many requests) and of itself in the others.
  const isDefinite =
    response.status >= 400 && response.status < 500 && ![401, 403, 429].includes(response.status)
  if (!isDefinite || !Object.hasOwn(errorCodes, code))
    throw new Error(`the facilitator answered ${response.status} (${code}) to ${transfers.length} transfers`)
  return { status: 'refused', code, report }
}

const hashText = z.custom<Hex>((value) => typeof value === 'string' && /^0x[0-9a-f]{64}$/.test(value))
const reportSchema = z.object({
  /** Why some of them are refused. */
  failures: z
    .array(
      z.object({
        transfer: z.int().nonnegative(),
        code: z.string().max(80),
        detail: z.string().max(400).optional(),
      }),
    )
    .max(maxTransfers)
    .catch([]),
  /** Where each of them stands. */
  transfers: z
    .array(z.object({ status: z.enum(transferStatuses), txHash: hashText.nullable() }))
    .max(maxTransfers)
    .catch([]),
})

/** What another facilitator's answer says of each transfer; one that isn't ours may say nothing of them. */
function readReport(body: unknown, payloads: readonly string[]): TransferReport[] {
  const { failures, transfers } = reportSchema.safeParse(body).data ?? { failures: [], transfers: [] }
  const names = payloads.map((payload) => nameOf(parsePayload(payload)))
  const failed = failures.map(({ transfer, ...failure }) => ({ name: names[transfer], ...failure }))
  const refused = new Set(failed.map(({ name }) => name))
  const placed = transfers.map((place, index) => ({ name: names[index], ...place }))
  return [...failed, ...placed.filter(({ name }) => !refused.has(name))].filter(
    (one): one is TransferReport => one.name !== undefined,
  )
}
