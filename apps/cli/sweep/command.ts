import { address, usdc } from '@tollkeeper/runtime/parsers'
import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { type Command, Option } from 'commander'
import { jsonOption, parsedOption, repeatedOption } from '../terminal/options.ts'
import type { SweepFlags } from './run.ts'

/** Adds `sweep`, which pays out the USDC that splitters hold. */
export function addSweepCommand(program: Command): void {
  program
    .command('sweep')
    .summary('pay out what splitters hold')
    .description(
      "Lists what the splitters of a provider's wallet hold, and pays it out to provider and platform. Anyone may do that: the wallet of " +
        'WALLET_PRIVATE_KEY only pays the gas. The command computes the addresses of the splitters of all prices whose fee is a percentage; ' +
        "name any other price with --price. An operator's database has all splitters.",
    )
    .addOption(
      new Option('--network <name>', 'network of the splitters').choices(networkNames).makeOptionMandatory(),
    )
    .addOption(parsedOption('--wallet <address>', "the provider's wallet", address))
    .addOption(parsedOption('--platform <address>', "the gateway's wallet: feePayTo of a challenge", address))
    .addOption(
      repeatedOption(
        '--price <usdc>',
        'price with a fixed part in its fee (1 USDC or more), repeatable',
        usdc(),
      ),
    )
    .option(
      '--database',
      "take the splitters from the gateway's database (DATABASE_URL), only those of --wallet if it is given",
    )
    .option('--rpc <url>', 'node of the chain (default: RPC_URL_<NETWORK>)')
    .addOption(
      parsedOption(
        '--from <address>',
        'wallet whose key is in the signer at KEEPER_SIGNER_URL, instead of WALLET_PRIVATE_KEY',
        address,
      ),
    )
    .option('--yes', 'send without asking')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper sweep --network base --wallet 0x1000000000000000000000000000000000000001 --platform 0x2000000000000000000000000000000000000002 --price 2.50
  $ tollkeeper --env .env sweep --network base --database --yes`,
    )
    .action(async (flags: SweepFlags) => {
      const { runSweep } = await import('./run.ts')
      process.exitCode = await runSweep(flags)
    })
}
