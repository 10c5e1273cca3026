import { formatUsdc } from '../protocol/amount.ts'
import { networkByName } from '../protocol/networks.ts'
import { platformPart, providerOfSplit, tabNonce, tabStateDigest } from '../protocol/tab.ts'
import type { TabLineClaims } from '../protocol/tabLine.ts'
import type { SettledTab } from '../protocol/tabSettlement.ts'
import { largest } from './bigints.ts'
import type { EvidenceByNonce } from './evidence.ts'
import { type ChainFacts, describe, judgeUnused, judgeUse } from './judge.ts'
import type { AuditedTabLine } from './report.ts'
import { lostFeeShare, movedOn } from './tabLines.ts'

/** An audit's verdict on a tab line, based only on the chain. It doesn't consider receipts. */
export type TabLineVerdict = Pick<
  AuditedTabLine,
  'state' | 'reason' | 'reconciled' | 'detail' | 'onChain' | 'isOtherState'
>

/**
 * Compares a tab line with what TabSettlement paid on this line of the tab.
 *
 * The tab line is settled if TabSettlement executed the tab's authorization under the terms in the tab line, and paid exactly the amount that the tab
 * line states. The paid amount must also be at least `chargedUsdc`. The stated amount is `signedUsdc` if the tab settled in the state that the tab
 * line names. If the tab settled in a different state, the stated amount is `movedUsdc`.
 */
export function judgeTabLine(
  claims: TabLineClaims,
  evidence: EvidenceByNonce,
  facts: ChainFacts,
): TabLineVerdict {
  const { tab, line } = claims
  const [split, nonce] = [BigInt(tab.split), tabNonce(claims.iss, tab.id)]
  if (claims.asset !== facts.token)
    return refuse('token', "The tab line is in a token that isn't this network's USDC")
  if (claims.contract !== facts.tabSettlement || providerOfSplit(split) !== claims.payee)
    return refuse('tab', 'The tab line names a contract or a wallet that doesn’t match its tab')
  const feeError = BigInt(claims.platformUsdc) - platformPart(split, BigInt(claims.totalUsdc))
  // The fee of each sale is rounded separately, so the sum may be off by one base unit for each sale.
  if (feeError > claims.sales.length || -feeError > claims.sales.length)
    return refuse('fee', `The fee of ${usdc(claims.platformUsdc)} doesn't match the line's shares`)

  const own = evidence.get(nonce)?.find(({ authorizer }) => authorizer === claims.payer)
  if (!own) {
    const { state, reason } = judgeUnused('provider', claims, facts)
    return {
      state,
      ...(reason && { reason }),
      reconciled: false,
      detail: reason === 'waiting' ? 'The tab has not settled yet' : explainMissing(reason),
    }
  }
  const moved = movedOn(own.tab, split)
  const terms = { split: { platform: claims.platform }, tab: { rewardShare: tab.rewardShare } }
  const lost = own.tab ? lostFeeShare(own.tab, terms) : 0
  const isOtherState = own.tab !== undefined && digestOf(claims, own.tab, nonce) !== tab.state
  const found = {
    onChain: {
      ...describe(own),
      ...(own.kind === 'used' && { line: moved }),
      ...(lost > 0 && { lostFeeShare: lost }),
    },
    ...(isOtherState && { isOtherState: true as const }),
  }
  const judged = judgeUse(own, { to: claims.contract }, facts)
  if (judged.state === 'cancelled')
    return {
      ...refuse('cancelled_on_chain', `The payer cancelled the tab in ${own.transactionHash}`),
      ...found,
      state: 'cancelled',
    }
  if (judged.state !== 'settled' && judged.reason !== 'confirming')
    return {
      ...refuse(judged.reason ?? 'tab', `Another transfer used the tab's nonce, in ${own.transactionHash}`),
      ...found,
    }
  const said = BigInt(isOtherState ? (line.movedUsdc ?? line.signedUsdc) : line.signedUsdc)
  const charged = BigInt(line.chargedUsdc)
  if (moved < charged || moved !== said) {
    const advice =
      isOtherState && line.movedUsdc === undefined
        ? '; another state of the tab settled than the one in the tab line, so download the tab line again'
        : ''
    return {
      ...refuse(
        'line',
        `${usdc(moved)} were paid on the line, but the tab line states ${usdc(said)} paid and ${usdc(charged)} owed${advice}`,
      ),
      ...found,
    }
  }
  if (lost > 0)
    return {
      ...refuse(
        'terms',
        `The tab settled under other terms: ${lost / 100}% of the platform's part went elsewhere`,
      ),
      ...found,
    }
  const isConfirmed = judged.state === 'settled'
  return {
    state: judged.state,
    ...(judged.reason && { reason: judged.reason }),
    reconciled: isConfirmed,
    detail: `${claims.requests} requests, ${isConfirmed ? 'settled in' : 'mined, but not confirmed, in'} ${own.transactionHash}`,
    ...found,
  }
}

function refuse(reason: NonNullable<AuditedTabLine['reason']>, detail: string): TabLineVerdict {
  return { state: 'mismatch', reason, reconciled: false, detail }
}

function explainMissing(reason: AuditedTabLine['reason']): string {
  return reason === 'expired'
    ? 'The tab never settled, and has expired'
    : 'The tab line says that its tab settled, but its settlement is not on chain'
}

function usdc(amount: bigint | string): string {
  return `${formatUsdc(BigInt(amount))} USDC`
}

/** Returns the digest of the state that settled. Returns undefined for a state that no gateway can have accepted. */
function digestOf(
  { network, payer }: TabLineClaims,
  tab: SettledTab,
  nonce: `0x${string}`,
): string | undefined {
  try {
    return tabStateDigest({ ...tab, chainId: networkByName(network).chainId }, { ...tab, nonce, payer })
  } catch (error) {
    if (error instanceof RangeError) return undefined
    throw error
  }
}

/** The part of a sale on a tab that has been paid. Amounts are USDC base units. */
export type ArrivedSale = {
  endpointId: string
  /** Time of its last request, in Unix milliseconds. */
  lastAt: number
  requests: number
  /** Number of its requests that the paid amount covers. */
  settled: number
  providerAmount: bigint
  platformAmount: bigint
  /** The part of the provider's amount that has not been paid. */
  missingAmount: bigint
}

/**
 * Divides the amount that was paid on a line among its sales, in their order, until the amount is used up. The part that an earlier credit paid
 * counts as paid already.
 *
 * @param verdict from {@link judgeTabLine}.
 */
export function arrivedSales(claims: TabLineClaims, { onChain, state }: TabLineVerdict): ArrivedSale[] {
  const { line, sales } = claims
  const hasMoved = onChain?.line !== undefined && state !== 'cancelled'
  let left = (hasMoved ? (onChain.line ?? 0n) : 0n) + BigInt(line.creditUsdc)
  if (onChain?.line !== undefined && onChain.line >= BigInt(line.chargedUsdc)) left = BigInt(claims.totalUsdc)
  const kept = BigInt(10_000 - (onChain?.lostFeeShare ?? 0))
  return sales.map((sale) => {
    const [total, fee] = [BigInt(sale.totalUsdc), BigInt(sale.platformUsdc)]
    const arrived = left < total ? largest(0n, left) : total
    left -= arrived
    const arrivedFee = arrived === total ? fee : (fee * arrived) / total
    const net = arrived - arrivedFee
    const settled =
      net === 0n
        ? 0
        : net === BigInt(sale.providerUsdc)
          ? sale.requests
          : Number((BigInt(sale.requests) * arrived) / total)
    return {
      endpointId: sale.endpointId,
      lastAt: Date.parse(sale.lastAt),
      requests: sale.requests,
      settled,
      providerAmount: net,
      platformAmount: (arrivedFee * kept) / 10_000n,
      missingAmount: BigInt(sale.providerUsdc) - net,
    }
  })
}
