import { type Command, Option } from 'commander'
import { jsonOption, parsedOption, repeatedOption } from '../terminal/options.ts'
import { databaseUrlAnswer, nameAnswer, networksAnswer, rpcAnswer, walletAnswer } from './answers.ts'
import type { InitFlags } from './run.ts'

/** Adds `init`, which turns five answers into a gateway's settings and keys. */
export function addInitCommand(program: Command): void {
  program
    .command('init')
    .summary('set up a gateway')
    .description(
      `Asks five questions and writes what a gateway needs: .env, the key that signs receipts, and the key of the wallet that pays for gas.
Each question has a flag; with --yes nothing is asked. Nothing is written before the last answer. For an existing .env, init shows the changes, and overwrites it only if you confirm or give --force; variables that init doesn't ask for are kept. If the database is up to date, init also creates
your provider and its API key.`,
    )
    .addOption(parsedOption('--name <name>', 'name of your provider, as buyers see it', nameAnswer))
    .addOption(
      new Option('--registration <who>', 'own: only your APIs; open: anyone may register').choices([
        'own',
        'open',
      ]),
    )
    .addOption(parsedOption('--networks <names>', 'networks, separated by commas', networksAnswer))
    .addOption(
      repeatedOption(
        '--rpc <network=url>',
        "RPC URL of a network, repeatable (default: the network's public node)",
        rpcAnswer,
      ),
    )
    .addOption(
      parsedOption(
        '--wallet <address>',
        'wallet that receives the fees; your sales need another wallet',
        walletAnswer,
      ),
    )
    .addOption(parsedOption('--database <url>', 'Postgres 17 or later (DATABASE_URL)', databaseUrlAnswer))
    .option('--file <path>', 'file to write', '.env')
    .option('--force', 'overwrite the file')
    .option('--yes', 'ask no questions: use flags, the existing file, and defaults')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper init
  $ tollkeeper init --yes --name Weather --registration own --networks base --wallet 0x1000000000000000000000000000000000000001 --database postgres://tollkeeper:password@127.0.0.1:5432/tollkeeper`,
    )
    .action(async (flags: InitFlags) => (await import('./run.ts')).runInit(flags))
}
