import { networkVariable } from '@tollkeeper/runtime/variables'
import { type NetworkName, networkNames } from '@tollkeeper/sdk/protocol/networks'
import { type Command, Option } from 'commander'
import type { PlayedNetwork } from '../devstack/stack/stack.ts'
import { runProgram } from './runProgram.ts'
import { CliError } from './terminal/cliError.ts'
import { type JsonFlag, jsonOption, playedNetworkOption } from './terminal/options.ts'

const environmentNote = `
Settings come from the environment. .env.example lists the variables; \`tollkeeper --env <file> …\` reads them from a file.`

/** Adds `start`, which runs everything on a local chain. */
export function addStartCommand(program: Command): void {
  program
    .command('start')
    .summary('run the whole system on a local chain')
    .description(
      'Starts a local chain with the real USDC contract, Postgres, indexer, keeper, gateway and a sample API.',
    )
    .addOption(playedNetworkOption())
    .addHelpText('after', '\nExample:\n  $ tollkeeper start')
    .action(({ network }: { network: PlayedNetwork }) =>
      runProgram(() => import('../devstack/start.ts'), ['--network', network]),
    )
}

/** Adds `demo`, which pays, settles and audits on a separate local chain. */
export function addDemoCommand(program: Command): void {
  program
    .command('demo')
    .summary('pay, settle and audit requests on a local chain')
    .description(
      'Has buyers pay for requests on a separate local chain, one by one and on a tab, waits for the settlement, audits the receipts, and accounts for all USDC.',
    )
    .option('--payments <number>', 'number of micropayments, 0 to 10,000', '120')
    .addOption(jsonOption())
    .addHelpText('after', '\nExample:\n  $ tollkeeper demo --payments 20')
    .action(({ payments, json }: { payments: string; json?: boolean }) =>
      runProgram(() => import('../devstack/demo.ts'), ['--payments', payments, ...(json ? ['--json'] : [])]),
    )
}

/** Adds `api`, `keeper`, `indexer` and `deploy`: the programs of an operator. */
export function addProcessCommands(program: Command): void {
  program
    .command('api')
    .summary('run the gateway')
    .description('Runs the gateway: challenges, verification, receipts and settlement views.')
    .addHelpText(
      'after',
      `${environmentNote}\n\nExample:\n  $ DATABASE_URL=postgres://… NETWORKS=base RPC_URL_BASE=https://… tollkeeper api`,
    )
    .action(() => runProgram(() => import('@tollkeeper/api/main')))

  program
    .command('keeper')
    .summary('settle payments on chain')
    .description(
      'Runs a keeper. By default, it uses the database of its gateway. With --gateway, it settles for any gateway and needs no database.',
    )
    .option('--gateway <url>', 'settle what this gateway publishes as due (KEEPER_GATEWAY_URL)')
    .option('--rpc <url>', 'node of the chain; requires --network (RPC_URL_<NETWORK>)')
    .addOption(new Option('--network <name>', 'the chain (NETWORKS)').choices(networkNames))
    .option(
      '--key-file <path>',
      'file with the private keys of the gas wallets, one per line (KEEPER_KEY_FILE)',
    )
    .addHelpText(
      'after',
      `${environmentNote}\n\nExample:\n  $ tollkeeper keeper --gateway https://gateway.example --rpc https://… --network base --key-file keeper.key`,
    )
    .action((flags: KeeperFlags) => {
      Object.assign(process.env, keeperEnvironment(flags))
      return runProgram(() => import('@tollkeeper/keeper/main'))
    })

  program
    .command('indexer')
    .summary('read the chain into Postgres')
    .description('Runs the indexer (Ponder) and its GraphQL.')
    .option('--serve', 'only serve GraphQL, from the data that another indexer writes')
    .option(
      '--rebuild',
      'drop the index and the record of these chains; the next start reads the chains again',
    )
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
    .command('deploy')
    .summary('deploy the contracts to a network')
    .description(
      'Deploys the contracts to their CREATE2 addresses, or verifies the code that is already there.',
    )
    .addOption(new Option('--network <name>', 'network').choices(networkNames).makeOptionMandatory())
    .option(
      '--deployments-file <path>',
      'file that records the addresses (default: the one that api, keeper and indexer read, DEPLOYMENTS_FILE)',
    )
    .option(
      '--start-block <number>',
      'block in which BatchSettlement was created; needed only if the node has no old state',
    )
    .addOption(jsonOption())
    .addHelpText('after', `${environmentNote}\n\nExample:\n  $ tollkeeper deploy --network base-sepolia`)
    .action((flags: DeployFlags) => runProgram(() => import('./deploy.ts'), deployArguments(flags)))
}

type DeployFlags = JsonFlag & { network: NetworkName; deploymentsFile?: string; startBlock?: string }

function deployArguments({ network, deploymentsFile, startBlock, json }: DeployFlags): string[] {
  return [
    `--network=${network}`,
    ...(deploymentsFile === undefined ? [] : [`--deployments-file=${deploymentsFile}`]),
    ...(startBlock === undefined ? [] : [`--start-block=${startBlock}`]),
    ...(json ? ['--json'] : []),
  ]
}

type KeeperFlags = { gateway?: string; rpc?: string; network?: NetworkName; keyFile?: string }

/** Converts the keeper's flags into environment variables. */
export function keeperEnvironment({ gateway, rpc, network, keyFile }: KeeperFlags): Record<string, string> {
  if (rpc !== undefined && network === undefined)
    throw new CliError('invalid_flags', '--rpc: requires --network')
  return {
    ...(gateway !== undefined && { KEEPER_GATEWAY_URL: gateway }),
    ...(network !== undefined && { NETWORKS: network }),
    ...(network !== undefined && rpc !== undefined && { [networkVariable('RPC_URL', network)]: rpc }),
    ...(keyFile !== undefined && { KEEPER_KEY_FILE: keyFile }),
  }
}
