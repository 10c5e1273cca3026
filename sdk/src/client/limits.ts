import type { Address } from 'viem'
import { formatUsdc, parseUsdc } from '../protocol/amount.ts'
import { parseUrl } from '../protocol/fields.ts'
import { ChallengeRefusedError } from './errors.ts'
import { createSpendingMemory, type DailyLimits, type SpendingStore } from './spending.ts'
import { type Deadline, waitFor } from './transport.ts'

/** A buyer's limits on spending. Amounts are decimal USDC, the fee included. */
export type LimitOptions = {
  /** The most that one request may cost. Default: no limit. */
  maxPaymentUsdc?: string | number
  /** The most within any 24 hours. Default: no limit. */
  maxDailyUsdc?: string | number
  /** The most at one host within any 24 hours, on all its ports; all names of this machine are one host. Default: no limit. */
  maxDailyUsdcPerHost?: string | number
  /**
   * Who may be paid: `api.example` is `https://api.example`; other ports (`api.example:8443`) and `http://api.example` must be
   * listed as such. Default: everybody. Requests that cost nothing may go anywhere.
   */
  allowedHosts?: readonly string[]
  /**
   * Called before each payment is signed. `false`, or an error that it throws, refuses the payment (`payment_declined`). Its
   * amount is counted before the call, and given back after a refusal.
   */
  onPayment?: (payment: ProposedPayment) => unknown
  /**
   * Where the daily sums are counted: `createSpendingMemory()`, which several clients may share, or a store of your
   * own, which outlives the process. Default: the memory of this client alone.
   */
  spending?: SpendingStore
  /** Gets warnings, such as the one of a client without limits. Default: `console.warn`. */
  warn?: (message: string) => void
}

/** A payment that a challenge asks for and the limits allow. */
export type ProposedPayment = {
  /** The requested URL. */
  url: string
  /** Its host: lower-case, without port. */
  host: string
  /** USDC base units, the fee included. */
  amount: bigint
  network: string
  /** The provider's wallet, from the challenge. */
  payTo: Address
  /** In the seller's words. */
  description: string
  requestId: string
}

export type Limits = ReturnType<typeof readLimits>

const optionOf = { daily: 'maxDailyUsdc', dailyPerHost: 'maxDailyUsdcPerHost' } as const

let isWarned = false

/** @throws {ProtocolError} `invalid_field`; {TypeError} for a host that is none. */
export function readLimits(options: LimitOptions) {
  const { maxPaymentUsdc, maxDailyUsdc, maxDailyUsdcPerHost, allowedHosts, onPayment } = options
  const amounts = [maxPaymentUsdc, maxDailyUsdc, maxDailyUsdcPerHost]
  const [maxPayment, daily, dailyPerHost] = amounts.map((text) =>
    text === undefined ? undefined : parseUsdc(text),
  )
  const limits: DailyLimits = {
    ...(daily !== undefined && { daily }),
    ...(dailyPerHost !== undefined && { dailyPerHost }),
  }
  const hasDailyLimit = Object.keys(limits).length > 0
  return {
    maxPayment,
    daily: limits,
    allowedOrigins: allowedHosts && new Set(allowedHosts.map(parseAllowedHost)),
    onPayment,
    /** Undefined where nothing needs to be counted. */
    spending: options.spending ?? (hasDailyLimit ? createSpendingMemory() : undefined),
  }
}

/** Warns once in a process that nothing limits what a client spends. */
export function warnWithoutLimit(options: LimitOptions): void {
  const { maxPaymentUsdc, maxDailyUsdc, maxDailyUsdcPerHost, onPayment, warn = console.warn } = options
  const isLimited = [maxPaymentUsdc, maxDailyUsdc, maxDailyUsdcPerHost, onPayment].some(
    (limit) => limit !== undefined,
  )
  if (isLimited || isWarned) return
  isWarned = true
  warn(
    '[tollkeeper] This client pays any price, as far as its wallet reaches. Set maxPaymentUsdc and maxDailyUsdc, or onPayment.',
  )
}

/**
 * Signs a payment if every limit allows it.
 *
 * Its amount is counted before it is signed, and stays counted once the signature is returned: whoever sees the
 * signature can have it settled until `validBefore`, whatever it answers.
 *
 * @throws {ChallengeRefusedError} with nothing signed.
 */
export async function signWithin<Signed>(
  { maxPayment, daily, allowedOrigins, onPayment, spending }: Limits,
  proposed: ProposedPayment,
  deadline: Deadline,
  sign: () => Promise<Signed>,
): Promise<Signed> {
  const { url, host, amount } = proposed
  if (allowedOrigins && !allowedOrigins.has(originOf(new URL(url)))) {
    throw new ChallengeRefusedError(`${new URL(url).origin} is not among allowedHosts`, {
      code: 'host_not_allowed',
    })
  }
  if (maxPayment !== undefined && amount > maxPayment) throw overLimit(amount, 'maxPaymentUsdc', maxPayment)
  const reservation = await spending
    ?.reserve({ host: countedAs(host), amount, at: Date.now() }, daily)
    .catch((cause) => {
      throw new ChallengeRefusedError('what was spent could not be counted', {
        code: 'spending_store_failed',
        cause,
      })
    })
  if (reservation?.isReserved === false) {
    const { limit, spent } = reservation
    throw overLimit(amount, optionOf[limit], daily[limit] ?? 0n, `, of which ${formatUsdc(spent)} are spent`)
  }
  try {
    deadline.signal.throwIfAborted()
    await waitFor(ask(onPayment, proposed), deadline)
    const signed = await waitFor(sign(), deadline)
    deadline.signal.throwIfAborted()
    return signed
  } catch (error) {
    // Nobody is shown a signature. An amount that can't be given back stays counted.
    await reservation?.release().catch(() => {})
    throw error
  }
}

/** The host that a URL's payments are counted for. The seller chooses ports and schemes, so they share one limit. */
export function hostOf(url: string): string {
  return withoutDot(new URL(url).hostname)
}

/** One name for a host that has several: `127.0.0.1`, `[::1]` and `api.localhost` are `localhost`. Other names aren't resolved. */
function countedAs(host: string): string {
  const name = unmapped(host)
  const isThisMachine =
    /^(?:.+\.)?localhost$/.test(name) ||
    /^127(?:\.\d+){3}$/.test(name) ||
    ['0.0.0.0', '[::]', '[::1]'].includes(name)
  return isThisMachine ? 'localhost' : name
}

/** The IPv4 address of an IPv6-mapped one, which a URL spells `[::ffff:7f00:1]`. */
function unmapped(host: string): string {
  const [, high, low] = /^\[::ffff:([\da-f]+):([\da-f]+)\]$/.exec(host) ?? []
  if (high === undefined || low === undefined) return host
  return [high, low].flatMap((part) => [Number(`0x${part}`) >> 8, Number(`0x${part}`) & 255]).join('.')
}

async function ask(onPayment: LimitOptions['onPayment'], proposed: ProposedPayment): Promise<void> {
  let cause: unknown
  try {
    if ((await onPayment?.(proposed)) !== false) return
  } catch (error) {
    cause = error
  }
  const reason = cause instanceof Error ? `: ${cause.message}` : ''
  throw new ChallengeRefusedError(`onPayment refused it${reason}`, { code: 'payment_declined', cause })
}

function overLimit(amount: bigint, option: string, limit: bigint, spent = ''): ChallengeRefusedError {
  return new ChallengeRefusedError(
    `it asks for ${formatUsdc(amount)} USDC, ${option} is ${formatUsdc(limit)}${spent}`,
    { code: 'spending_limit_exceeded' },
  )
}

/** The origin of an entry of `allowedHosts`, as {@link originOf} spells it. @throws {TypeError} */
export function parseAllowedHost(host: string): string {
  const url = host.includes('://') ? host : `https://${host}`
  const parsed = parseUrl(url)
  if (!parsed || !/^https?:$/.test(parsed.protocol) || !/^[^/@*?#]+$/.test(host.replace(/^\w+:\/\//, ''))) {
    throw new TypeError(
      `allowedHosts takes hosts such as "api.example", or origins such as "http://127.0.0.1:8080", got ${host}`,
    )
  }
  return originOf(parsed)
}

/** The origin in one spelling: lower-case, without the scheme's own port, without the dot that may end a host. */
export function originOf({ protocol, hostname, port }: URL): string {
  return `${protocol}//${withoutDot(hostname)}:${port}`
}

function withoutDot(hostname: string): string {
  return hostname.replace(/\.+$/, '')
}
