import type { Command } from 'commander'
import type { PlayedNetwork } from '../local/stack/stack.ts'
import { CliError } from './cliError.ts'
import { playedNetworkOption } from './playedNetworkOption.ts'

/** `tollkeeper dev -- <command>`. */
export function addDevCommand(program: Command): void {
  program
    .command('dev')
    .summary('run your API where it is paid for real, on a local chain')
    .description(
      'Starts a local chain that plays Base Sepolia with the real USDC, Postgres, gateway, keeper and indexer on free ports, registers a provider ' +
        'for the API at http://127.0.0.1:$PORT, and runs the command with what it needs in its environment: GATEWAY_URL, ' +
        'FACILITATOR_URL, PROVIDER_ID, PROVIDER_API_KEY, PORT, NETWORK, RPC_URL_BASE_SEPOLIA, USDC_ADDRESS, PAY_TO, ' +
        'WALLET_PRIVATE_KEY (a buyer with 1,000 USDC) and CONTROL_URL (settle now, time travel, reorgs, failing RPC). ' +
        'Ends with the command and its exit status; without one, prints the variables and waits for Ctrl-C.',
    )
    .argument('[command...]', 'after --, with its arguments')
    .addOption(playedNetworkOption())
    .option('--port <number>', 'port of your API; default a free one')
    .option('--price <usdc>', 'registered price of every path of it', '0.01')
    .option('--settle-after <seconds>', 'seconds until payments settle by themselves, 1 to 3600', '3600')
    .option('--write-env <path>', 'write the variables to a file, for a process started elsewhere')
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper dev -- node my-api.js\n  $ tollkeeper dev --settle-after 2 -- npm test',
    )
    .action(async (command: string[], flags: DevFlags) => {
      const { runDev } = await import('../local/dev/runDev.ts')
      const port = flags.port === undefined ? undefined : readInteger('--port', flags.port, 1, 65_535)
      const settleAfterSeconds = readInteger('--settle-after', flags.settleAfter, 1, 3_600)
      const { network, price, writeEnv } = flags
      process.exitCode = await runDev({ command, network, port, price, settleAfterSeconds, writeEnv })
    })
}

type DevFlags = {
  network: PlayedNetwork
  port?: string
  price: string
  settleAfter: string
  writeEnv?: string
}

function readInteger(flag: string, text: string, least: number, most: number): number {
  const value = Number(text)
  if (/^\d+$/.test(text) && value >= least && value <= most) return value
  throw new CliError(
    'invalid_flags',
    `${flag}: expected a whole number from ${least} to ${most}, got "${text}"`,
  )
}
