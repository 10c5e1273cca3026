import { type Address, type Hex, keccak256, type PublicClient, parseAbi } from 'viem'
import { estimateL1Fee } from 'viem/op-stack'
import { ceilDiv } from '#protocol/amount'
import type { Network } from '#protocol/networks'
import { type BatchShape, estimateBatchGas } from './gas.ts'

const aggregatorAbi = parseAbi([
  'function decimals() view returns (uint8)',
  'function latestRoundData() view returns (uint80 roundId, int256 answer, uint256 startedAt, uint256 updatedAt, uint80 answeredInRound)',
])

/** A price older than this is refused; the slowest of the feeds reports every hour. */
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
 * @param blockNumber as of this block; default the latest.
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

/** A batch's words of calldata: eight for a payment of two authorizations, five for one of one. */
export function dataWords({ pairs, singles }: Pick<BatchShape, 'pairs' | 'singles'>): number {
  return pairs * 8 + singles * 5
}

// Signatures don't compress, so the sample is as random as they are.
function sampleCalldata(shape: BatchShape): Hex {
  let word: Hex = keccak256('0x01')
  const words: string[] = []
  for (let i = 0; i < dataWords(shape); i++) {
    word = keccak256(word)
    words.push(word.slice(2))
  }
  return `0x${words.join('')}`
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
 * What settling a batch of this shape would cost now, in USDC base units: execution at the current price, and on an
 * OP-stack chain the fee for its data.
 */
export async function estimateSettlementCost(
  client: PublicClient,
  options: Sized & { gasPrice: bigint; usdPerToken: bigint },
): Promise<bigint> {
  const { shape, gasPrice, usdPerToken } = options
  return weiToUsd(estimateBatchGas(shape) * gasPrice + (await estimateDataFee(client, options)), usdPerToken)
}
