export type Check = {
  name: string
  /** `warn`: works, but needs attention. `skip`: not checked; `found` then says what the check needs. */
  status: 'ok' | 'warn' | 'fail' | 'skip'
  found: string
  /** The action that the operator should take. */
  advice?: string
}

export const ok = (name: string, found: string): Check => ({ name, status: 'ok', found })

export const warn = (name: string, found: string, advice: string): Check => ({
  name,
  status: 'warn',
  found,
  advice,
})

export const fail = (name: string, found: string, advice: string): Check => ({
  name,
  status: 'fail',
  found,
  advice,
})

/** Returns a skipped check, which can't run until a dependency is available. */
export function skipped(name: string, needs: string): Check {
  return { name, status: 'skip', found: `skipped: it needs ${needs}` }
}

/** Returns a short message for an error, without URLs, which may contain credentials. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  // viem's `details` is the node's own error text. postgres.js and Node give an error code.
  const { shortMessage, details, code } = error as Error &
    Partial<Record<'shortMessage' | 'details' | 'code', string>>
  const [line = ''] = (shortMessage === undefined ? error.message : `${shortMessage} ${details ?? ''}`).split(
    '\n',
  )
  return `${line.trim()}${code === undefined || line.includes(code) ? '' : ` (${code})`}` || error.name
}
