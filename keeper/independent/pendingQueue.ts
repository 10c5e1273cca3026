import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { type BatchItem, type ItemTab, signedOfTab } from '@tollkeeper/ledger/batches/items'
import { settleMarginSeconds } from '@tollkeeper/ledger/store/settleMargin'
import { type Trigger, triggerCodes } from '@tollkeeper/sdk/protocol/batchSettlement'
import { parsePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { type SplitterTerms, splitterAddress } from '@tollkeeper/sdk/protocol/splitter'
import { maxTabLines } from '@tollkeeper/sdk/protocol/tab'
import type { Address } from 'viem'
import { z } from 'zod'
import { authorizationKey } from '../settler/outcomes.ts'

const address = z.string().regex(/^0x[0-9a-f]{40}$/)
/** A share of a splitter, below 2^48. */
const share = z.string().regex(/^(0|[1-9][0-9]{0,13})$/)
const word = z.string().regex(/^0x[0-9a-f]{64}$/)
/** An amount of a tab's line, below 2^48. */
const amount = z
  .string()
  .regex(/^(0|[1-9][0-9]{0,14})$/)
  .refine((digits) => BigInt(digits) < 2n ** 48n)
const maxUint40 = 2 ** 40 - 1
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
        tabs: z
          .array(
            z.object({
              payload: z.string().max(4_096),
              sequence: z.int().min(1).max(maxUint40),
              rewardShare: z.int().min(0).max(10_000),
              lines: z
                .array(z.tuple([word, amount]))
                .min(1)
                .max(maxTabLines),
            }),
          )
          .max(1_000)
          .default([]),
      }),
    )
    .max(1_000),
  batchSettlement: address,
  /** Null if the gateway's version has no tabs. */
  tabSettlement: address.nullable().default(null),
  token: address,
})

export type PendingBatch = { feeRecipient: Address; trigger: Trigger; items: BatchItem[] }

const timeoutMs = 20_000
const mostBytes = 8_000_000

/**
 * Reads the due payments from a gateway (`GET /settlements/pending`). The keeper trusts only the signed payloads: it uses its own
 * contract and token addresses, and checks signatures on chain before it sends anything.
 *
 * @throws if the gateway doesn't answer, or if its answer has another form
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
      `the gateway settles ${answer.token} through ${answer.batchSettlement}, but this keeper settles ${token} through ${deployment.batchSettlement}`,
    )
  }
  const { chainId } = network
  const hasTabs = answer.tabSettlement === deployment.tabSettlement
  return answer.batches.map(({ feeRecipient, trigger, payments, splitters, tabs }) => {
    const terms = new Map(
      splitters.map(
        ({ address, provider, shares: [providerShare, platformShare] }): [string, SplitterTerms] => [
          address,
          {
            provider: provider as Address,
            platform: feeRecipient as Address,
            providerShare: BigInt(providerShare),
            platformShare: BigInt(platformShare),
          },
        ],
      ),
    )
    const platform = feeRecipient as Address
    const items = payments.flatMap((payloads, position) => {
      const item = toItem(payloads, position, now)
      if (!item) return []
      const { to } = item.provider.authorization
      const splitter = item.fee ? undefined : terms.get(to)
      return splitter && splitterAddress({ ...splitter, factory: deployment.splitterFactory }) === to
        ? [{ ...item, splitter }]
        : [item]
    })
    const closed = (hasTabs ? tabs : []).flatMap((tab, index) => {
      const item = toItem([tab.payload], payments.length + index, now)
      return item?.provider.authorization.to === deployment.tabSettlement
        ? [asTab(item, tab, { platform, chainId })]
        : []
    })
    return { feeRecipient: platform, trigger, items: [...items, ...newestOf(closed)] }
  })
}

/**
 * Adds the tab that the gateway states to an item that pays TabSettlement. If the gateway's lines differ from the lines that the payer signed, the
 * signature is invalid.
 */
function asTab(
  item: BatchItem,
  { sequence, rewardShare, lines }: { sequence: number; rewardShare: number; lines: [string, string][] },
  { platform, chainId }: { platform: Address; chainId: number },
): BatchItem {
  const { authorization, state } = item.provider
  const tab: ItemTab = {
    sequence,
    rewardShare,
    expiry: Number(authorization.validBefore),
    lines: lines.map(([split, amount]) => ({ split: BigInt(split), amount: BigInt(amount) })),
  }
  const { from: payer, to: contract, nonce } = authorization
  const signed = signedOfTab(tab, { payer, contract, nonce, chainId, platform })
  return { ...item, provider: { authorization: { ...authorization, ...signed }, state }, tab }
}

/**
 * Keeps only the newest state of each tab, because if a batch had two states of a tab, the state that comes first in the batch would settle, even if
 * it is the older one.
 */
function newestOf(tabs: readonly BatchItem[]): BatchItem[] {
  const newest = new Map<string, BatchItem>()
  for (const item of tabs) {
    const key = authorizationKey(item.provider.authorization)
    const known = newest.get(key)?.tab
    if (!known || (item.tab && item.tab.sequence > known.sequence)) newest.set(key, item)
  }
  return [...newest.values()]
}

/** Returns a batch's item from its payloads, or null if they can't be settled together or aren't valid now. */
function toItem(payloads: readonly string[], position: number, now: Date): BatchItem | null {
  const authorizations = parse(payloads)
  const [provider, fee] = authorizations
  if (!provider || (fee && fee.from !== provider.from)) return null
  const seconds = BigInt(Math.floor(now.getTime() / 1000))
  const until = seconds + BigInt(settleMarginSeconds)
  if (authorizations.some(({ validAfter, validBefore }) => validAfter >= seconds || validBefore <= until))
    return null
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
