import { type DestinationStream, type LevelWithSilent, type Logger, pino } from 'pino'
import { describeError } from '#process/log'

export type { Logger }

/** Fields whose values are proof of payment or credentials: they never reach a log, at any level. */
const secrets = ['authorization', 'macaroon', 'payloads', 'signature', 'apiKey', 'receipt']

/** Structured logs, one JSON object a line, for a process named `name`. */
export function createLogger(name: string, level: LevelWithSilent, destination?: DestinationStream): Logger {
  const options = {
    name,
    level,
    redact: { paths: secrets.flatMap((field) => [field, `*.${field}`]), censor: '[redacted]' },
    // Messages of our dependencies repeat what they were given: viem's the RPC URL and the calldata with its signatures,
    // Postgres' the row that it refused.
    serializers: { err: (error: unknown) => ({ message: describeError(error), stack: framesOf(error) }) },
  }
  return destination === undefined ? pino(options) : pino(options, destination)
}

function framesOf(error: unknown): string[] {
  const lines = error instanceof Error ? (error.stack?.split('\n') ?? []) : []
  return lines.map((line) => line.trim()).filter((line) => line.startsWith('at '))
}
