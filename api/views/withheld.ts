import { z } from '@hono/zod-openapi'
import { keccak256 } from '@tollkeeper/chain/keccak256'
import type { Database } from '@tollkeeper/ledger/store/database'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { type SplitterTerms, splitterAddress } from '@tollkeeper/sdk/protocol/splitter'
import type { Address } from 'viem'
import * as wire from '../http/wire.ts'
import type { GatewayNetwork } from '../registry/networks.ts'

export const withheld = z
  .object({
    reason: z.literal('payee_blacklisted').openapi({ description: 'USDC has blacklisted the wallet' }),
    waiting_usdc: wire.decimalUsdc.openapi({ description: "The wallet's part of what the splitters hold" }),
    splitters: z.array(z.object({ splitter: wire.addressOut, waiting_usdc: wire.decimalUsdc })),
  })
  .nullable()
  .openapi({
    description:
      'Money that settled for the wallet but can not be paid out to it. It is paid once USDC takes the wallet off its ' +
      "blacklist. null: USDC pays the wallet, or the network's node does not answer",
  })

type Held = SplitterTerms & { address: Address }
type Withheld = z.input<typeof withheld>

/** Maximum number of a wallet's splitters that are read: those whose sweeps fail come first. */
const maxSplitters = 100

/** Reads what waits in the splitters of a blacklisted wallet. @returns null for a wallet that USDC pays, or if the chain can't be read. */
export async function readWithheld(
  sql: Database,
  { served, payees }: Pick<GatewayNetwork, 'served' | 'payees'>,
  wallet: Address,
): Promise<Withheld> {
  // The queue is shown without it while the node is away.
  if (!(await payees.isBlacklisted(wallet).catch(() => false))) return null
  const { client, token, network, deployment } = served
  const used = await sql<Held[]>`
    select address, provider, platform, provider_share as "providerShare", platform_share as "platformShare"
    from splitter where chain_id = ${network.chainId} and provider = ${wallet} and token = ${token}
    order by failed_sweeps desc, look_at desc limit ${maxSplitters}`
  const held = [...used, ...refugesOf(wallet, deployment.splitterFactory)]
  const read = ({ address }: Held) =>
    client.readContract({ address: token, abi: usdcAbi, functionName: 'balanceOf', args: [address] })
  const balances = await Promise.all(held.map(read)).catch(() => null)
  if (balances === null) return null
  const splitters = held
    .map((one, index) => ({ splitter: one.address, waiting_usdc: providerPart(balances[index] ?? 0n, one) }))
    .filter(({ waiting_usdc }) => waiting_usdc > 0n)
  const total = splitters.reduce((sum, { waiting_usdc }) => sum + waiting_usdc, 0n)
  return { reason: 'payee_blacklisted', waiting_usdc: total, splitters }
}

/** Where TabSettlement pays what USDC refuses to pay an account: the splitter that pays only it, and then that splitter's own. */
function refugesOf(wallet: Address, factory: Address): Held[] {
  const first = refugeOf(wallet, factory)
  return [first, refugeOf(first.address, factory)]
}

function refugeOf(account: Address, factory: Address): Held {
  const terms = { provider: account, platform: account, providerShare: 1n, platformShare: 0n }
  return { ...terms, address: splitterAddress({ ...terms, factory }, keccak256) }
}

/** As Splitter.sol divides: the platform's part is rounded down, and the provider gets the rest. */
function providerPart(balance: bigint, { providerShare, platformShare }: Held): bigint {
  return balance - (balance * platformShare) / (providerShare + platformShare)
}
