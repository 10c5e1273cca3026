export type Check = {
  name: string
  /** `warn`: works, but needs attention. `skip`: not checked; `found` says what was missing. */
  status: 'ok' | 'warn' | 'fail' | 'skip'
  found: string
  /** What to do about it. */
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

/** A check that can't be made until another thing is there. */
export function skipped(name: string, needs: string): Check {
  return { name, status: 'skip', found: `skipped: it needs ${needs}` }
}

/** A short message for an error, without URLs, which may hold credentials. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  // viem's `details` is the server's message; postgres.js and Node give a code.
  const { shortMessage, details, code } = error as Error &
    Partial<Record<'shortMessage' | 'details' | 'code', string>>
  const [line = ''] = (shortMessage === undefined ? error.message : `${shortMessage} ${details ?? ''}`).split(
    '\n',
  )
  return `${line.trim()}${code === undefined || line.includes(code) ? '' : ` (${code})`}` || error.name
}
