import { shorten, writeTime } from './format.ts'

/** A field of a registered item, before and after a change. */
export type Difference = { field: string; before: string | null; after: string }

/** Returns the fields of `after` that differ. `before` is null for a new item. */
export function differences(before: object | null, after: object): Difference[] {
  const was = before as Record<string, unknown> | null
  return Object.entries(after)
    .filter(
      ([name, value]) => !bookkeeping.has(name) && JSON.stringify(was?.[name]) !== JSON.stringify(value),
    )
    .map(([name, value]) => ({
      field: nameField(name),
      before: was === null ? null : writeValue(was[name]),
      after: writeValue(value),
    }))
}

/**
 * Fields that aren't listed as differences, because they follow from other fields or from the change itself, or because no user
 * changed them: `proof` and `listing` are findings of the gateway.
 */
const bookkeeping = new Set([
  ...['version', 'createdAt', 'providerId', 'endpointId', 'keyId', 'path', 'testnet', 'walletId', 'network'],
  ...['proof', 'listing'],
])

const fieldNames: Record<string, string> = {
  name: 'Name',
  contact: 'Contact',
  contactConfirmedAt: 'Contact confirmed',
  requiresKey: 'Your API key is needed',
  ownMiddleware: 'Own middleware',
  disabledAt: 'Disabled since',
  suspendedAt: 'Suspended since',
  url: 'URL',
  method: 'Method',
  pricing: 'Price',
  networks: 'Paid on',
  description: 'Description',
  mimeType: 'Content type',
  serverUrl: 'MCP server',
  address: 'Address',
  retiredAt: 'Retired',
  upstream: 'Your server',
  upstreamSecretSince: 'Server’s secret since',
  label: 'Label',
  revokedAt: 'Revoked',
  scope: 'Scope',
  listed: 'Listed in catalogs',
  serviceName: 'Name in catalogs',
  tags: 'Tags',
  iconUrl: 'Icon',
  ownershipProofs: 'Proofs of origin',
  inputSchema: 'Input schema',
  inputExample: 'Input example',
  outputSchema: 'Output schema',
  outputExample: 'Output example',
  hook: 'Acceptance hook',
  hookHeaders: 'Headers that the hook reads',
  hookOnFailure: 'If the hook gives no decision',
  hookSecretSince: 'Hook’s secret since',
  upstreamAcceptX402V1: 'Accepts clients of x402 v1',
  upstreamForwardsAuthorization: 'Forwards logins',
  gasGrant: 'Gas grant',
}

/** Returns a field's name in words. If `fieldNames` doesn't have the field, returns its key split into words. */
function nameField(name: string): string {
  if (Object.hasOwn(fieldNames, name)) return fieldNames[name] ?? name
  const words = name.replace(
    /([a-z])([A-Z])/g,
    (_, end: string, start: string) => `${end} ${start.toLowerCase()}`,
  )
  return words.slice(0, 1).toUpperCase() + words.slice(1).replaceAll('_', ' ')
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
