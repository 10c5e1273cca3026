import { type Command, Option } from 'commander'
import { setSuspended } from '#ledger/registry/suspendProvider'
import { CliError } from '../cliError.ts'
import { withDatabase } from '../withDatabase.ts'
import { addChangesCommand } from './changes.ts'
import { addEndpointCommands } from './endpoint.ts'
import {
  type GatewayFlags,
  ownPath,
  print,
  request,
  update,
  withGateway,
  withKey,
  withVersion,
} from './gateway.ts'
import { addGrantCommand } from './grant.ts'
import { addKeyCommand } from './key.ts'
import { addRefundCommand } from './refund.ts'
import { addUpstreamCommands } from './upstream.ts'
import { addWalletCommands } from './wallet.ts'

/** `provider …`: what a provider registers at a gateway, and the key that the operator can issue it. */
export function addProviderCommand(program: Command): void {
  const provider = program
    .command('provider')
    .summary('register at a gateway')
    .description('Registers at a gateway, and changes what is registered.')
    .addHelpText('after', '\nExample:\n  $ tollkeeper provider create --name Weather')

  withGateway(provider.command('create'))
    .summary('a provider, and its first API key')
    .description('Registers a provider. Its API key is shown this once.')
    .requiredOption('--name <name>', 'as shown to buyers')
    .option('--contact <contact>', 'where to reach you')
    .addOption(
      new Option('--token <token>', 'where registration takes one').env('TOLLKEEPER_REGISTRATION_TOKEN'),
    )
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper provider create --name Weather --contact ops@weather.example',
    )
    .action(async ({ name, contact, token, ...flags }: GatewayFlags & CreateFlags) => {
      const headers = token === undefined ? {} : { 'registration-token': token }
      print(await request(flags, { path: '/providers', headers, body: { name, contact } }), flags)
      if (!flags.json) process.stderr.write('Keep the apiKey: it is not shown again.\n')
    })

  withVersion(withKey(provider.command('update')))
    .summary('change it')
    .description('Changes what is registered of a provider.')
    .option('--name <name>', 'as shown to buyers')
    .option('--contact <contact>', 'where to reach you')
    .option('--requires-key', '/verify takes its API key only')
    .option('--no-requires-key', '/verify takes anybody')
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper provider update --provider prov_… --name "Weather, Inc."',
    )
    .action(async ({ name, contact, requiresKey, ...flags }: GatewayFlags & UpdateFlags) => {
      await update(flags, ownPath(flags), { name, contact, requiresKey })
    })

  withKey(provider.command('contact'))
    .summary('confirm the contact, to be told by mail')
    .description(
      `Mails a code to the contact, or, with --code, confirms it. From then on the gateway mails there what fails to settle,
and which webhook was switched off.`,
    )
    .option('--code <code>', 'from the mail')
    .addHelpText('after', '\nExample:\n  $ tollkeeper provider contact --provider prov_… --code …')
    .action(async ({ code, ...flags }: GatewayFlags & { code?: string }) => {
      if (code === undefined) {
        await request(flags, { method: 'POST', path: ownPath(flags, 'contact', 'code') })
        print({ mailed: true }, flags)
        return
      }
      print(await request(flags, { path: ownPath(flags, 'contact', 'confirmation'), body: { code } }), flags)
    })

  for (const [verb, disabled, about] of [
    ['disable', true, 'Refuses new challenges of all its endpoints. Those that are out may still be paid.'],
    ['enable', false, 'Sells again after `provider disable`.'],
  ] as const) {
    withKey(provider.command(verb))
      .summary(disabled ? 'sell nothing for now' : 'sell again')
      .description(about)
      .option('--operator', 'as the operator, whom the provider cannot overrule. Reads DATABASE_URL')
      .addHelpText('after', `\nExample:\n  $ tollkeeper provider ${verb} --provider prov_…`)
      .action(({ operator, ...flags }: GatewayFlags & { operator?: true }) =>
        operator ? suspend(flags.provider ?? '', disabled) : update(flags, ownPath(flags), { disabled }),
      )
  }

  addWalletCommands(provider)
  addEndpointCommands(provider)
  addUpstreamCommands(provider)
  addRefundCommand(provider)
  addChangesCommand(provider)
  addKeyCommand(provider)
  addGrantCommand(provider)
}

/** The operator's switch. */
function suspend(provider: string, suspended: boolean): Promise<void> {
  return withDatabase('provider', async (database) => {
    const at = new Date()
    if (!(await setSuspended(database, provider, suspended ? at : null)))
      throw new CliError('unknown_provider', `There is no provider ${provider}`)
    process.stdout.write(
      `${at.toISOString()} ${provider} is ${suspended ? 'suspended' : 'no longer suspended'}\n`,
    )
  })
}

type CreateFlags = { name: string; contact?: string; token?: string }
type UpdateFlags = { name?: string; contact?: string; requiresKey?: boolean; ifVersion?: string }
