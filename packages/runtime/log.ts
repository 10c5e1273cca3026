import { type DestinationStream, type LevelWithSilent, type Logger, pino } from 'pino'

export type { Logger }

/** Fields with proof of payment or credentials, which never reach a log, at any level. */
const secrets = [
  ...['authorization', 'macaroon', 'payloads', 'signature', 'receipt', 'raw'],
  ...['privateKey', 'key', 'apiKey', 'secret', 'databaseUrl', 'rpcUrls'],
]

/** Structured logs, one JSON object a line, for a process named `name`. */
export function createLogger(name: string, level: LevelWithSilent, destination?: DestinationStream): Logger {
  const options = {
    name,
    level,
    redact: { paths: secrets.flatMap((field) => [field, `*.${field}`]), censor: '[redacted]' },
    // Our dependencies' messages repeat their input: viem's have the RPC URL and the calldata with its signatures, Postgres'
    // the refused row.
    serializers: { err: (error: unknown) => ({ message: describeError(error), stack: framesOf(error) }) },
  }
  return destination === undefined ? pino(options) : pino(options, destination)
}

/** Name and first line of an error and its causes, and a node's own words, without URLs and long byte strings: fit for a log, a probe, a terminal. */
export function describeError(error: unknown): string {
  const words: string[] = []
  let details = ''
  for (let cause: unknown = error; cause instanceof Error && words.length < 5; cause = cause.cause) {
    const short = 'shortMessage' in cause ? String(cause.shortMessage) : (cause.message.split('\n')[0] ?? '')
    words.push(`${cause.name}: ${short}`)
    // viem says only that a request failed.
    if ('details' in cause && typeof cause.details === 'string' && cause.details !== short)
      details = cause.details
  }
  if (details !== '') words.push(details.slice(0, 300))
  return scrub(words.length === 0 ? String(error) : words.join(' < ')).slice(0, 1_000)
}

/** Takes URLs, which may hold credentials, and byte strings, which may be signatures, out of a text. */
export function scrub(text: string): string {
  return text.replaceAll(/[a-z][a-z+.-]*:\/\/\S+/gi, '<url>').replaceAll(/0x[0-9a-fA-F]{65,}/g, '<bytes>')
}

function framesOf(error: unknown): string[] {
  const lines = error instanceof Error ? (error.stack?.split('\n') ?? []) : []
  return lines.map((line) => line.trim()).filter((line) => line.startsWith('at '))
}
