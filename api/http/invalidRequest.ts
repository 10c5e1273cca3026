import { Refusal } from './refusal.ts'

type Issue = { code?: string; path: PropertyKey[]; message: string }

/** The zod issues of a wrong form. All others are about well-formed values that aren't accepted. */
const malformed = new Set(['invalid_type', 'invalid_format', 'invalid_union', 'unrecognized_keys'])

/** Answers a request that its schema refuses; `target` says where in the request. */
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
