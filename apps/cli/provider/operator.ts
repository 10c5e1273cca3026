import { issueRecordedApiKey } from '@tollkeeper/api/registry/apiKeys'
import { type KeyScope, setGasGrant } from '@tollkeeper/ledger/registry/apiKeys'
import { setSuspended } from '@tollkeeper/ledger/registry/suspendProvider'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { withDatabase } from '../database/withDatabase.ts'
import { CliError } from '../terminal/cliError.ts'
import { printAnswer } from './gateway.ts'

// The operator's changes to a provider, in the gateway's database.

type OperatorFlags = { provider: string; json?: boolean }

export type KeyFlags = OperatorFlags & { label: string; scope: KeyScope }

export function issueKey({ provider: providerId, label, scope, ...flags }: KeyFlags): Promise<void> {
  return withDatabase('provider-key', async (sql) => {
    const issued = await issueRecordedApiKey(sql, { providerId, by: null }, { label, scope })
    if (issued === undefined) throw unknown(providerId)
    printAnswer({ ...issued, createdAt: issued.createdAt.toISOString() }, flags)
  })
}

export type GrantFlags = OperatorFlags & { usdc: string }

export function grantGas({ provider: providerId, usdc, ...flags }: GrantFlags): Promise<void> {
  return withDatabase('provider-grant', async (sql) => {
    const amount = parseUsdc(usdc)
    if (!(await setGasGrant(sql, providerId, amount))) throw unknown(providerId)
    printAnswer({ providerId, gasGrantUsdc: formatUsdc(amount) }, flags)
  })
}

export function suspend(provider: string, suspended: boolean): Promise<void> {
  return withDatabase('provider', async (sql) => {
    const at = new Date()
    if (!(await setSuspended(sql, provider, suspended ? at : null))) throw unknown(provider)
    process.stdout.write(
      `${at.toISOString()} ${provider} is ${suspended ? 'suspended' : 'no longer suspended'}\n`,
    )
  })
}

const unknown = (provider: string) => new CliError('unknown_provider', `There is no provider ${provider}`)
