import { ceilDiv } from '@tollkeeper/sdk/protocol/amount'
import { feeNonce } from '@tollkeeper/sdk/protocol/challenge'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import {
  encodeSettle,
  encodeSettleAuthorizations,
  type SettlementItem,
} from '@tollkeeper/sdk/protocol/settlement'
import { type Address, type Hex, keccak256, type PublicClient, parseAbi } from 'viem'
import { estimateL1Fee } from 'viem/op-stack'
import { type BatchShape, estimateBatchGas, estimateTabBatchGas, type TabBatchShape } from './gas.ts'

const aggregatorAbi = parseAbi([
  'function decimals() view returns (uint8)',
  'function latestRoundData() view returns (uint80 roundId, int256 answer, uint256 startedAt, uint256 updatedAt, uint80 answeredInRound)',
])

/** Greatest age of a price that we take; the slowest feed reports every hour. */
const maxPriceAgeSeconds = 7_200n

export type GasPrice = {
  /** USDC base units for one whole gas token (10^18 wei). */
  usdPerToken: bigint
  /** `feed`: read on chain. `configured`: there is no feed, or it is stale. */
  source: 'feed' | 'configured'
}

/**
 * USD price of the chain's gas token: its Chainlink feed's, or else the configured one.
 *
 * @param blockNumber the block to read it at; default the latest.
 */
export async function readGasTokenPrice(
  client: PublicClient,
  feed: Address | undefined,
  configured: bigint,
  blockNumber?: bigint,
): Promise<GasPrice> {
  if (!feed) return { usdPerToken: configured, source: 'configured' }
  const at = blockNumber === undefined ? { blockTag: 'latest' as const } : { blockNumber }
  const [decimals, [, answer, , updatedAt], block] = await Promise.all([
    client.readContract({ address: feed, abi: aggregatorAbi, functionName: 'decimals' }),
    client.readContract({ address: feed, abi: aggregatorAbi, functionName: 'latestRoundData', ...at }),
    client.getBlock(at),
  ])
  if (answer <= 0n || block.timestamp - updatedAt > maxPriceAgeSeconds) {
    return { usdPerToken: configured, source: 'configured' }
  }
  return { usdPerToken: (answer * 1_000_000n) / 10n ** BigInt(decimals), source: 'feed' }
}

const weiPerToken = 10n ** 18n

/** What `wei` cost, in USDC base units, rounded up. */
export function weiToUsd(wei: bigint, usdPerToken: bigint): bigint {
  return ceilDiv(wei * usdPerToken, weiPerToken)
}

/** Words of calldata of a batch: eight for a payment of two authorizations, five for a payment of one. */
export function dataWords({ pairs, singles }: Pick<BatchShape, 'pairs' | 'singles'>): number {
  return pairs * 8 + singles * 5
}

/** Words of calldata of tabs: five for each, one for a split, and a quarter for a line. */
export function tabDataWords({ tabs, lines, splits }: Omit<TabBatchShape, 'hasCode'>): number {
  return tabs * 5 + splits + Math.ceil(lines / 4)
}

/**
 * Sample calldata of a batch of this shape. The fee for data depends on its compressed size (FastLZ, since Fjord):
 * payers, nonces and signatures don't compress; amounts, windows and derived nonces nearly vanish.
 */
export function sampleCalldata({ pairs, singles, payees, sweeps = 0 }: BatchShape): Hex {
  let word: Hex = keccak256('0x01')
  const next = (bytes: number) => {
    word = keccak256(word)
    return word.slice(0, 2 + 2 * bytes) as Hex
  }
  const recipients = Array.from({ length: Math.max(1, payees) }, () => next(20))
  const authorize = (to: Address, from: Address, nonce: Hex, validBefore: bigint): SignedAuthorization => ({
    from,
    to,
    value: BigInt(next(3)),
    nonce,
    validAfter: 0n,
    validBefore,
    // An s in the lower half, as wallets sign.
    signature: `${next(32)}3${next(32).slice(3)}1b`,
  })
  const batch = {
    token: next(20),
    feeRecipient: next(20),
    batchId: next(32),
    trigger: 0,
    callGasLimit: 120_000n,
  }
  const items = Array.from({ length: pairs + singles }, (_, index): SettlementItem => {
    const [from, nonce, validBefore] = [next(20), next(32), 1_800_000_000n + BigInt(next(2))]
    const to = recipients[index % recipients.length] as Address
    const authorization = authorize(to, from, nonce, validBefore)
    return index < pairs
      ? { authorization, fee: authorize(batch.feeRecipient, from, feeNonce(nonce), validBefore) }
      : { authorization }
  })
  if (pairs > 0) return encodeSettle(batch, items).calldata
  const splits = Array.from({ length: sweeps }, () => (BigInt(next(20)) << 96n) | (19n << 48n) | 1n)
  const sweep = sweeps > 0 ? { factory: next(20), gasLimit: 1_000_000n, splits } : undefined
  return encodeSettleAuthorizations(
    batch,
    items.map(({ authorization }) => authorization),
    sweep,
  ).calldata
}

type Sized = { network: Network; contract: Address; from: Address; shape: BatchShape }

/** Wei that an OP-stack chain asks for the data of a batch; 0 on any other. */
export async function estimateDataFee(
  client: PublicClient,
  { network, contract, from, shape }: Sized,
): Promise<bigint> {
  if (!network.isOpStack) return 0n
  return estimateL1Fee(client, { account: from, to: contract, data: sampleCalldata(shape), chain: null })
}

/**
 * The cost of settling a batch of this shape, or one of tabs, now, in USDC base units: execution at the current price,
 * and on an OP-stack chain the fee for its data.
 */
export async function estimateSettlementCost(
  client: PublicClient,
  options: Sized & { tabs?: TabBatchShape; gasPrice: bigint; usdPerToken: bigint },
): Promise<bigint> {
  const { shape, tabs, gasPrice, usdPerToken } = options
  const hasTabs = tabs !== undefined && tabs.tabs > 0
  const gas = estimateBatchGas(shape) + (hasTabs ? estimateTabBatchGas(tabs) : 0n)
  // Data of tabs doesn't compress either, so it counts as that of as many single authorizations.
  const likeSingles = hasTabs ? Math.ceil(tabDataWords(tabs) / 5) : 0
  const data = await estimateDataFee(client, {
    ...options,
    shape: { ...shape, singles: shape.singles + likeSingles },
  })
  return weiToUsd(gas * gasPrice + data, usdPerToken)
}
