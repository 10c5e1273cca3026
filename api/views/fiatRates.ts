import { readFile, stat } from 'node:fs/promises'
import { Refusal } from '../http/refusal.ts'

// Fiat values are computed from decimal rates with bigints. A rate has at most 12 decimals.

const decimals = 12
const unit = 10n ** BigInt(decimals)
/** Maximum age in days of a rate that replaces a day's missing rate. No rates are published on weekends and holidays. */
const maxAgeDays = 7
const dayMs = 86_400_000

/** The price of 1 USDC in a currency on a UTC day. */
export type FiatRate = {
  currency: string
  /** Day of the rate, up to a week before the requested day. */
  date: string
  /** The decimal rate as it is written in the file. */
  rate: string
  source: string
  /** The rate times 10^12. */
  scaled: bigint
}

export type FiatRates = {
  /** @param date a UTC day. @returns null if no rate is known. */
  rateOn(currency: string, date: string): FiatRate | null
}

/** Rates for a gateway without a file of rates. */
export const noFiatRates: FiatRates = { rateOn: () => null }

/**
 * Parses a file of rates: a header `date,currency,rate,source`, then a line per day and currency. The source is everything after the third
 * comma.
 *
 * @throws {Error} that names the line and what was expected.
 */
export function parseFiatRates(text: string): FiatRates {
  const [header, ...lines] = text.replace(/^\uFEFF/, '').split(/\r?\n/)
  if (header?.trim() !== 'date,currency,rate,source')
    throw new Error('line 1: expected date,currency,rate,source')
  const rates = new Map<string, FiatRate>()
  for (const [index, line] of lines.entries()) {
    if (line.trim() === '') continue
    const rate = parseLine(line, index + 2)
    rates.set(`${rate.currency} ${rate.date}`, rate)
  }
  return {
    rateOn(currency, date) {
      const day = Date.parse(date)
      for (let age = 0; age <= maxAgeDays; age++) {
        const earlier = new Date(day - age * dayMs).toISOString().slice(0, 10)
        const rate = rates.get(`${currency} ${earlier}`)
        if (rate) return rate
      }
      return null
    },
  }
}

function parseLine(line: string, number: number): FiatRate {
  const [, date = '', currency = '', rate = '', rest = ''] =
    /^([^,]*),([^,]*),([^,]*)(?:,(.*))?$/.exec(line.trim()) ?? []
  const source = rest.trim().replace(/^"(.*)"$/, '$1')
  const isDay = /^\d{4}-\d\d-\d\d$/.test(date) && new Date(date).toJSON()?.startsWith(date)
  if (!isDay) throw new Error(`line ${number}: expected a date like 2026-11-30`)
  if (!/^[A-Z]{3}$/.test(currency)) throw new Error(`line ${number}: expected a currency code like EUR`)
  const match = /^(\d{1,12})(?:\.(\d{1,12}))?$/.exec(rate)
  if (!match) throw new Error(`line ${number}: expected a decimal rate like 0.9213, with at most 12 decimals`)
  if (source === '') throw new Error(`line ${number}: expected a source`)
  const scaled = BigInt(`${match[1]}${(match[2] ?? '').padEnd(decimals, '0')}`)
  if (scaled === 0n) throw new Error(`line ${number}: expected a rate above 0`)
  return { currency, date, rate, source, scaled }
}

/** Converts an amount in USDC base units to millionths of a currency, rounded to the nearest; halves are rounded away from zero. */
export function convert(amount: bigint, { scaled }: FiatRate): bigint {
  const magnitude = amount < 0n ? -amount : amount
  const rounded = (magnitude * scaled + unit / 2n) / unit
  return amount < 0n ? -rounded : rounded
}

/** Opens a file of rates. The file is read when rates are requested, and read again after it has changed. */
export function openFiatRates(path: string | null): () => Promise<FiatRates> {
  let known: { version: string; rates: FiatRates } | undefined
  return async () => {
    if (path === null) return noFiatRates
    try {
      const { mtimeMs, size } = await stat(path)
      const version = `${mtimeMs} ${size}`
      if (known?.version !== version) known = { version, rates: parseFiatRates(await readFile(path, 'utf8')) }
      return known.rates
    } catch (error) {
      throw new Refusal(
        'dependency_unavailable',
        `The operator's file of fiat rates can't be read: ${describe(error)}`,
      )
    }
  }
}

/** Returns an error's message without the file's path, which providers don't need to see. */
function describe(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException
  return code === undefined ? message : code
}
