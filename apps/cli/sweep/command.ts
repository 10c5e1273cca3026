import { address, usdc } from '@tollkeeper/runtime/parsers'
import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { type Command, Option } from 'commander'
import { parsedOption, repeatedOption } from '../terminal/options.ts'
import type { SweepFlags } from './run.ts'

/** `sweep`: pays out what waits in splitters. */
export function addSweepCommand(program: Command): void {
  program
    .command('sweep')
    .summary('pay out what waits in splitters')
    .description(
      "Lists what waits in the splitters of a provider's wallet, and pays it out to provider and platform. Anybody may: it only " +
        "costs gas, of the wallet WALLET_PRIVATE_KEY. A splitter's address follows from its terms: those of prices in a " +
        'percentage tier are known, any other price is to be named. An operator has all of them in its database.',
    )
    .addOption(new Option('--network <name>', 'where').choices(networkNames).makeOptionMandatory())
    .addOption(parsedOption('--wallet <address>', "the provider's wallet", address))
    .addOption(parsedOption('--platform <address>', "the gateway's wallet: feePayTo of a challenge", address))
    .addOption(
      repeatedOption(
        '--price <usdc>',
        'a price with a fixed part in its fee (1 USDC or more); again for each',
        usdc(),
      ),
    )
    .option(
      '--database',
      "the splitters of the gateway's database (DATABASE_URL), of --wallet if it is given",
    )
    .option('--rpc <url>', 'a node of the chain (default: RPC_URL_<NETWORK>)')
    .addOption(
      parsedOption(
        '--from <address>',
        'a wallet that KEEPER_SIGNER_URL signs for, instead of WALLET_PRIVATE_KEY',
        address,
      ),
    )
    .option('--yes', 'send without asking')
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
