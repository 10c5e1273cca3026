import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { errorCodes, isErrorCode } from '@tollkeeper/sdk/protocol/errors'
import { isNetworkName, networks } from '@tollkeeper/sdk/protocol/networks'

/* Formatting. Money stays in base units or in the gateway's decimal strings. */

const exact = new Intl.NumberFormat('en', { minimumFractionDigits: 6 })
const short = new Intl.NumberFormat('en', { minimumFractionDigits: 2, maximumFractionDigits: 6 })
const truncated = new Intl.NumberFormat('en', { maximumFractionDigits: 6, roundingMode: 'trunc' })

/** Formats a decimal string without making a float of it. */
function write(format: Intl.NumberFormat, decimal: string): string {
  return format.format(decimal as `${number}`)
}

/** `1234.5` of a decimal with 6 decimals as "1,234.50": at least cents, and no zeros beyond. */
export function writeUsdc(amount: bigint): string {
  return write(short, formatUsdc(amount))
}

/** With all 6 decimals, for columns. */
export function writeExactUsdc(amount: bigint): string {
  return write(exact, formatUsdc(amount))
}

/** A gas token's amount with just enough decimals to tell when to refill, rounded down. */
export function writeEther(ether: string): string {
  return write(truncated, ether)
}

export function writeCount(count: number | bigint): string {
  return count.toLocaleString('en')
}

/** "1 payment", "1,200 payments". */
export function countOf(count: number, one: string, many = `${one}s`): string {
  return `${writeCount(count)} ${count === 1 ? one : many}`
}

/** A part of a whole as "98.2 %"; rounded down, so that only a whole is 100 %. */
export function writeShare(part: number, whole: number): string {
  if (whole === 0) return '–'
  return `${(Math.floor((part * 1_000) / whole) / 10).toFixed(part === whole ? 0 : 1)} %`
}

/** A decimal fraction, as receipts carry rates, in per cent. */
export function writeRate(fraction: string): string {
  return `${Number((Number(fraction) * 100).toFixed(2))} %`
}

/** A part of a whole, from 0 to 1, for lengths on a screen. */
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
  // Our identifiers begin with the time, which those of a minute share.
  return prefix.endsWith('_')
    ? `${prefix}…${text.slice(-12)}`
    : `${text.slice(0, prefix.length + 8)}…${text.slice(-4)}`
}

const minuteMs = 60_000
const hourMs = 60 * minuteMs
const dayMs = 24 * hourMs

/** `0:07`, `12:30`, `1:02:03`, `2 d 3 h`. */
export function writeCountdown(ms: number): string {
  const left = Math.max(0, Math.ceil(ms / 1000) * 1000)
  const two = (value: number) => String(Math.floor(value)).padStart(2, '0')
  if (left >= 2 * dayMs) return `${Math.floor(left / dayMs)} d ${Math.floor((left % dayMs) / hourMs)} h`
  const seconds = two((left % minuteMs) / 1000)
  if (left < hourMs) return `${Math.floor(left / minuteMs)}:${seconds}`
  return `${Math.floor(left / hourMs)}:${two((left % hourMs) / minuteMs)}:${seconds}`
}

/** A length of time in the largest unit that it fills. */
function inUnits(ms: number): [value: number, unit: string] {
  if (ms < minuteMs) return [ms / 1000, 's']
  if (ms < hourMs) return [ms / minuteMs, 'min']
  return ms < 2 * dayMs ? [ms / hourMs, 'h'] : [ms / dayMs, 'd']
}

/** `40 s`, `1.5 min`, `2 h`, of a time that took that long. */
export function writeSeconds(seconds: number): string {
  const [value, unit] = inUnits(seconds * 1000)
  return `${Number(value.toFixed(1))} ${unit}`
}

/** `just now`, `4 min ago`, `in 3 h`. */
export function writeDistance(from: number, to: number): string {
  const size = Math.abs(to - from)
  if (size < 5_000) return 'just now'
  const [value, unit] = inUnits(size)
  const text = `${Math.floor(value)} ${unit}`
  return to < from ? `${text} ago` : `in ${text}`
}

const dateTime = new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  year: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  timeZoneName: 'short',
})

/** In the reader's time zone, which is named. */
export function writeTime(time: string | number): string {
  return dateTime.format(new Date(time))
}

const monthAndYear = new Intl.DateTimeFormat('en-GB', { month: 'long', year: 'numeric', timeZone: 'UTC' })

/** "November 2026" of `2026-11`. */
export function nameMonth(month: string): string {
  const time = Date.parse(`${month}-01T00:00:00Z`)
  return Number.isNaN(time) ? month : monthAndYear.format(time)
}

/** A network's name, and if it is test money, that. */
export function nameNetwork(network: string): string {
  return `${network}${testMoneyNote(network)}`
}

/** `base #7`, `base-sepolia #7 (test money)`: each network counts its own batches. */
export function nameBatch(network: string, batchId: number): string {
  return `${network} #${batchId}${testMoneyNote(network)}`
}

function testMoneyNote(network: string): string {
  return isNetworkName(network) && networks[network].testnet ? ' (test money)' : ''
}

/** @param path `tx/0x…` or `address/0x…` */
export function explorerLink(network: string, path: string): string | undefined {
  const explorer = isNetworkName(network) ? networks[network].explorerUrl : undefined
  return explorer && `${explorer}/${path}`
}

/** Explains a stable code in words. */
export function describeCode(code: string): string {
  return isErrorCode(code) ? errorCodes[code].title : code.replaceAll('_', ' ')
}

/** `high_value` as "High value". */
export function nameTrigger(trigger: string): string {
  return `${trigger.slice(0, 1).toUpperCase()}${trigger.slice(1).replaceAll('_', ' ')}`
}
