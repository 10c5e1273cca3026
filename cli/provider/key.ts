import { type Command, Option } from 'commander'
import { issueRecordedApiKey } from '#api/registry/apiKeys'
import { type KeyScope, keyScopes } from '#ledger/registry/apiKeys'
import { CliError } from '../cliError.ts'
import { withDatabase } from '../withDatabase.ts'
import { print } from './gateway.ts'

/** `provider key`: the operator's way to let a provider in again. */
export function addKeyCommand(provider: Command): void {
  provider
    .command('key')
    .summary('issue an API key as the operator')
    .description(
      `Issues an API key for a provider that has lost its own. The provider's other keys stay, and its history shows that
the operator issued this one. Reads DATABASE_URL.`,
    )
    .requiredOption('--provider <id>', 'the provider')
    .option('--label <text>', 'shown in the list of its keys', 'issued by the operator')
    .addOption(
      new Option('--scope <scope>', 'read: it shows, and changes nothing').choices(keyScopes).default('full'),
    )
    .option('--json', 'print JSON')
    .addHelpText('after', '\nExample:\n  $ tollkeeper --env .env provider key --provider prov_…')
    .action(({ provider: providerId, label, scope, json = false }: KeyFlags) =>
      withDatabase('provider-key', async (database) => {
        const issued = await issueRecordedApiKey(database, { providerId, by: null }, { label, scope })
        if (issued === undefined) throw new CliError('unknown_provider', `There is no provider ${providerId}`)
        print({ ...issued, createdAt: issued.createdAt.toISOString() }, { json })
        if (!json) process.stderr.write('Keep the apiKey: it is not shown again.\n')
      }),
    )
}

type KeyFlags = { provider: string; label: string; scope: KeyScope; json?: boolean }
