import { integer } from '@tollkeeper/runtime/parsers'
import { type Command, Option } from 'commander'
import type { PlayedNetwork } from '../devstack/stack/stack.ts'
import { parsePrice } from './provider/gateway.ts'
import { parsedOption, playedNetworkOption } from './terminal/options.ts'

/** Adds `tollkeeper dev -- <command>`. */
export function addDevCommand(program: Command): void {
  program
    .command('dev')
    .summary('run your API on a local chain with paying buyers')
    .description(
      'Starts a local chain that simulates Base Sepolia with the real USDC contract, Postgres, gateway, keeper and indexer on free ports, ' +
        'registers a provider for the API at http://127.0.0.1:$PORT, and runs your command with these variables: GATEWAY_URL, ' +
        'FACILITATOR_URL, PROVIDER_ID, PROVIDER_API_KEY, PORT, NETWORK, RPC_URL_BASE_SEPOLIA, USDC_ADDRESS, PAY_TO, ' +
        'WALLET_PRIVATE_KEY (a buyer with 1,000 USDC) and CONTROL_URL (settle now, time travel, reorgs, failing RPC). ' +
        'Ends with the command and its exit status. Without a command, prints the variables and waits for Ctrl-C.',
    )
    .argument('[command...]', 'your command, after --')
    .addOption(playedNetworkOption())
    .addOption(parsedOption('--port <number>', 'port of your API (default: a free one)', integer(1, 65_535)))
    .addOption(
      new Option('--price <usdc>', 'price of every path of your API').argParser(parsePrice).default('0.01'),
    )
    .addOption(
      parsedOption(
        '--settle-after <seconds>',
        'seconds until payments settle automatically, 1 to 3600',
        integer(1, 3_600),
      ).default(3_600),
    )
    .option('--write-env <path>', 'write the variables to a file, for a process that you start elsewhere')
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper dev -- node my-api.js\n  $ tollkeeper dev --settle-after 2 -- npm test',
    )
    .action(async (command: string[], flags: DevFlags) => {
      const { runDev } = await import('../devstack/dev/runDev.ts')
      const { settleAfter: settleAfterSeconds, ...options } = flags
      process.exitCode = await runDev({ command, settleAfterSeconds, ...options })
    })
}

type DevFlags = {
  network: PlayedNetwork
  port?: number
  price: string
  settleAfter: number
  writeEnv?: string
}
