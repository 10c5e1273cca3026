import { networkVariable } from '@tollkeeper/runtime/variables'
import { type NetworkName, networkNames } from '@tollkeeper/sdk/protocol/networks'
import { type Command, Option } from 'commander'
import type { PlayedNetwork } from '../devstack/stack/stack.ts'
import { runProgram } from './runProgram.ts'
import { CliError } from './terminal/cliError.ts'
import { playedNetworkOption } from './terminal/options.ts'

const environmentNote = `
Settings come from the environment; .env.example names the servers' variables. A file of them: tollkeeper --env .env …`

/** `start`, `demo`, and one command for each process. */
export function addProcessCommands(program: Command): void {
  program
    .command('start')
    .summary('the whole system on a local chain, until Ctrl-C')
    .description(
      'Starts a local chain with the real USDC, Postgres, indexer, keeper, gateway and a sample API.',
    )
    .addOption(playedNetworkOption())
    .addHelpText('after', '\nExample:\n  $ tollkeeper start')
    .action(({ network }: { network: PlayedNetwork }) =>
      runProgram(() => import('../devstack/start.ts'), ['--network', network]),
    )

  program
    .command('demo')
    .summary('pay, settle and audit on a stack of its own')
    .description(
      'Has buyers pay a hundred requests, waits for settlement, audits their receipts, accounts for all USDC.',
    )
    .option('--payments <number>', 'micropayments, 0 to 10,000', '120')
    .option('--json', 'print one JSON object as the last line')
    .addHelpText('after', '\nExample:\n  $ tollkeeper demo --payments 20')
    .action(({ payments, json }: { payments: string; json?: boolean }) =>
      runProgram(() => import('../devstack/demo.ts'), ['--payments', payments, ...(json ? ['--json'] : [])]),
    )

  program
    .command('api')
    .summary('the gateway')
    .description('Runs the gateway: challenges, verification, receipts, settlement views.')
    .addHelpText(
      'after',
      `${environmentNote}\n\nExample:\n  $ DATABASE_URL=postgres://… NETWORKS=base RPC_URL_BASE=https://… tollkeeper api`,
    )
    .action(() => runProgram(() => import('@tollkeeper/api/main')))

  program
    .command('indexer')
    .summary('Ponder, from the chain into Postgres')
    .description('Runs the indexer, and its GraphQL.')
    .option('--serve', 'only answer GraphQL, from what another indexer writes')
    .option('--rebuild', 'drop the index, and what is kept of these chains; the next start reads them anew')
    .addHelpText(
      'after',
      `${environmentNote}\n\nExample:\n  $ DATABASE_URL=postgres://… NETWORKS=base RPC_URL_BASE=https://… tollkeeper indexer`,
    )
    .action(({ serve, rebuild }: { serve?: boolean; rebuild?: boolean }) =>
      rebuild
        ? runProgram(() => import('@tollkeeper/indexer/rebuild'))
        : runProgram(() => import('@tollkeeper/indexer/main'), serve ? ['--serve'] : []),
    )

  program
    .command('keeper')
    .summary('settles what is due')
    .description(
      'Runs a keeper: beside its gateway, on the same database; or, with --gateway, by anybody, without a database.',
    )
    .option('--gateway <url>', 'settle what this gateway publishes as due (KEEPER_GATEWAY_URL)')
    .option('--rpc <url>', 'node of the chain; with --network (RPC_URL_<NETWORK>)')
    .addOption(new Option('--network <name>', 'the chain (NETWORKS)').choices(networkNames))
    .option('--key-file <path>', 'private keys of the gas wallets, one a line (KEEPER_KEY_FILE)')
    .addHelpText(
      'after',
      `${environmentNote}\n\nExample:\n  $ tollkeeper keeper --gateway https://gateway.example --rpc https://… --network base --key-file keeper.key`,
    )
    .action((flags: KeeperFlags) => {
      Object.assign(process.env, keeperEnvironment(flags))
      return runProgram(() => import('@tollkeeper/keeper/main'))
    })

  program
    .command('deploy')
    .summary('put BatchSettlement on a network')
    .description('Deploys the contract to its CREATE2 address, or verifies the code that is there already.')
    .addOption(new Option('--network <name>', 'where').choices(networkNames).makeOptionMandatory())
    .option(
      '--deployments-file <path>',
      'where to record it (default: where api, keeper and indexer look, DEPLOYMENTS_FILE)',
    )
    .option(
      '--start-block <number>',
      "the block of an earlier deployment, for an RPC that can't tell old code",
    )
    .addHelpText('after', `${environmentNote}\n\nExample:\n  $ tollkeeper deploy --network base-sepolia`)
    .action((flags: DeployFlags) => runProgram(() => import('./deploy.ts'), deployArguments(flags)))
}

type DeployFlags = { network: NetworkName; deploymentsFile?: string; startBlock?: string }

function deployArguments({ network, deploymentsFile, startBlock }: DeployFlags): string[] {
  return [
    `--network=${network}`,
    ...(deploymentsFile === undefined ? [] : [`--deployments-file=${deploymentsFile}`]),
    ...(startBlock === undefined ? [] : [`--start-block=${startBlock}`]),
  ]
}

type KeeperFlags = { gateway?: string; rpc?: string; network?: NetworkName; keyFile?: string }

/** Translates the keeper's flags into environment variables. */
export function keeperEnvironment({ gateway, rpc, network, keyFile }: KeeperFlags): Record<string, string> {
  if (rpc !== undefined && network === undefined) throw new CliError('invalid_flags', '--rpc needs --network')
  return {
    ...(gateway !== undefined && { KEEPER_GATEWAY_URL: gateway }),
    ...(network !== undefined && { NETWORKS: network }),
    ...(network !== undefined && rpc !== undefined && { [networkVariable('RPC_URL', network)]: rpc }),
    ...(keyFile !== undefined && { KEEPER_KEY_FILE: keyFile }),
  }
}
