import { type DestinationStream, type LevelWithSilent, type Logger, pino } from 'pino'

export type { Logger }

/** Fields that contain proof of payment or credentials. They are never logged, at any level. */
const secrets = [
  ...['authorization', 'macaroon', 'payloads', 'signature', 'receipt', 'raw'],
  ...['privateKey', 'key', 'apiKey', 'secret', 'databaseUrl', 'rpcUrls'],
]

/** Creates a structured log, one JSON object per line, for a process named `name`. */
export function createLogger(name: string, level: LevelWithSilent, destination?: DestinationStream): Logger {
  const options = {
    name,
    level,
    redact: { paths: secrets.flatMap((field) => [field, `*.${field}`]), censor: '[redacted]' },
    // Error messages of our dependencies contain their input: viem's have the RPC URL and the calldata with its signatures, and
    // Postgres' have the rejected row.
    serializers: { err: (error: unknown) => ({ message: describeError(error), stack: framesOf(error) }) },
  }
  return destination === undefined ? pino(options) : pino(options, destination)
}

/**
 * Returns the name and first line of an error and of its causes, and the node's own error text, without URLs and long byte
 * strings. The result may be shown in a log, in `/readyz` or on a terminal.
 */
export function describeError(error: unknown): string {
  const words: string[] = []
  let details = ''
  for (let cause: unknown = error; cause instanceof Error && words.length < 5; cause = cause.cause) {
    const short = 'shortMessage' in cause ? String(cause.shortMessage) : (cause.message.split('\n')[0] ?? '')
    words.push(`${cause.name}: ${short}`)
    // viem's message reports only that a request failed, so add its details.
    if ('details' in cause && typeof cause.details === 'string' && cause.details !== short)
      details = cause.details
  }
  if (details !== '') words.push(details.slice(0, 300))
  return scrub(words.length === 0 ? String(error) : words.join(' < ')).slice(0, 1_000)
}

/** Removes URLs, which may contain credentials, and byte strings, which may be signatures, from a text. */
export function scrub(text: string): string {
  return text.replaceAll(/[a-z][a-z+.-]*:\/\/\S+/gi, '<url>').replaceAll(/0x[0-9a-fA-F]{65,}/g, '<bytes>')
}

function framesOf(error: unknown): string[] {
  const lines = error instanceof Error ? (error.stack?.split('\n') ?? []) : []
  return lines.map((line) => line.trim()).filter((line) => line.startsWith('at '))
}
