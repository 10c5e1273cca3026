import { undeployed } from '@tollkeeper/chain/gasShares'
import { adviseOnPrice } from '@tollkeeper/chain/priceAdvice'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { type Environment, readVariable } from '@tollkeeper/runtime/env'
import { readUnitPrices } from '../costs/prices.ts'
import { type Check, ok, reasonOf, skipped, warn } from './check.ts'
import type { ExaminedNetwork } from './networks.ts'

export const breakEvenCheck = 'prices and gas'

/** Maximum number of different prices to check on a network, the lowest first. */
const maxPrices = 1_000

type Priced = { url: string; method: string; price: bigint }

/** Reports, for each network, the lowest registered price whose fee doesn't cover the gas of a payment that settles alone. */
export async function examineBreakEven(
  env: Environment,
  database: Queryable,
  networks: readonly ExaminedNetwork[],
): Promise<Check> {
  const real = networks.filter(({ network }) => !network.testnet)
  if (real.length === 0) return ok(breakEvenCheck, 'only test networks, whose gas costs nothing')
  const schedule = readVariable(env, 'FEE_SCHEDULE')
  const hasTabs = readVariable(env, 'TABS') !== null
  const warnings: string[] = []
  const unread: string[] = []
  for (const { network, client, deployment = undeployed } of real) {
    if (client === undefined) {
      unread.push(`a node of ${network.name} that responds`)
      continue
    }
    try {
      const prices = await readUnitPrices({ network, client, deployment }, env)
      // Check every price: the fee of a lower price may cover the gas although the fee of a higher price doesn't, because the fee percentage falls
      // where a tier begins.
      for (const { method, url, price } of await readPrices(database, network.chainId)) {
        const advice = adviseOnPrice({ price, network, prices, schedule, hasTabs })
        if (advice === null) continue
        warnings.push(`${method} ${url}: ${advice}`)
        break
      }
    } catch (error) {
      unread.push(`the prices of gas on ${network.name} (${reasonOf(error)})`)
    }
  }
  if (warnings.length > 0)
    return warn(
      breakEvenCheck,
      warnings.join('; '),
      'recommend tabs, raise these prices, or set MINIMUM_PRICES_USDC',
    )
  if (unread.length > 0) return skipped(breakEvenCheck, unread.join(', '))
  return ok(breakEvenCheck, 'every fee covers the gas of its payment')
}

/** Returns one enabled endpoint per distinct price on a network. */
function readPrices(database: Queryable, chainId: number): Promise<Priced[]> {
  return database<Priced[]>`
    select distinct on (e.price) e.url, e.method, e.price from endpoint e join provider p on p.id = e.provider_id
    where e.disabled_at is null and p.disabled_at is null and (e.chain_id = ${chainId} or exists (
      select from endpoint_wallet w where w.endpoint_id = e.id and w.chain_id = ${chainId}))
    order by e.price, e.url limit ${maxPrices}`
}
