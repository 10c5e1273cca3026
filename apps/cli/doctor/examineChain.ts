import { locateDeployments } from '@tollkeeper/chain/deploymentsFile'
import { priceFeedOf } from '@tollkeeper/chain/priceFeeds'
import { readGasTokenPrice } from '@tollkeeper/chain/settlementCost'
import type { Environment } from '@tollkeeper/runtime/env'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { networkVariable } from '@tollkeeper/runtime/variables'
import { keepRefusal } from '@tollkeeper/sdk/nodes/nodeErrors'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { domainSeparator, eip712Domain } from '@tollkeeper/sdk/protocol/eip3009'
import { createPublicClient, http, zeroAddress } from 'viem'
import { contracts } from '../../devstack/chain/contracts.ts'
import { type Check, fail, ok, reasonOf, skipped, warn } from './check.ts'
import { type ClockReading, readBlockTime, readDateHeader } from './examineClock.ts'
import { judgePlan, tryPlan } from './examinePlan.ts'
import type { ExaminedNetwork } from './networks.ts'

/** Maximum age in seconds of a node's newest block, on any network. If the block is older, the node doesn't follow the chain. */
const staleSeconds = 120n

/**
 * Checks all RPCs of a network. Then checks the token, the contracts and the price feed through the first RPC that works.
 *
 * @param clocks receives the clocks of the nodes and of their newest blocks.
 */
export async function* examineChain(
  examined: ExaminedNetwork,
  env: Environment,
  clocks: ClockReading[] = [],
): AsyncGenerator<Check> {
  const { network, rpcUrls } = examined
  const variable = networkVariable('RPC_URL', network.name)
  for (const [index, url] of rpcUrls.entries()) {
    const name = `${network.name}: RPC${rpcUrls.length > 1 ? ` ${index + 1}` : ''}`
    let date: string | null = null
    const candidate = createPublicClient({
      transport: http(url, {
        timeout: 10_000,
        retryCount: 1,
        onFetchResponse(response) {
          date = response.headers.get('date')
          return keepRefusal(response)
        },
      }),
      cacheTime: 0,
    })
    try {
      const sentAt = Date.now()
      const begun = performance.now()
      const chainId = await candidate.getChainId()
      const tookMs = Math.round(performance.now() - begun)
      if (chainId !== network.chainId) {
        const found = `chain id ${chainId}, expected ${network.chainId}`
        yield fail(name, found, `${variable} points at another chain: correct it`)
        continue
      }
      clocks.push(...readDateHeader(name, date, { sentAt, receivedAt: Date.now() }))
      const { number, timestamp } = await candidate.getBlock()
      // Skip this check on a local chain, whose time is controlled by its tests.
      if (network.name !== 'localhost')
        clocks.push(...readBlockTime(`a block of ${network.name}`, timestamp, Date.now()))
      const age = BigInt(Math.floor(Date.now() / 1000)) - timestamp
      examined.head = number
      examined.client ??= candidate
      const found = `chain id ${chainId}, block ${number}, ${age} s old, answers in ${tookMs} ms`
      if (age > staleSeconds) {
        yield warn(name, found, 'its newest block is old: check that the node is in sync')
        continue
      }
      const token = examined.deployment?.usdc ?? network.usdc ?? zeroAddress
      const plan = judgePlan(await tryPlan(candidate, { number, timestamp }, token))
      const all = `${found}, ${plan.found}`
      yield plan.advice === null ? ok(name, all) : warn(name, all, plan.advice)
    } catch (error) {
      const advice = `check that ${variable} is right and the node runs`
      yield fail(name, `no answer: ${reasonOf(error)}`, advice)
    }
  }
  const rest = [
    ['USDC', () => examineToken(examined)],
    [contracts.batchSettlement.name, () => examineContract(examined, 'batchSettlement', env)],
    [contracts.splitterFactory.name, () => examineContract(examined, 'splitterFactory', env)],
    [contracts.tabSettlement.name, () => examineContract(examined, 'tabSettlement', env)],
    ...(priceFeedOf(network) ? [['price feed', () => examineFeed(examined)] as const] : []),
  ] as const
  for (const [what, look] of rest) {
    const name = `${network.name}: ${what}`
    if (examined.client) yield await look()
    else
      yield skipped(
        name,
        `a node: ${rpcUrls.length > 0 ? 'no RPC of this chain answers' : `set ${variable}`}`,
      )
  }
}

async function examineToken({ client, network, deployment }: ExaminedNetwork): Promise<Check> {
  const name = `${network.name}: USDC`
  const address = deployment?.usdc ?? network.usdc
  if (!client || address === null)
    return skipped(name, "a deployment with this chain's USDC address: see the check BatchSettlement")
  const advice =
    network.usdc === null
      ? 'USDC has another address on this chain: correct DEPLOYMENTS_FILE'
      : "USDC would reject the buyers' signatures: correct DEPLOYMENTS_FILE or the RPC"
  const token = { address, abi: usdcAbi } as const
  try {
    const [domainName, version, separator, isPaused] = await Promise.all([
      client.readContract({ ...token, functionName: 'name' }),
      client.readContract({ ...token, functionName: 'version' }),
      client.readContract({ ...token, functionName: 'DOMAIN_SEPARATOR' }),
      client.readContract({ ...token, functionName: 'paused' }),
    ])
    const expected = eip712Domain(network, address)
    const found = `${address}, domain "${domainName}" version ${version}`
    const isRight =
      domainName === expected.name && version === expected.version && separator === domainSeparator(expected)
    if (isRight && isPaused) {
      const wait =
        'no payment is accepted or settled until Circle unpauses it; nothing is lost in the meantime'
      return warn(name, `${found}, paused`, wait)
    }
    if (isRight) return ok(name, found)
    return fail(name, `${found}, expected "${expected.name}" version ${expected.version}`, advice)
  } catch (error) {
    return fail(name, `no USDC at ${address}: ${reasonOf(error)}`, advice)
  }
}

/** Checks the contract's code. If no deployment is recorded, checks the address that the contract has on all networks. */
async function examineContract(
  examined: ExaminedNetwork,
  field: keyof typeof contracts,
  env: Environment,
): Promise<Check> {
  const { client, network, deployment } = examined
  const name = `${network.name}: ${contracts[field].name}`
  const address = deployment?.[field] ?? contracts[field].address
  const deploy = `${ownCommand} deploy --network ${network.name}`
  const missing = (found: string, advice: string): Check => {
    examined.hasContracts = false
    return fail(name, found, advice)
  }
  try {
    const code = await client?.getCode({ address })
    if (code === undefined)
      return missing(`no code at ${address}`, `${deploy}, before you start api, keeper and indexer`)
    if (code !== contracts[field].runtimeCode) {
      const advice = `the contract was deployed from other sources: ${deploy}, or check out the version that deployed it`
      return missing(`${address} has other code than this version's contract`, advice)
    }
    if (deployment === undefined) {
      const found = `it is deployed at ${address}, but ${locateDeployments(env)} doesn't list it`
      return missing(found, `${deploy}, which then only records the address`)
    }
    examined.hasContracts ??= true
    return ok(name, `${address}, this version's code, from block ${deployment.startBlock}`)
  } catch (error) {
    return fail(name, `its code can't be read: ${reasonOf(error)}`, 'check the RPC')
  }
}

/** Checks the price feed. The keeper and the gateway's views convert gas costs to USD with the feed's price, or with ETH_USD if there is no feed. */
async function examineFeed({ client, network }: ExaminedNetwork): Promise<Check> {
  const name = `${network.name}: price feed`
  const feed = priceFeedOf(network)
  if (!client || !feed) return skipped(name, 'a node')
  const setting = network.gasTokenUsd === undefined ? 'ETH_USD' : 'gasTokenUsd in NETWORKS_FILE'
  const advice = `until the feed is back, ${setting} is used: check that the value of ${setting} is roughly correct`
  try {
    const { usdPerToken, source } = await readGasTokenPrice(client, network, 0n)
    if (source === 'feed') return ok(name, `${formatUsdc(usdPerToken)} USD, at ${feed}`)
    return warn(name, `${feed} has had no new price for over two hours`, advice)
  } catch (error) {
    return warn(name, `no price at ${feed}: ${reasonOf(error)}`, advice)
  }
}
