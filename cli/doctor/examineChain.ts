import { type Address, createPublicClient, http, type PublicClient } from 'viem'
import type { NetworkSettings } from '#chain/networkSettings'
import { readGasTokenPrice } from '#chain/settlementCost'
import { networkVariable } from '#process/variables'
import { usdcAbi } from '#protocol/abi/usdc'
import { formatUsdc } from '#protocol/amount'
import { domainSeparator, eip712Domain } from '#protocol/eip3009'
import { contracts } from '../../scripts/deploy/contracts.ts'
import { type Check, reasonOf } from './check.ts'

/** A node whose newest block is older than this has stopped; true of every network in the table. */
const staleSeconds = 120n

/**
 * Checks each RPC of a network, then, through the first that works, the token, the contracts and the price feed.
 *
 * @param heads receives the head's block number by network, for the checks that compare with it.
 */
export async function* examineChain(
  settings: NetworkSettings,
  heads: Map<number, bigint>,
): AsyncGenerator<Check> {
  const { network, rpcUrls } = settings
  const variable = networkVariable('RPC_URL', network.name)
  let client: PublicClient | undefined
  for (const [index, url] of rpcUrls.entries()) {
    const name = `${network.name}: RPC${rpcUrls.length > 1 ? ` ${index + 1}` : ''}`
    const candidate = createPublicClient({
      transport: http(url, { timeout: 10_000, retryCount: 1 }),
      cacheTime: 0,
    })
    try {
      const begun = performance.now()
      const chainId = await candidate.getChainId()
      const tookMs = Math.round(performance.now() - begun)
      if (chainId !== network.chainId) {
        const found = `chain id ${chainId}, expected ${network.chainId}`
        yield { name, status: 'fail', found, advice: `${variable} points at another chain: correct it` }
        continue
      }
      const { number, timestamp } = await candidate.getBlock()
      const age = BigInt(Math.floor(Date.now() / 1000)) - timestamp
      heads.set(network.chainId, number)
      client ??= candidate
      const found = `chain id ${chainId}, block ${number}, ${age} s old, answers in ${tookMs} ms`
      yield age > staleSeconds
        ? { name, status: 'warn', found, advice: 'its head stands still: is the node in sync?' }
        : { name, status: 'ok', found }
    } catch (error) {
      const advice = `check that ${variable} is right and the node runs`
      yield { name, status: 'fail', found: `no answer: ${reasonOf(error)}`, advice }
    }
  }
  if (client) {
    yield await examineToken(client, settings)
    yield await examineContract(client, settings, 'batchSettlement')
    yield await examineContract(client, settings, 'splitterFactory')
    if (settings.network.ethUsdFeed) yield await examineFeed(client, settings.network.ethUsdFeed, settings)
  }
}

async function examineToken(client: PublicClient, { network, deployment }: NetworkSettings): Promise<Check> {
  const name = `${network.name}: USDC`
  const advice =
    network.usdc === null
      ? 'the USDC of this chain stands elsewhere: correct DEPLOYMENTS_FILE'
      : 'signatures would be worthless: correct DEPLOYMENTS_FILE or the RPC'
  const token = { address: deployment.usdc, abi: usdcAbi } as const
  try {
    const [domainName, version, separator] = await Promise.all([
      client.readContract({ ...token, functionName: 'name' }),
      client.readContract({ ...token, functionName: 'version' }),
      client.readContract({ ...token, functionName: 'DOMAIN_SEPARATOR' }),
    ])
    const expected = eip712Domain(network, deployment.usdc)
    const found = `${deployment.usdc}, domain "${domainName}" version ${version}`
    const isRight =
      domainName === expected.name && version === expected.version && separator === domainSeparator(expected)
    if (isRight) return { name, status: 'ok', found }
    return {
      name,
      status: 'fail',
      found: `${found}, expected "${expected.name}" version ${expected.version}`,
      advice,
    }
  } catch (error) {
    return { name, status: 'fail', found: `no USDC at ${deployment.usdc}: ${reasonOf(error)}`, advice }
  }
}

async function examineContract(
  client: PublicClient,
  { network, deployment }: NetworkSettings,
  field: keyof typeof contracts,
): Promise<Check> {
  const name = `${network.name}: ${contracts[field].name}`
  const address = deployment[field]
  const deploy = `npx tollkeeper deploy --network ${network.name}`
  try {
    const code = await client.getCode({ address })
    if (code === undefined) return { name, status: 'fail', found: `no code at ${address}`, advice: deploy }
    if (code !== contracts[field].runtimeCode) {
      const advice = `it was deployed from other sources: ${deploy}, or check out the version that deployed it`
      return { name, status: 'fail', found: `${address} holds other code than this version's`, advice }
    }
    return {
      name,
      status: 'ok',
      found: `${address}, this version's code, from block ${deployment.startBlock}`,
    }
  } catch (error) {
    return {
      name,
      status: 'fail',
      found: `its code can't be read: ${reasonOf(error)}`,
      advice: 'check the RPC',
    }
  }
}

/** The keeper and the views convert gas costs with the feed's price; without a feed they use ETH_USD. */
async function examineFeed(
  client: PublicClient,
  feed: Address,
  { network }: NetworkSettings,
): Promise<Check> {
  const name = `${network.name}: price feed`
  const advice = 'until it is back, ETH_USD is used instead: see that it is about right'
  try {
    const { usdPerToken, source } = await readGasTokenPrice(client, feed, 0n)
    if (source === 'feed') return { name, status: 'ok', found: `${formatUsdc(usdPerToken)} USD, at ${feed}` }
    return { name, status: 'warn', found: `${feed} has had no new price for over two hours`, advice }
  } catch (error) {
    return { name, status: 'warn', found: `no price at ${feed}: ${reasonOf(error)}`, advice }
  }
}
