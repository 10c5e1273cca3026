import type { Command } from 'commander'
import { setSubmitGrant } from '#ledger/registry/apiKeys'
import { CliError } from './cliError.ts'
import { withDatabase } from './withDatabase.ts'

/** `grant`: what the operator lets a provider do beyond the rules. */
export function addGrantCommand(program: Command): void {
  program
    .command('grant')
    .summary('let a provider settle anything through POST /submit')
    .description(
      `Lets a provider settle any transfers through POST /submit, without the platform's fee: another operator
whose payments you settle, say. The keeper pays the gas, and logs each use. Reads DATABASE_URL.`,
    )
    .argument('<provider>', 'its id, prov_…')
    .option('--revoke', 'take it back')
    .addHelpText('after', '\nExample:\n  $ tollkeeper --env .env grant prov_0123456789abcdef0123456789abcdef')
    .action((provider: string, { revoke }: { revoke?: boolean }) =>
      withDatabase('grant', async (database) => {
        const at = new Date()
        if (!(await setSubmitGrant(database, provider, revoke ? null : at))) {
          throw new CliError('unknown_provider', `There is no provider ${provider}`)
        }
        const verb = revoke ? 'may no longer' : 'may'
        process.stdout.write(`${at.toISOString()} ${provider} ${verb} settle without a fee through /submit\n`)
      }),
    )
}
