import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { errorCodes, isErrorCode } from '@tollkeeper/sdk/protocol/errors'
import { isNetworkName, networkByName } from '@tollkeeper/sdk/protocol/networks'
import { formats, monthFormat, timeFormat } from './locale.ts'

/* Functions that format values. Amounts are base units or the gateway's decimal strings, never floats. */

/** Formats a decimal string without converting it to a float. */
function write(format: Intl.NumberFormat, decimal: string): string {
  return format.format(decimal as `${number}`)
}

/**
 * Formats base units as USDC: 1234500000 as "1,234.50". Shows at least cents, and no further trailing zeros.
 */
export function writeUsdc(amount: bigint): string {
  return write(formats().short, formatUsdc(amount))
}

/** Formats base units with all 6 decimals, for columns. */
export function writeExactUsdc(amount: bigint): string {
  return write(formats().exact, formatUsdc(amount))
}

/** Formats a gas token's amount with just enough decimals to tell when to refill, rounded down. */
export function writeEther(ether: string): string {
  return write(formats().truncated, ether)
}

export function writeCount(count: number | bigint): string {
  return formats().count.format(count)
}

/** Returns the label of a tick on a plot's axis of counts. A fraction has no label, because counts are whole numbers. */
export function writeWhole(count: number): string {
  return Number.isInteger(count) ? writeCount(count) : ''
}

/** Formats a count with its noun: "1 payment", "1,200 payments". */
export function countOf(count: number, one: string, many = `${one}s`): string {
  return `${writeCount(count)} ${count === 1 ? one : many}`
}

/** Formats a part of a whole as "98.2%". Rounds down, so that only the whole is 100%. */
export function writeShare(part: number, whole: number): string {
  if (whole === 0) return '–'
  const { share, whole: all } = formats()
  return part === whole ? all.format(1) : share.format(part / whole)
}

/** Formats a rate as a percentage. Receipts carry rates as decimal fractions. */
export function writeRate(fraction: string): string {
  return formats().rate.format(fraction as `${number}`)
}

/** Returns a part of a whole as a fraction from 0 to 1, for lengths on a screen. */
export function shareOf(part: bigint, whole: bigint): number {
  if (whole <= 0n) return 0
  const share = Number((part * 10_000n) / whole) / 10_000
  return Math.min(Math.max(share, 0), 1)
}

export function sumUsdc<T>(rows: readonly T[], read: (row: T) => string): bigint {
  return rows.reduce((sum, row) => sum + parseUsdc(read(row)), 0n)
}

/** Shortens an identifier: `0x71c7656e…976f`, `pay_…70867728950e`. */
export function shorten(text: string): string {
  const [prefix = ''] = /^(?:0x|[a-z]+_)/.exec(text) ?? []
  if (text.length <= prefix.length + 14) return text
  // Show the end, because our identifiers begin with the time, which is the same for all identifiers of one minute.
  return prefix.endsWith('_')
    ? `${prefix}…${text.slice(-12)}`
    : `${text.slice(0, prefix.length + 8)}…${text.slice(-4)}`
}

const minuteMs = 60_000
const hourMs = 60 * minuteMs
const dayMs = 24 * hourMs

/** Formats a countdown: `0:07`, `12:30`, `1:02:03`, `2 d 3 h`. */
export function writeCountdown(ms: number): string {
  const left = Math.max(0, Math.ceil(ms / 1000) * 1000)
  const two = (value: number) => String(Math.floor(value)).padStart(2, '0')
  if (left >= 2 * dayMs) return `${Math.floor(left / dayMs)} d ${Math.floor((left % dayMs) / hourMs)} h`
  const seconds = two((left % minuteMs) / 1000)
  if (left < hourMs) return `${Math.floor(left / minuteMs)}:${seconds}`
  return `${Math.floor(left / hourMs)}:${two((left % hourMs) / minuteMs)}:${seconds}`
}

/** Returns a duration in seconds, minutes, hours (below two days) or days. */
function inUnits(ms: number): [value: number, unit: string] {
  if (ms < minuteMs) return [ms / 1000, 's']
  if (ms < hourMs) return [ms / minuteMs, 'min']
  return ms < 2 * dayMs ? [ms / hourMs, 'h'] : [ms / dayMs, 'd']
}

/** Formats a duration: `40 s`, `1.5 min`, `2 h`. */
export function writeSeconds(seconds: number): string {
  const [value, unit] = inUnits(seconds * 1000)
  return `${formats().tenths.format(value)} ${unit}`
}

/** Formats a distance in time: `just now`, `4 min ago`, `in 3 h`. */
export function writeDistance(from: number, to: number): string {
  const size = Math.abs(to - from)
  if (size < 5_000) return 'just now'
  const [value, unit] = inUnits(size)
  const text = `${Math.floor(value)} ${unit}`
  return to < from ? `${text} ago` : `in ${text}`
}

/** Formats a time in the chosen zone, with the zone's name. */
export function writeTime(time: string | number): string {
  return timeFormat().format(new Date(time))
}

/** Formats the month `2026-11` as "November 2026". */
export function nameMonth(month: string): string {
  const time = Date.parse(`${month}-01T00:00:00Z`)
  return Number.isNaN(time) ? month : monthFormat().format(time)
}

/** Returns a network's name, marked if it uses testnet funds. */
export function nameNetwork(network: string): string {
  return `${network}${testMoneyNote(network)}`
}

/** Names a batch: `base #7`, `base-sepolia #7 (testnet funds)`. Each network counts its own batches. */
export function nameBatch(network: string, batchId: number): string {
  return `${network} #${batchId}${testMoneyNote(network)}`
}

function testMoneyNote(network: string): string {
  return isNetworkName(network) && networkByName(network).testnet ? ' (testnet funds)' : ''
}

/** @param path `tx/0x…` or `address/0x…` */
export function explorerLink(network: string, path: string): string | undefined {
  const explorer = isNetworkName(network) ? networkByName(network).explorerUrl : undefined
  return explorer && `${explorer}/${path}`
}

/** Explains a stable code in words. */
export function describeCode(code: string): string {
  return isErrorCode(code) ? errorCodes[code].title : code.replaceAll('_', ' ')
}

/** Formats a trigger's name: `high_value` as "High value". */
export function nameTrigger(trigger: string): string {
  return `${trigger.slice(0, 1).toUpperCase()}${trigger.slice(1).replaceAll('_', ' ')}`
}
