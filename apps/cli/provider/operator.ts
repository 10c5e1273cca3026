import { issueRecordedApiKey } from '@tollkeeper/api/registry/apiKeys'
import { newProvider } from '@tollkeeper/api/registry/providerRoutes'
import { registerProvider } from '@tollkeeper/api/registry/registerProvider'
import { type KeyScope, setGasGrant } from '@tollkeeper/ledger/registry/apiKeys'
import { setSuspended } from '@tollkeeper/ledger/registry/suspendProvider'
import type { Database } from '@tollkeeper/ledger/store/database'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { withDatabase } from '../database/withDatabase.ts'
import { CliError } from '../terminal/cliError.ts'
import type { JsonFlag } from '../terminal/options.ts'
import { printDone, secretLines } from './gateway.ts'

// The operator changes providers directly in the gateway's database, without an API key.

type OperatorFlags = { provider: string; json?: boolean }

export type CreateFlags = { name: string; contact?: string; json?: boolean }

/** Registers a provider in the gateway's database, regardless of REGISTRATION, and prints its API key once. */
export function createAsOperator({ name, contact, ...flags }: CreateFlags): Promise<void> {
  return withDatabase('provider-create', async (sql) => {
    const created = await createProviderAsOperator(sql, { name, contact })
    printDone(
      created,
      flags,
      `Created ${created.providerId}. Next: \`tollkeeper provider wallet --provider ${created.providerId} --network base --address 0x…\``,
      ...secretLines('API key', created.apiKey),
    )
  })
}

export type CreatedProvider = { providerId: string; name: string; keyId: string; apiKey: string }

/**
 * Registers a provider with its first API key, regardless of REGISTRATION. The provider's history names the operator.
 *
 * @throws {CliError} `invalid_flags` for a name or contact that `POST /providers` would also reject.
 */
export async function createProviderAsOperator(
  sql: Database,
  { name, contact }: { name: string; contact?: string | undefined },
): Promise<CreatedProvider> {
  const parsed = newProvider.safeParse({ name, ...(contact !== undefined && { contact }) })
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    throw new CliError('invalid_flags', `--${issue?.path.join('.')}: ${issue?.message}`)
  }
  const fields = { name, contact: contact ?? null, requiresKey: false, ownMiddleware: false }
  const created = await sql.begin((tx) => registerProvider(tx, fields, { by: 'operator' }))
  const { providerId, keyId, apiKey } = created
  return { providerId, name, keyId, apiKey }
}

export type KeyFlags = OperatorFlags & { label: string; scope: KeyScope }

export function issueKey({ provider: providerId, label, scope, ...flags }: KeyFlags): Promise<void> {
  return withDatabase('provider-key', async (sql) => {
    const issued = await issueRecordedApiKey(sql, { providerId, by: null }, { label, scope })
    if (issued === undefined) throw unknown(providerId)
    const answer = { ...issued, createdAt: issued.createdAt.toISOString() }
    printDone(
      answer,
      flags,
      `Issued ${issued.keyId} for ${providerId}`,
      ...secretLines('API key', issued.apiKey),
    )
  })
}

export type GrantFlags = OperatorFlags & { usdc: string }

export function grantGas({ provider: providerId, usdc, ...flags }: GrantFlags): Promise<void> {
  return withDatabase('provider-grant', async (sql) => {
    const amount = parseUsdc(usdc)
    if (!(await setGasGrant(sql, providerId, amount))) throw unknown(providerId)
    const granted = formatUsdc(amount)
    const done = `${providerId} has a gas grant of ${granted} USDC per UTC day now`
    printDone(
      { providerId, gasGrantUsdc: granted },
      flags,
      amount === 0n ? `Removed the gas grant of ${providerId}` : done,
    )
  })
}

export function suspend(provider: string, suspended: boolean, flags: JsonFlag): Promise<void> {
  return withDatabase('provider', async (sql) => {
    const at = new Date()
    if (!(await setSuspended(sql, provider, suspended ? at : null))) throw unknown(provider)
    const answer = { providerId: provider, suspendedAt: suspended ? at.toISOString() : null }
    printDone(answer, flags, `${provider} is ${suspended ? 'suspended' : 'no longer suspended'}`)
  })
}

const unknown = (provider: string) =>
  new CliError('unknown_provider', `There is no provider ${provider}. Check the id`)
