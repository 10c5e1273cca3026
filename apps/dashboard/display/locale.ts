import { readZone } from './zone.ts'

/* Formats numbers and times as the browser's languages do. The text of the pages is English. */

type Formats = {
  exact: Intl.NumberFormat
  short: Intl.NumberFormat
  truncated: Intl.NumberFormat
  count: Intl.NumberFormat
  tenths: Intl.NumberFormat
  /** Round down, so that only the whole is 100%. */
  share: Intl.NumberFormat
  whole: Intl.NumberFormat
  rate: Intl.NumberFormat
  change: Intl.NumberFormat
  decimalSeparator: string
  groupSeparator: string
}

function languages(): readonly string[] | undefined {
  const asked = globalThis.navigator?.languages
  try {
    return asked === undefined ? undefined : Intl.getCanonicalLocales([...asked])
  } catch {
    // One of the languages is not a valid tag, so use the default language.
    return undefined
  }
}

function createFormats(): Formats {
  const create = (options: Intl.NumberFormatOptions) =>
    new Intl.NumberFormat(languages() as string[] | undefined, options)
  const separators = create({}).formatToParts(1_234_567.8)
  const find = (type: string, otherwise: string) =>
    separators.find((part) => part.type === type)?.value ?? otherwise
  return {
    exact: create({ minimumFractionDigits: 6 }),
    short: create({ minimumFractionDigits: 2, maximumFractionDigits: 6 }),
    truncated: create({ maximumFractionDigits: 6, roundingMode: 'trunc' }),
    count: create({}),
    tenths: create({ maximumFractionDigits: 1 }),
    share: create({
      style: 'percent',
      minimumFractionDigits: 1,
      maximumFractionDigits: 1,
      roundingMode: 'trunc',
    }),
    whole: create({ style: 'percent' }),
    rate: create({ style: 'percent', maximumFractionDigits: 2 }),
    change: create({ style: 'percent', maximumFractionDigits: 1, signDisplay: 'exceptZero' }),
    decimalSeparator: find('decimal', '.'),
    groupSeparator: find('group', ','),
  }
}

const dateTime = {
  day: 'numeric',
  month: 'short',
  year: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  timeZoneName: 'short',
} as const

/** Caches the object that `create` returns. Creates it again when `keyOf` returns another value: other languages, or another zone. */
function kept<T>(create: (key: string) => T, keyOf: () => string): () => T {
  let last: { key: string; made: T } | undefined
  return () => {
    const key = keyOf()
    if (last?.key !== key) last = { key, made: create(key) }
    return last.made
  }
}

const language = () => String(globalThis.navigator?.languages)

/** Returns the number formats of the browser's languages. */
export const formats = kept(createFormats, language)

/** Returns the format of times in the chosen zone, with the zone's name. */
export const timeFormat = kept(
  () => createDateFormat({ ...dateTime, ...zoneOption() }),
  () => `${language()} ${readZone()}`,
)

/** Returns a short format of times, without year, seconds and zone. */
export const briefTimeFormat = kept(
  () =>
    createDateFormat({
      day: 'numeric',
      month: 'short',
      hour: '2-digit',
      minute: '2-digit',
      ...zoneOption(),
    }),
  () => `${language()} ${readZone()}`,
)

/** Returns the format of months, in UTC. */
export const monthFormat = kept(
  () => createDateFormat({ month: 'long', year: 'numeric', timeZone: 'UTC' }),
  language,
)

function zoneOption() {
  return readZone() === 'utc' ? { timeZone: 'UTC' } : {}
}

/** Returns a format of dates in the browser's languages, in the browser's own zone unless `options` names one. */
export function createDateFormat(options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  return new Intl.DateTimeFormat(languages() as string[] | undefined, options)
}

/** Returns a decimal such as "0.05" as this browser's user would type it, without grouping. */
export function writeInput(decimal: string): string {
  return decimal.replace('.', formats().decimalSeparator)
}

/**
 * Returns a typed decimal with a point, as the gateway expects it. Accepts both point and comma, and grouping of thousands. Any
 * other text is returned unchanged, and the gateway rejects it with a reason.
 *
 * @returns null for an ambiguous text: "1,250" is 1250 where commas group thousands, and 1.25 elsewhere
 */
export function readDecimal(typed: string): string | null {
  const text = typed.replace(/(?<=\d)[\s'’](?=\d{3})/g, '')
  const [, whole = '', separator, fraction = ''] = /^(\d*)([.,])(\d+)$/.exec(text) ?? []
  if (separator !== undefined) {
    const isGrouped = /^[1-9]\d{0,2}$/.test(whole) && fraction.length === 3
    if (isGrouped && separator === formats().groupSeparator) return null
    return `${whole || '0'}.${fraction}`
  }
  const grouped = /^\d{1,3}(?:([.,])\d{3})(?:\1\d{3})*(?:(?!\1)[.,](\d+))?$/.exec(text)
  if (grouped === null) return text
  const [all, , cents] = grouped
  const units = (cents === undefined ? all : all.slice(0, -cents.length - 1)).replace(/[.,]/g, '')
  return cents === undefined ? units : `${units}.${cents}`
}
