import type { Command } from 'commander'
import { setGasGrant } from '#ledger/registry/apiKeys'
import { formatUsdc, parseUsdc } from '#protocol/amount'
import { CliError } from '../cliError.ts'
import { withDatabase } from '../withDatabase.ts'
import { print } from './gateway.ts'

/** `provider grant`: the operator's word that it pays a provider's gas. */
export function addGrantCommand(provider: Command): void {
  provider
    .command('grant')
    .summary('pay for its gas, as the operator')
    .description(
      `Sets what the operator pays a UTC day for gas that a provider's payments carry by no fee: through x402's facilitator,
POST /submit, and refunds. Without a grant they share GAS_ALLOWANCE_USD with everybody's. Reads DATABASE_URL.`,
    )
    .requiredOption('--provider <id>', 'the provider')
    .requiredOption('--usdc <amount>', 'a UTC day; 0 takes the grant back')
    .option('--json', 'print JSON')
    .addHelpText('after', '\nExample:\n  $ tollkeeper --env .env provider grant --provider prov_… --usdc 5')
    .action(({ provider: providerId, usdc, json = false }: GrantFlags) =>
      withDatabase('provider-grant', async (database) => {
        const amount = parseUsdc(usdc)
        if (!(await setGasGrant(database, providerId, amount)))
          throw new CliError('unknown_provider', `There is no provider ${providerId}`)
        print({ providerId, gasGrantUsdc: formatUsdc(amount) }, { json })
      }),
    )
}

type GrantFlags = { provider: string; usdc: string; json?: boolean }
