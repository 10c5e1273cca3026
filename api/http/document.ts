/** Path of the gateway's own OpenAPI document. */
export const gatewayDocument = '/openapi/gateway.json'

type Operation = { operationId?: string; security?: object[]; tags?: string[] }
type Document = { paths?: Record<string, unknown>; tags?: { name: string; description?: string }[] }

const methods = ['get', 'put', 'post', 'delete', 'patch'] as const

/** Completes the operations of a document for code generators: their ids, and who may call them. */
export function completeOperations(document: Document): void {
  const tags = new Set<string>()
  for (const [path, item] of Object.entries(document.paths ?? {})) {
    const operations = item as Partial<Record<(typeof methods)[number], Operation>>
    for (const method of methods) {
      const operation = operations[method]
      if (operation === undefined) continue
      operation.operationId ??= nameOperation(method, path)
      operation.security ??= []
      for (const tag of operation.tags ?? []) tags.add(tag)
    }
  }
  document.tags = [...tags].map((name) => ({ name, description: descriptions[name] ?? name }))
}

const descriptions: Record<string, string> = {
  Payments: 'Payments, and their receipts',
  Providers: 'Everything that providers register',
  'Provider views': "A provider's own figures",
  Settlements: 'Settlement of payments',
  Network: 'All settlements on a chain',
  Discovery: 'Listings of what can be bought',
  Webhooks: 'Notifications of events',
  Operations: 'For operators and their health probes',
}

/**
 * Converts a method and path to one word: `GET /providers/{id}/endpoints/{endpointId}` becomes `getProviderEndpoint`. A collection is
 * singular if a parameter selects one of its items.
 */
function nameOperation(method: string, path: string): string {
  const parts = path.split('/').filter((part) => part !== '')
  const words = parts.flatMap((part, index) => {
    if (part.startsWith('{')) return []
    return [parts[index + 1]?.startsWith('{') ? singular(part) : part]
  })
  const name = words.flatMap((word) => word.split(/[^A-Za-z0-9]+/)).map(capital)
  return method + (name.join('') || 'Root')
}

function singular(word: string): string {
  return word
    .replace(/ies$/, 'y')
    .replace(/(ch|sh|ss|x)es$/, '$1')
    .replace(/([^s])s$/, '$1')
}

function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1)
}
