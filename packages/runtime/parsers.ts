import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { MacaroonSecret } from '@tollkeeper/sdk/protocol/macaroon'
import { isNetworkName, type NetworkName, networkNames } from '@tollkeeper/sdk/protocol/networks'
import { isAddress } from 'viem'
import { readDatabaseUrl } from './databaseUrl.ts'
import { isMailAddress } from './mailAddress.ts'
import { ownCommand } from './ownCommand.ts'

/** A parser for the text of one environment variable. */
export type Parser<T> = {
  /** The expected value, for messages. */
  expected: string
  /** Returns the value, or undefined if the text is invalid. */
  parse: (text: string) => T | undefined
  /** Whether the text may contain a credential. If so, messages don't contain it. */
  isSecret?: boolean
  /** Describes what is wrong with an invalid text, without a credential in it. */
  explain?: (text: string) => string | undefined
}

export const text: Parser<string> = { expected: 'a text', parse: (value) => value }

export const secret: Parser<string> = { ...text, isSecret: true }

/** A bearer token that an operator chooses. */
export const token: Parser<string> = {
  ...matching('at least 16 printable characters without spaces', /^[!-~]{16,}$/),
  isSecret: true,
}

/** Maximum number of hours for which tabs of payers with earned credit may stay open; null: there are no tabs. */
export const tabHours: Parser<number | null> = {
  expected: 'on, off, or a number of hours from 1 to 24',
  parse(value) {
    if (value === 'off' || value === 'false') return null
    if (value === 'on' || value === 'true') return 1
    return /^([1-9]|1\d|2[0-4])$/.test(value) ? Number(value) : undefined
  },
}

/** Returns a parser for a text that meets a condition. */
function textWhere(expected: string, isFine: (value: string) => boolean, isSecret = false): Parser<string> {
  return { expected, parse: (value) => (isFine(value) ? value : undefined), isSecret }
}

export function matching(expected: string, pattern: RegExp): Parser<string> {
  return textWhere(expected, (value) => pattern.test(value))
}

export const sha256Hex: Parser<Buffer> = {
  expected: '64 hex digits',
  parse: (value) => (/^[0-9a-f]{64}$/i.test(value) ? Buffer.from(value, 'hex') : undefined),
}

export function integer(minimum: number, maximum: number = Number.MAX_SAFE_INTEGER): Parser<number> {
  return {
    expected: `a whole number from ${minimum} to ${maximum}`,
    parse(value) {
      const number = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN
      return number >= minimum && number <= maximum ? number : undefined
    },
  }
}

export const port: Parser<number> = { ...integer(0, 65_535), expected: 'a port number (0: any free one)' }

export function choice<const T extends readonly string[]>(...choices: T): Parser<T[number]> {
  return {
    expected: `one of ${choices.join(', ')}`,
    parse: (value) => choices.find((one) => one === value),
  }
}

export const flag: Parser<boolean> = {
  expected: 'on, off, true or false',
  parse: (value) => ({ on: true, true: true, off: false, false: false })[value],
}

/** Returns a parser for a decimal amount of USDC or USD, as base units. */
export function usdc(minimum = 0n): Parser<bigint> {
  const expected = 'a decimal amount with at most 6 decimals, like 12.50'
  return {
    expected: minimum === 0n ? expected : `${expected}, and at least ${Number(minimum) / 1e6}`,
    parse(value) {
      const amount = parseUsdc(value)
      return amount >= minimum ? amount : undefined
    },
  }
}

/**
 * Parses a name in the table of networks, which includes the networks of `NETWORKS_FILE`. The list of expected names is computed
 * when it is needed, because it is complete only after that file was read.
 */
export const networkName: Parser<NetworkName> = {
  get expected() {
    return `one of ${networkNames.join(', ')}`
  },
  parse: (value) => (isNetworkName(value) ? value : undefined),
}

export const networkNameList: Parser<NetworkName[]> = {
  ...list(networkName),
  get expected() {
    return `names among ${networkNames.join(', ')}, separated by commas`
  },
}

/** A network and a price in USDC base units. */
export const networkPrice: Parser<[network: NetworkName, price: bigint]> = {
  expected: 'a network and a price in USDC, like ethereum:0.5',
  parse(value) {
    const [name, price = ''] = value.split(':')
    return isNetworkName(name) ? [name, parseUsdc(price)] : undefined
  },
}

/** Unix seconds. */
export const time: Parser<number> = {
  expected: 'an ISO 8601 time like 2026-11-21T13:00:00Z',
  parse(value) {
    const milliseconds = /^\d{4}-\d\d-\d\dT/.test(value) ? Date.parse(value) : Number.NaN
    return Number.isNaN(milliseconds) ? undefined : Math.floor(milliseconds / 1000)
  },
}

/** A URL that may contain a password or an API key. */
export const url = textWhere('an http(s) URL', (value) => hasProtocol(value, /^https?:$/), true)

/** URLs by network. The key null has the URL for networks that aren't named. */
export const networkUrls: Parser<ReadonlyMap<NetworkName | null, string>> = {
  expected: 'an http(s) URL, or one for each network: base=https://…,polygon=https://…',
  parse(value) {
    const urls = new Map<NetworkName | null, string>()
    for (const part of value.split(/[\s,]+/).filter((one) => one !== '')) {
      const [, name, text = ''] = /^(?:([a-z][a-z0-9-]*)=)?(.*)$/.exec(part) ?? []
      const network = name === undefined ? null : name
      const parsed = url.parse(text)
      if ((network !== null && !isNetworkName(network)) || parsed === undefined || urls.has(network))
        return undefined
      urls.set(network, parsed)
    }
    return urls.size > 0 ? urls : undefined
  },
  isSecret: true,
}

export const smtpUrl = textWhere(
  'a URL like smtp://user:password@mail.example:587, or smtps://…',
  (value) => hasProtocol(value, /^smtps?:$/),
  true,
)

export const mailAddress = textWhere('a mail address', isMailAddress)

/** A URL that is published: without query, fragment or trailing slash. */
export const publicUrl: Parser<string> = {
  expected: 'an http(s) URL without query and fragment',
  parse(value) {
    if (!hasProtocol(value, /^https?:$/)) return undefined
    const { href, search, hash } = new URL(value)
    return search === '' && hash === '' ? href.replace(/\/+$/, '') : undefined
  },
}

export const traceUrl = textWhere(
  'an http(s) URL with {traceId} in it',
  (value) => value.includes('{traceId}') && hasProtocol(value, /^https?:$/),
)

/** A number from 0 to 1. */
export const ratio: Parser<number> = {
  expected: 'a number from 0 to 1, like 0.1',
  parse: (value) => (/^(?:0?\.\d{1,9}|0|1(?:\.0{1,9})?)$/.test(value) ? Number(value) : undefined),
}

export const databaseUrl: Parser<string> = {
  expected: 'postgres://user:password@host:port/name',
  parse: (value) => ('server' in readDatabaseUrl(value) ? value : undefined),
  isSecret: true,
  explain(value) {
    const read = readDatabaseUrl(value)
    return 'fault' in read ? read.fault : undefined
  },
}

/** A lower-case address. */
export const address: Parser<`0x${string}`> = {
  expected: 'an address, lower-case or with a correct checksum',
  parse: (value) =>
    isAddress(value, { strict: value !== value.toLowerCase() })
      ? (value.toLowerCase() as `0x${string}`)
      : undefined,
}

/** The order of secp256k1; a private key is less than it and greater than 0. */
const curveOrder = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n

/** A private key, with or without a leading 0x. */
export const privateKey: Parser<`0x${string}`> = {
  expected: 'a private key of 32 bytes in hex',
  parse(value) {
    const digits = value.replace(/^0x/, '')
    if (!/^[0-9a-fA-F]{64}$/.test(digits)) return undefined
    const number = BigInt(`0x${digits}`)
    return number > 0n && number < curveOrder ? `0x${digits}` : undefined
  },
  isSecret: true,
}

/** Returns a parser for a list with commas or white space between its items, without duplicates. */
export function list<T>(one: Parser<T>, expected = `${one.expected}, or several separated by commas`) {
  const parser: Parser<T[]> = {
    expected,
    parse(value) {
      const parts = value.split(/[\s,]+/).filter((part) => part !== '')
      const values = [...new Set(parts.map(one.parse))]
      return values.length > 0 && !values.includes(undefined) ? (values as T[]) : undefined
    },
    isSecret: one.isSecret === true,
  }
  return parser
}

const macaroonSecret: Parser<MacaroonSecret> = {
  expected: 'kid:hex with at least 32 bytes',
  parse(value) {
    const match = /^([A-Za-z0-9._-]{1,32}):([0-9a-fA-F]{64,128})$/.exec(value)
    return match === null
      ? undefined
      : { kid: match[1] as string, key: Buffer.from(match[2] as string, 'hex') }
  },
  isSecret: true,
}

const macaroonSecretList = list(macaroonSecret)

export const macaroonSecrets: Parser<MacaroonSecret[]> = {
  ...macaroonSecretList,
  expected: `${macaroonSecretList.expected}, with different key ids (create one with ${ownCommand} keys rotate macaroon)`,
  parse(value) {
    const secrets = macaroonSecretList.parse(value)
    return new Set(secrets?.map(({ kid }) => kid)).size === secrets?.length ? secrets : undefined
  },
}

function hasProtocol(value: string, pattern: RegExp): boolean {
  return URL.canParse(value) && pattern.test(new URL(value).protocol)
}
