import { adviseOnPrice } from '@tollkeeper/chain/priceAdvice'
import { readTriggerSettings } from '@tollkeeper/ledger/queue/triggers'
import { readVariable } from '@tollkeeper/runtime/env'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { CliError } from '../terminal/cliError.ts'
import type { CostFlags } from './flags.ts'
import { findPrices } from './prices.ts'
import { renderCosts, toJson } from './render.ts'
import { reportCosts } from './report.ts'

/** Prints what a price costs. @throws {CliError} */
export async function runCosts(flags: CostFlags): Promise<void> {
  const { price, perDay } = flags
  if (price === 0n) throw new CliError('invalid_flags', '--price: expected more than 0')
  const env = process.env
  const network = networkByName(flags.network)
  const prices = await findPrices(flags, env)
  const schedule = readVariable(env, 'FEE_SCHEDULE')
  const report = reportCosts({ price, perDay, prices, schedule, triggers: readTriggerSettings(env) })
  const hasTabs = readVariable(env, 'TABS') !== null
  const advice = adviseOnPrice({ price, network, prices, schedule, hasTabs })
  const answer = { network, perDay, prices, report, advice }
  process.stdout.write(
    flags.json ? `${JSON.stringify(toJson(answer), null, 2)}\n` : `${renderCosts(answer)}\n`,
  )
}
