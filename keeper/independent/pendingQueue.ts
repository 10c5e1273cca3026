import type { Address } from 'viem'
import { z } from 'zod'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { BatchItem } from '#ledger/batches/items'
import { settleMarginSeconds } from '#ledger/store/settleMargin'
import { parsePayload, type SignedAuthorization } from '#protocol/payload'
import { type Trigger, triggerCodes } from '#protocol/settlement'
import { type SplitterTerms, splitterAddress } from '#protocol/splitter'

const address = z.string().regex(/^0x[0-9a-f]{40}$/)
/** Below 2^48. */
const share = z.string().regex(/^(0|[1-9][0-9]{0,13})$/)
const answerSchema = z.object({
  batches: z
    .array(
      z.object({
        feeRecipient: address,
        trigger: z.enum(Object.keys(triggerCodes) as [Trigger]),
        payments: z.array(z.array(z.string().max(4_096)).min(1).max(2)).max(1_000),
        splitters: z
          .array(z.object({ address, provider: address, shares: z.tuple([share, share]) }))
          .max(1_000)
          .default([]),
      }),
    )
    .max(1_000),
  batchSettlement: address,
  token: address,
})

export type PendingBatch = { feeRecipient: Address; trigger: Trigger; items: BatchItem[] }

const timeoutMs = 20_000
const mostBytes = 8_000_000

/**
 * Asks a gateway for what is due (`GET /settlements/pending`). Nothing that it says is believed but the payloads' own
 * words: contract and token are ours, and whether a signature is good, the chain is asked before anything is sent.
 *
 * @throws if the gateway doesn't answer, or with something else.
 */
export async function fetchPending(
  gatewayUrl: string,
  { network, deployment, token }: ServedNetwork,
  page: number,
  now: Date,
): Promise<PendingBatch[]> {
  const url = new URL('settlements/pending', gatewayUrl.endsWith('/') ? gatewayUrl : `${gatewayUrl}/`)
  url.searchParams.set('network', network.name)
  url.searchParams.set('page', String(page))
  const response = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) })
  const text = await readText(response)
  if (!response.ok) throw new Error(`the gateway answered ${response.status}: ${text.slice(0, 200)}`)
  const answer = answerSchema.parse(JSON.parse(text))
  if (answer.token !== token || answer.batchSettlement !== deployment.batchSettlement) {
    throw new Error(
      `the gateway settles ${answer.token} through ${answer.batchSettlement}, this keeper something else`,
    )
  }
  return answer.batches.map(({ feeRecipient, trigger, payments, splitters }) => {
    const terms = new Map(
      splitters.map(
        ({ address, provider, shares: [providerShare, platformShare] }): [string, SplitterTerms] => [
          address,
          {
            provider: provider as Address,
            platform: feeRecipient as Address,
            ...{ providerShare: BigInt(providerShare), platformShare: BigInt(platformShare) },
          },
        ],
      ),
    )
    return {
      feeRecipient: feeRecipient as Address,
      trigger,
      items: payments.flatMap((payloads, position) => {
        const item = toItem(payloads, position, now)
        if (!item) return []
        const { to } = item.provider.authorization
        const splitter = item.fee ? undefined : terms.get(to)
        return splitter && splitterAddress({ ...splitter, factory: deployment.splitterFactory }) === to
          ? [{ ...item, splitter }]
          : [item]
      }),
    }
  })
}

/** Its payloads as what a batch can hold; null for those that can't be settled together, or any more. */
function toItem(payloads: readonly string[], position: number, now: Date): BatchItem | null {
  const authorizations = parse(payloads)
  const [provider, fee] = authorizations
  if (!provider || (fee && fee.from !== provider.from)) return null
  const until = BigInt(Math.floor(now.getTime() / 1000) + settleMarginSeconds)
  if (authorizations.some(({ validBefore }) => validBefore <= until)) return null
  return {
    position,
    paymentId: null,
    provider: { authorization: provider, state: 'open' },
    fee: fee ? { authorization: fee, state: 'open' } : null,
  }
}

function parse(payloads: readonly string[]): SignedAuthorization[] {
  try {
    return payloads.map(parsePayload)
  } catch {
    return []
  }
}

async function readText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length
    if (bytes > mostBytes) throw new Error(`the gateway's answer is longer than ${mostBytes} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}
