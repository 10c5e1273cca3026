import { type DestinationStream, type LevelWithSilent, type Logger, pino } from 'pino'

export type { Logger }

/** Fields whose values are proof of payment or credentials: they never reach a log, at any level. */
const secrets = ['authorization', 'macaroon', 'payloads', 'signature', 'apiKey', 'receipt']

/** Structured logs, one JSON object a line, for a process named `name`. */
export function createLogger(name: string, level: LevelWithSilent, destination?: DestinationStream): Logger {
  const options = {
    name,
    level,
    redact: { paths: secrets.flatMap((field) => [field, `*.${field}`]), censor: '[redacted]' },
  }
  return destination === undefined ? pino(options) : pino(options, destination)
}
