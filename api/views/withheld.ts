import { setTimeout as wait } from 'node:timers/promises'
import { z } from '@hono/zod-openapi'
import { keccak256 } from '@tollkeeper/chain/keccak256'
import type { Database } from '@tollkeeper/ledger/store/database'
import { createCache } from '@tollkeeper/runtime/cache'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { type SplitterTerms, splitterAddress } from '@tollkeeper/sdk/protocol/splitter'
import type { Address } from 'viem'
import * as wire from '../http/wire.ts'
import type { GatewayNetwork } from '../registry/networks.ts'

export const withheld = z
  .object({
    reason: z.literal('payee_blacklisted').openapi({ description: 'USDC has blacklisted the wallet' }),
    waiting_usdc: wire.decimalUsdc.openapi({
      description: "The wallet's part of the money in the splitters",
    }),
    splitters: z.array(z.object({ splitter: wire.addressOut, waiting_usdc: wire.decimalUsdc })),
  })
  .nullable()
  .openapi({
    description:
      'Money that settled for the wallet but cannot be paid out to it. It is paid once USDC takes the wallet off its ' +
      "blacklist. null: USDC pays the wallet, or the network's node does not answer",
  })

type Held = SplitterTerms & { address: Address }
type Withheld = z.input<typeof withheld>

/** Maximum number of a wallet's splitters that are read; splitters whose sweeps fail come first. */
const maxSplitters = 100

type Network = Pick<GatewayNetwork, 'served' | 'payees'>

/** Cache time in ms: pages ask every few seconds, and each splitter costs a call to the node. */
const ttlMs = 60_000
const maxWallets = 10_000
/** Maximum time in ms that a view waits for the node. After that the view omits the answer, and a later view shows it. */
const patienceMs = 1_000

/** Creates a reader of the money that waits in the splitters of a blacklisted wallet. */
export function createWithheldReader({ sql, now }: { sql: Database; now: () => number }) {
  const answers = createCache<string, Withheld>({
    load: () => Promise.reject(new Error('each wallet has a separate load function')),
    ttlMs,
    refreshAfterMs: ttlMs / 2,
    max: maxWallets,
    now,
  })
  /** @returns null if USDC pays the wallet, or if the chain can't be read. */
  return async (network: Network, wallet: Address): Promise<Withheld> => {
    const key = `${network.served.network.chainId} ${wallet}`
    const answer = answers.get(key, () => readWithheld(sql, network, wallet))
    if (!(answer instanceof Promise)) return answer
    return Promise.race([answer, wait(patienceMs, null, { ref: false })]).catch(() => null)
  }
}

async function readWithheld(sql: Database, { served, payees }: Network, wallet: Address): Promise<Withheld> {
  if (!(await payees.isBlacklisted(wallet))) return null
  const { client, token, network, deployment } = served
  const used = await sql<Held[]>`
    select address, provider, platform, provider_share as "providerShare", platform_share as "platformShare"
    from splitter where chain_id = ${network.chainId} and provider = ${wallet} and token = ${token}
    order by failed_sweeps desc, look_at desc limit ${maxSplitters}`
  const held = [...used, ...refugesOf(wallet, deployment.splitterFactory)]
  const read = ({ address }: Held) =>
    client.readContract({ address: token, abi: usdcAbi, functionName: 'balanceOf', args: [address] })
  const balances = await Promise.all(held.map(read))
  const splitters = held
    .map((one, index) => ({ splitter: one.address, waiting_usdc: providerPart(balances[index] ?? 0n, one) }))
    .filter(({ waiting_usdc }) => waiting_usdc > 0n)
  const total = splitters.reduce((sum, { waiting_usdc }) => sum + waiting_usdc, 0n)
  return { reason: 'payee_blacklisted', waiting_usdc: total, splitters }
}

/**
 * Returns where TabSettlement pays when USDC refuses to pay an account: the splitter that pays only that account, and if USDC
 * refuses that splitter too, the splitter that pays only that splitter.
 */
function refugesOf(wallet: Address, factory: Address): Held[] {
  const first = refugeOf(wallet, factory)
  return [first, refugeOf(first.address, factory)]
}

function refugeOf(account: Address, factory: Address): Held {
  const terms = { provider: account, platform: account, providerShare: 1n, platformShare: 0n }
  return { ...terms, address: splitterAddress({ ...terms, factory }, keccak256) }
}

/** Computes a balance's provider part as Splitter.sol does: the platform's part is rounded down, and the provider gets the rest. */
function providerPart(balance: bigint, { providerShare, platformShare }: Held): bigint {
  return balance - (balance * platformShare) / (providerShare + platformShare)
}
