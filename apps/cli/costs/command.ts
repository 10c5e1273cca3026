import { integer, url, usdc } from '@tollkeeper/runtime/parsers'
import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { type Command, Option } from 'commander'
import { parsedOption } from '../terminal/options.ts'
import type { CostFlags } from './flags.ts'
import { gwei } from './gwei.ts'

/** Adds `costs`, which computes the fee and the gas for a price. */
export function addCostsCommand(program: Command): void {
  program
    .command('costs')
    .summary('compute fee and gas for a price, and the break-even price')
    .description(
      `Computes for a price: the platform's fee; the gas, by kind of payment and by number of payments per transaction; the amounts that provider and operator keep; the lowest price whose fee covers the gas; and the savings from waiting for fuller batches. The gas price is read
from the network's node (RPC_URL_<NETWORK>). Without a node, the command uses the example prices of docs/costs.md and prints a note.`,
    )
    .addOption(new Option('--network <name>', 'network to settle on').choices(networkNames).default('base'))
    .addOption(parsedOption('--price <usdc>', 'price of a request in USDC', usdc()).default(10_000n, '0.01'))
    .addOption(
      parsedOption('--per-day <count>', 'payments a day', integer(1, 1_000_000)).default(1_000, '1000'),
    )
    .addOption(parsedOption('--rpc <url>', 'a node of the network (default: RPC_URL_<NETWORK>)', url))
    .addOption(parsedOption('--gas-price <gwei>', 'use this gas price instead of asking a node', gwei))
    .addOption(
      parsedOption('--eth-usd <usd>', 'price of 1 ETH (1 POL on Polygon) in USD; needs --gas-price', usdc()),
    )
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper costs
  $ tollkeeper costs --network base --price 0.05 --per-day 10000 --rpc https://mainnet.base.org
  $ tollkeeper costs --gas-price 0.01 --eth-usd 3000 --json`,
    )
    .action(async (flags: CostFlags) => (await import('./run.ts')).runCosts(flags))
}
