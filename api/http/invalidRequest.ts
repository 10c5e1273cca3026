import { Refusal } from './refusal.ts'

type Issue = { code?: string; path: PropertyKey[]; message: string }

/** The zod issues of malformed values. All other issues concern well-formed values that aren't accepted. */
const malformed = new Set(['invalid_type', 'invalid_format', 'invalid_union', 'unrecognized_keys'])

/** Creates the refusal of a request that its schema rejects; `target` is the part of the request. */
export function invalidRequest(target: string, issues: Issue[]): Refusal {
  const errors = issues
    .slice(0, 10)
    .map(({ path, message }) => ({ field: path.map(String).join('.'), message }))
  const isMalformed = issues.some(({ code }) => code === undefined || malformed.has(code))
  const [first] = errors
  return new Refusal(
    isMalformed ? 'invalid_request' : 'invalid_field',
    first === undefined
      ? undefined
      : [target === 'json' ? 'body' : target, first.field, first.message].filter(Boolean).join(': '),
    { details: { errors } },
  )
}
