import { maxPassRequests, type PassTerms, passSeconds } from '../protocol/passTerms.ts'

/** A time span: a whole number of minutes, hours or days. */
export type PassDuration = `${number}m` | `${number}h` | `${number}d`

/**
 * The pass that one payment buys. It covers all requests within a time, or a limited number of requests.
 *
 * - `'1h'`: any number of requests within an hour
 * - `100`: 100 requests within 30 days
 * - an object: one or both limits, and who may use the pass
 */
export type PassOption =
  | PassDuration
  | number
  | {
      /** Validity of the pass: 1 minute to 366 days. Default: 30 days if `requests` is given. */
      within?: PassDuration
      /** Number of requests that the pass covers, including the one that pays for it. The gateway counts them. Default: unlimited. */
      requests?: number
      /**
       * Determines who may use the pass. `payer`: only the wallet that paid, which proves its identity with a signature every ten minutes. `bearer`:
       * anyone who has the pass or a copy of it. Default `payer`.
       */
      boundTo?: 'payer' | 'bearer'
    }

const unitSeconds = { m: 60, h: 3_600, d: 86_400 } as const
const defaultDuration = '30d'

/**
 * Reads the option `pass` of a middleware.
 *
 * @throws {TypeError} for an invalid pass. The message describes a valid pass.
 */
export function readPassOption(option: PassOption): PassTerms {
  const {
    within,
    requests,
    boundTo = 'payer',
  } = typeof option === 'object'
    ? option
    : typeof option === 'number'
      ? { requests: option }
      : { within: option }
  if (within === undefined && requests === undefined) throw invalid(option, 'needs `within` or `requests`')
  const seconds = readDuration(within ?? defaultDuration)
  if (seconds === undefined || seconds < passSeconds.least || seconds > passSeconds.most)
    throw invalid(option, 'lasts 1 minute to 366 days, such as 15m, 1h or 30d')
  if (requests !== undefined && !(Number.isInteger(requests) && requests >= 1 && requests <= maxPassRequests))
    throw invalid(option, `buys 1 to ${maxPassRequests} requests`)
  if (boundTo !== 'payer' && boundTo !== 'bearer') throw invalid(option, 'is bound to `payer` or `bearer`')
  return { seconds, ...(requests !== undefined && { requests }), boundTo }
}

function readDuration(text: unknown): number | undefined {
  const [, number, unit] = /^([1-9]\d{0,6})([mhd])$/.exec(String(text)) ?? []
  return number === undefined ? undefined : Number(number) * unitSeconds[unit as keyof typeof unitSeconds]
}

function invalid(option: unknown, rule: string): TypeError {
  return new TypeError(`pricing.pass: a pass ${rule}; got ${JSON.stringify(option)}`)
}
