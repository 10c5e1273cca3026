import { ConfigError, type NetworkSettings, parseNetworkSettings } from '#chain/networkSettings'
import { examineChain } from './examineChain.ts'
import { examineDatabase } from './examineDatabase.ts'
import { examineGas } from './examineGas.ts'

export type Check = {
  name: string
  /** `warn`: works, but needs attention. `skip`: not applicable. */
  status: 'ok' | 'warn' | 'fail' | 'skip'
  found: string
  /** What to do about it. */
  advice?: string
}

export type Environment = Record<string, string | undefined>

/** Checks everything that the environment names; one check that fails does not stop the others. */
export async function* examine(env: Environment): AsyncGenerator<Check> {
  let networks: NetworkSettings[] = []
  try {
    networks = parseNetworkSettings(env)
    yield {
      name: 'configuration',
      status: 'ok',
      found: networks.map(({ network }) => network.name).join(', '),
    }
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    yield {
      name: 'configuration',
      status: 'fail',
      found: error.message,
      advice: '.env.example says what is expected',
    }
  }
  const heads = new Map<number, bigint>()
  for (const settings of networks) yield* examineChain(settings, heads)
  yield* examineDatabase(env, networks, heads)
  yield* examineGas(env, networks)
}

/** A short message for an error, without URLs, which may hold credentials. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  // viem's `details` is the server's message; postgres.js and Node give a code.
  const { shortMessage, details, code } = error as Error &
    Partial<Record<'shortMessage' | 'details' | 'code', string>>
  const [line = ''] = (shortMessage === undefined ? error.message : `${shortMessage} ${details ?? ''}`).split(
    '\n',
  )
  return `${line.trim()}${code === undefined || line.includes(code) ? '' : ` (${code})`}` || error.name
}
