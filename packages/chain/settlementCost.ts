import { ceilDiv } from '@tollkeeper/sdk/protocol/amount'
import {
  encodeSettle,
  encodeSettleAuthorizations,
  type SettlementItem,
} from '@tollkeeper/sdk/protocol/batchSettlement'
import { feeNonce } from '@tollkeeper/sdk/protocol/challenge'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { type Address, type Hex, keccak256, type PublicClient, parseAbi } from 'viem'
import { estimateL1Fee } from 'viem/op-stack'
import { type BatchShape, estimateBatchGas, estimateTabBatchGas, type TabBatchShape } from './gas.ts'
import { readPostingGas } from './postingGas.ts'
import { priceFeedOf } from './priceFeeds.ts'

const aggregatorAbi = parseAbi([
  'function decimals() view returns (uint8)',
  'function latestRoundData() view returns (uint80 roundId, int256 answer, uint256 startedAt, uint256 updatedAt, uint80 answeredInRound)',
])

/** Maximum age in seconds of an accepted price. The slowest feed reports every hour. */
const maxPriceAgeSeconds = 7_200n

export type GasPrice = {
  /** USDC base units for one whole gas token (10^18 wei). */
  usdPerToken: bigint
  /** `feed`: read on chain. `configured`: from the settings, because there is no feed or its price is stale. */
  source: 'feed' | 'configured'
}

/**
 * Reads the USD price of the chain's gas token: from the network's Chainlink feed, else from the network's description, else from
 * the operator's setting.
 *
 * @param operators the operator's `ETH_USD`, in USDC base units.
 * @param blockNumber the block at which to read the feed; default: the latest.
 */
export async function readGasTokenPrice(
  client: PublicClient,
  network: Pick<Network, 'name' | 'priceFeed' | 'gasTokenUsd'>,
  operators: bigint,
  blockNumber?: bigint,
): Promise<GasPrice> {
  const feed = priceFeedOf(network)
  const configured = network.gasTokenUsd ?? operators
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

/** Returns the value of `wei` in USDC base units, rounded up. */
export function weiToUsd(wei: bigint, usdPerToken: bigint): bigint {
  return ceilDiv(wei * usdPerToken, weiPerToken)
}

/** Returns the number of calldata words of a batch: eight for a payment with two authorizations, five for a payment with one. */
export function dataWords({ pairs, singles }: Pick<BatchShape, 'pairs' | 'singles'>): number {
  return pairs * 8 + singles * 5
}

/** Returns the number of calldata words of tabs: five per tab, one per split, and a quarter per line. */
export function tabDataWords({ tabs, lines, splits }: Omit<TabBatchShape, 'hasCode'>): number {
  return tabs * 5 + splits + Math.ceil(lines / 4)
}

/**
 * Returns sample calldata of a batch of this shape. The fee for data depends on its compressed size (FastLZ, since Fjord): payers,
 * nonces and signatures don't compress; amounts, validity windows and derived nonces compress to almost nothing.
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
    // The 3 makes s low, as in wallets' signatures.
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

/**
 * Estimates the cost in wei of a batch's data on L1: a separate fee on an OP-stack chain, a part of the gas on Arbitrum, and 0
 * elsewhere.
 */
export async function estimateDataFee(
  client: PublicClient,
  { network, contract, from, shape }: Sized,
): Promise<bigint> {
  if (network.gasModel === 'plain') return 0n
  const data = sampleCalldata(shape)
  if (network.gasModel === 'op-stack')
    return estimateL1Fee(client, { account: from, to: contract, data, chain: null })
  const { gas, baseFeePerGas } = await readPostingGas(client, { to: contract, data })
  return gas * baseFeePerGas
}

/**
 * Estimates the current cost in USDC base units of settling a batch of this shape, or a batch of tabs: the execution at the
 * current gas price, and on a rollup also its data on L1.
 */
export async function estimateSettlementCost(
  client: PublicClient,
  options: Sized & { tabs?: TabBatchShape; gasPrice: bigint; usdPerToken: bigint },
): Promise<bigint> {
  const { shape, tabs, gasPrice, usdPerToken } = options
  const hasTabs = tabs !== undefined && tabs.tabs > 0
  const gas = estimateBatchGas(shape) + (hasTabs ? estimateTabBatchGas(tabs) : 0n)
  // A tab's data doesn't compress either, so it costs as much as single authorizations of the same length.
  const likeSingles = hasTabs ? Math.ceil(tabDataWords(tabs) / 5) : 0
  const data = await estimateDataFee(client, {
    ...options,
    shape: { ...shape, singles: shape.singles + likeSingles },
  })
  return weiToUsd(gas * gasPrice + data, usdPerToken)
}
