import pino, { type Logger } from 'pino'

export type { Logger }

/** JSON lines with ids of payments, batches and wallets; what could be a secret is cut out wherever it turns up. */
export function createLogger(level: string): Logger {
  return pino({
    name: 'keeper',
    level,
    redact: {
      paths: [
        'signature',
        'raw',
        'privateKey',
        'key',
        'apiKey',
        'url',
        '*.signature',
        '*.raw',
        '*.privateKey',
        '*.key',
      ],
      remove: true,
    },
    serializers: {
      // viem's messages repeat the request: RPC URL, calldata and all.
      err: (error: unknown) => describeError(error),
    },
  })
}

/** Name, code and first line of an error and its causes, without URLs and long byte strings. */
export function describeError(error: unknown): string {
  const words: string[] = []
  for (let cause: unknown = error; cause instanceof Error && words.length < 5; cause = cause.cause) {
    const short = 'shortMessage' in cause ? String(cause.shortMessage) : (cause.message.split('\n')[0] ?? '')
    words.push(`${cause.name}: ${short}`)
  }
  if (words.length === 0) words.push(String(error))
  return words
    .join(' < ')
    .replaceAll(/[a-z]+:\/\/\S+/g, '<url>')
    .replaceAll(/0x[0-9a-fA-F]{65,}/g, '<bytes>')
    .slice(0, 1_000)
}
