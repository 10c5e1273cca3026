import type { Address } from 'viem'
import { formatUsdc, parseDollars } from '../protocol/amount.ts'
import { parseUrl } from '../protocol/fields.ts'
import type { PassTerms } from '../protocol/passTerms.ts'
import { ChallengeRefusedError } from './errors.ts'
import { createSpendingMemory, type DailyLimits, type Overrun, type SpendingStore } from './spending.ts'
import { type Deadline, waitFor } from './transport.ts'

/** A buyer's limits on spending. Amounts are decimal USDC, such as `'0.10'` or `'$0.10'`, including the fee. */
export type PaymentLimits = {
  /** Maximum price of one request. Default: no limit. */
  perPayment?: string | number
  /** Maximum sum within any 24 hours. Default: no limit. */
  perDay?: string | number
  /**
   * Maximum sum per host within any 24 hours, over all ports of the host. All names of this machine count as one host. Default: no limit.
   */
  perDayAndHost?: string | number
  /**
   * Sellers that may be paid. `api.example` means `https://api.example`; list other ports (`api.example:8443`) and `http://api.example` explicitly.
   * Default: all sellers. Free requests may go to any host.
   */
  hosts?: readonly string[]
  /**
   * Called before each payment is signed. If it returns `false` or throws, the client refuses the payment (`payment_declined`). The amount is counted
   * before the call, and released after a refusal.
   */
  onPayment?: (payment: ProposedPayment) => unknown
}

/** Options that limit what a buyer spends. */
export type LimitOptions = {
  /** Limits on the price, the sums and the recipients of payments. Default: no limits, and a warning. */
  limits?: PaymentLimits
  /** Receives warnings, for example that a client has no limits. Default: `console.warn`. */
  warn?: (message: string) => void
}

/** A payment that a challenge requests and that the limits allow. */
export type ProposedPayment = {
  /** The requested URL. */
  url: string
  /** Host of the requested URL: lower-case, without port. */
  host: string
  /** USDC base units, including the fee. */
  amount: bigint
  network: string
  /** The provider's wallet, from the challenge. */
  payTo: Address
  /** The seller's description. */
  description: string
  requestId: string
  /** The pass that the payment buys in addition to the request, if any. */
  pass?: PassTerms
}

export type Limits = ReturnType<typeof readLimits>

/** The names of all limits. An unknown name is an error, because a misspelled limit would limit nothing. */
const limitNames: ReadonlySet<string> = new Set<keyof PaymentLimits>([
  'perPayment',
  'perDay',
  'perDayAndHost',
  'hosts',
  'onPayment',
])

let isWarned = false

/**
 * Reads a buyer's limits.
 *
 * @param spending counts the daily sums. Default: the client's own memory, if a daily limit is set.
 * @throws {ProtocolError} `invalid_field` for an invalid amount.
 * @throws {TypeError} for an invalid host and for an unknown limit.
 */
export function readLimits({ limits = {} }: LimitOptions, spending?: SpendingStore) {
  for (const name of Object.keys(limits)) {
    if (limitNames.has(name)) continue
    throw new TypeError(`limits has no field ${name}. Known fields: ${[...limitNames].join(', ')}`)
  }
  const { perPayment, hosts, onPayment } = limits
  const [perDay, perDayAndHost] = [readAmount(limits.perDay), readAmount(limits.perDayAndHost)]
  const daily: DailyLimits = {
    ...(perDay !== undefined && { perDay }),
    ...(perDayAndHost !== undefined && { perDayAndHost }),
  }
  const hasDailyLimit = Object.keys(daily).length > 0
  return {
    perPayment: readAmount(perPayment),
    daily,
    allowedOrigins: hosts && new Set(hosts.map(parseAllowedHost)),
    onPayment,
    /** Undefined if there is no daily limit, because no sum is then needed. */
    spending: spending ?? (hasDailyLimit ? createSpendingMemory() : undefined),
  }
}

function readAmount(amount: string | number | undefined): bigint | undefined {
  return amount === undefined ? undefined : parseDollars(amount)
}

/** Warns once per process that the client has no spending limit. */
export function warnWithoutLimit({ limits = {}, warn = console.warn }: LimitOptions): void {
  const { perPayment, perDay, perDayAndHost, onPayment } = limits
  const isLimited = [perPayment, perDay, perDayAndHost, onPayment].some((limit) => limit !== undefined)
  if (isLimited || isWarned) return
  isWarned = true
  warn(
    '[tollkeeper] This client pays any price, up to the balance of its wallet. Set limits: { perPayment, perDay }, or limits.onPayment.',
  )
}

/** A maximum price for one call, in base units, and the name of the option that sets it. */
export type OwnLimit = { amount: bigint; option: string }

/**
 * Checks a price against the limits that need no counting: the seller's host, the price of one payment, and the call's own limit.
 *
 * @throws {ChallengeRefusedError} `host_not_allowed`, `spending_limit_exceeded`
 */
export function requireAllowed(
  { perPayment, allowedOrigins }: Pick<Limits, 'perPayment' | 'allowedOrigins'>,
  { url, amount }: Pick<ProposedPayment, 'url' | 'amount'>,
  own?: OwnLimit,
): void {
  if (allowedOrigins && !allowedOrigins.has(originOf(new URL(url)))) {
    throw new ChallengeRefusedError(`${new URL(url).origin} is not among limits.hosts`, {
      code: 'host_not_allowed',
    })
  }
  if (perPayment !== undefined && amount > perPayment)
    throw overLimit(amount, 'limits.perPayment', perPayment)
  if (own && amount > own.amount) throw overLimit(amount, own.option, own.amount)
}

/**
 * Checks a price against all limits except `onPayment`. Doesn't count it.
 *
 * @throws {ChallengeRefusedError}
 */
export async function requireRoom(limits: Limits, proposed: ProposedPayment, own?: OwnLimit): Promise<void> {
  requireAllowed(limits, proposed, own)
  const { daily, spending } = limits
  const { host, amount } = proposed
  const overrun = await spending
    ?.check({ host: countedAs(host), amount, at: Date.now() }, daily)
    .catch(notCounted)
  if (overrun) throw overDailyLimit(amount, overrun, daily)
}

/**
 * Signs a payment if all limits allow it.
 *
 * The amount is counted before the payment is signed. It stays counted once the signature has been sent, because anyone who has the signature can
 * settle it until `validBefore`, regardless of the response.
 *
 * @param own the call's own limit.
 * @returns the signature, and a function that releases the amount if the signature is never sent.
 * @throws {ChallengeRefusedError} if nothing was signed.
 */
export async function signWithin<Signed>(
  limits: Limits,
  proposed: ProposedPayment,
  deadline: Deadline,
  sign: () => Promise<Signed>,
  own?: OwnLimit,
): Promise<{ signed: Signed; release: () => Promise<void> }> {
  requireAllowed(limits, proposed, own)
  const { daily, onPayment, spending } = limits
  const { host, amount } = proposed
  const reservation = await spending
    ?.reserve({ host: countedAs(host), amount, at: Date.now() }, daily)
    .catch(notCounted)
  if (reservation?.isReserved === false) throw overDailyLimit(amount, reservation, daily)
  // Called only if the signature is never sent. If the store fails to release the amount, the amount stays counted.
  const release = async () => reservation?.release().catch(() => {})
  try {
    deadline.signal.throwIfAborted()
    await waitFor(ask(onPayment, proposed), deadline)
    const signed = await waitFor(sign(), deadline)
    deadline.signal.throwIfAborted()
    return { signed, release }
  } catch (error) {
    await release()
    throw error
  }
}

function notCounted(cause: unknown): never {
  throw new ChallengeRefusedError('the store of the daily sums failed, so the payment could not be counted', {
    code: 'spending_store_failed',
    cause,
  })
}

/** Returns the host under which a URL's payments are counted. All ports and schemes of a host share one limit, because the seller chooses them. */
export function hostOf(url: string): string {
  return withoutDot(new URL(url).hostname)
}

/**
 * Returns one name for a host that has several: `127.0.0.1`, `[::1]` and `api.localhost` become `localhost`. Other names aren't resolved in DNS.
 */
function countedAs(host: string): string {
  const name = unmapped(host)
  const isThisMachine =
    /^(?:.+\.)?localhost$/.test(name) ||
    /^127(?:\.\d+){3}$/.test(name) ||
    ['0.0.0.0', '[::]', '[::1]'].includes(name)
  return isThisMachine ? 'localhost' : name
}

/** Returns the IPv4 address in an IPv4-mapped IPv6 address, which a URL writes as `[::ffff:7f00:1]`. Returns any other host unchanged. */
function unmapped(host: string): string {
  const [, high, low] = /^\[::ffff:([\da-f]+):([\da-f]+)\]$/.exec(host) ?? []
  if (high === undefined || low === undefined) return host
  return [high, low].flatMap((part) => [Number(`0x${part}`) >> 8, Number(`0x${part}`) & 255]).join('.')
}

async function ask(onPayment: PaymentLimits['onPayment'], proposed: ProposedPayment): Promise<void> {
  let cause: unknown
  try {
    if ((await onPayment?.(proposed)) !== false) return
  } catch (error) {
    cause = error
  }
  const reason = cause instanceof Error ? `: ${cause.message}` : ''
  throw new ChallengeRefusedError(`limits.onPayment refused the payment${reason}`, {
    code: 'payment_declined',
    cause,
  })
}

function overLimit(amount: bigint, option: string, limit: bigint, spent = ''): ChallengeRefusedError {
  return new ChallengeRefusedError(
    `the seller asks for ${formatUsdc(amount)} USDC, but ${option} is ${formatUsdc(limit)}${spent}`,
    { code: 'spending_limit_exceeded' },
  )
}

function overDailyLimit(
  amount: bigint,
  { limit, spent }: Overrun,
  daily: DailyLimits,
): ChallengeRefusedError {
  const rest = `, of which ${formatUsdc(spent)} is already spent`
  return overLimit(amount, `limits.${limit}`, daily[limit] ?? 0n, rest)
}

/** Returns the origin of an entry of `hosts`, in the form of {@link originOf}. @throws {TypeError} */
export function parseAllowedHost(host: string): string {
  const url = host.includes('://') ? host : `https://${host}`
  const parsed = parseUrl(url)
  if (!parsed || !/^https?:$/.test(parsed.protocol) || !/^[^/@*?#]+$/.test(host.replace(/^\w+:\/\//, ''))) {
    throw new TypeError(
      `limits.hosts takes hosts such as "api.example", or origins such as "http://127.0.0.1:8080", got ${host}`,
    )
  }
  return originOf(parsed)
}

/** Returns the origin in one spelling: lower-case, without the scheme's default port, and without a dot at the end of the host. */
export function originOf({ protocol, hostname, port }: URL): string {
  return `${protocol}//${withoutDot(hostname)}:${port}`
}

function withoutDot(hostname: string): string {
  return hostname.replace(/\.+$/, '')
}
