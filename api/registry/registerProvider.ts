import { recordChange } from '@tollkeeper/ledger/registry/registryChanges'
import type { Transaction } from '@tollkeeper/ledger/store/database'
import { issueApiKey } from './apiKeys.ts'
import { insertProvider, type NewProvider, type Provider } from './providers.ts'

export type RegisteredProvider = Provider & { keyId: string; apiKey: string }

/**
 * Registers a provider with its first API key, and starts its history.
 *
 * @param by the actor that the history shows: the provider itself with its new key, or the operator
 */
export async function registerProvider(
  tx: Transaction,
  fields: NewProvider,
  { by }: { by: 'provider' | 'operator' },
): Promise<RegisteredProvider> {
  const inserted = await insertProvider(tx, fields)
  const { providerId } = inserted
  const { apiKey, ...key } = await issueApiKey(tx, providerId)
  const { keyId } = key
  const record = recordChange(tx, { providerId, by: by === 'operator' ? null : keyId })
  await record(providerId, null, inserted)
  await record(keyId, null, key)
  return { ...inserted, keyId, apiKey }
}
