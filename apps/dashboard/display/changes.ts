import { shorten, writeTime } from './format.ts'

/** A field of something registered, before and after somebody changed it. */
export type Difference = { field: string; before: string | null; after: string }

/** The fields of `after` that differ; `before` null: it is new. */
export function differences(before: object | null, after: object): Difference[] {
  const was = before as Record<string, unknown> | null
  return Object.entries(after)
    .filter(
      ([name, value]) => !bookkeeping.has(name) && JSON.stringify(was?.[name]) !== JSON.stringify(value),
    )
    .map(([name, value]) => ({
      field: fieldNames[name] ?? name,
      before: was === null ? null : writeValue(was[name]),
      after: writeValue(value),
    }))
}

/** Fields that follow from others, or from the change itself. `proof` is what the gateway found at the URL, so nobody changed it. */
const bookkeeping = new Set([
  ...['version', 'createdAt', 'providerId', 'endpointId', 'keyId', 'path', 'testnet', 'walletId', 'network'],
  'proof',
])

const fieldNames: Record<string, string> = {
  name: 'Name',
  contact: 'Contact',
  contactConfirmedAt: 'Contact confirmed',
  requiresKey: 'Needs your key',
  ownMiddleware: 'Has a middleware of its own',
  disabledAt: 'Disabled since',
  suspendedAt: 'Suspended since',
  url: 'URL',
  method: 'Method',
  pricing: 'Price',
  networks: 'Paid on',
  description: 'Description',
  mimeType: 'Content type',
  address: 'Address',
  retiredAt: 'Retired',
  upstream: 'Your server',
  upstreamSecretSince: 'Its secret since',
  label: 'Label',
  revokedAt: 'Revoked',
  scope: 'Scope',
}

function writeValue(value: unknown): string {
  if (value === null || value === undefined || value === '') return '–'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (Array.isArray(value)) return value.map(writeValue).join(', ')
  if (typeof value === 'object') {
    const { usdcPerUnit, network, walletId } = value as Record<string, unknown>
    if (usdcPerUnit !== undefined) return `${usdcPerUnit} USDC`
    return network === undefined ? JSON.stringify(value) : `${network} (${shorten(String(walletId))})`
  }
  const text = String(value)
  return /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(text) ? writeTime(text) : text
}
