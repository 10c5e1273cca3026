import { LeavingRedirect, withinOrigin } from '@tollkeeper/sdk/client/redirects'
import { textOf } from '@tollkeeper/sdk/protocol/fields'
import { type Command, InvalidArgumentError, Option } from 'commander'
import { CliError } from '../terminal/cliError.ts'
import { printable } from '../terminal/output.ts'

export type GatewayFlags = { gateway: string; apiKey?: string; provider?: string; json?: boolean }

export function withGateway(command: Command): Command {
  return command
    .addOption(
      new Option('--gateway <url>', 'address of the gateway')
        .env('TOLLKEEPER_GATEWAY_URL')
        .default('http://127.0.0.1:4020'),
    )
    .option('--json', 'print the answer as JSON')
}

/** For commands that only the provider itself may run. */
export function withKey(command: Command): Command {
  return withGateway(command)
    .addOption(
      new Option('--provider <id>', 'the provider').env('TOLLKEEPER_PROVIDER_ID').makeOptionMandatory(),
    )
    .addOption(
      new Option('--api-key <key>', 'its API key; in the variable no other user sees it').env(
        'TOLLKEEPER_API_KEY',
      ),
    )
}

export function ownPath({ provider = '' }: GatewayFlags, ...rest: string[]): string {
  const parts = [provider, ...rest].filter((part) => part !== '')
  return ['/providers', ...parts.map(encodeURIComponent)].join('/')
}

type Request = {
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  path: string
  /** Expected status of an answer with a body. */
  status?: number | undefined
  query?: Record<string, unknown>
  body?: unknown
  headers?: Record<string, string>
}

/** @throws {CliError} `gateway_unreachable`; `gateway_redirects` to another origin. */
export async function ask(
  { gateway, apiKey }: GatewayFlags,
  { method = 'POST', path, query = {}, headers = {}, body }: Request,
  signal?: AbortSignal,
): Promise<Response> {
  if (!URL.canParse(gateway)) throw new CliError('invalid_flags', `--gateway: expected a URL, got ${gateway}`)
  const url = new URL(path, gateway)
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, String(value))
  try {
    return await withinOrigin(fetch)(url, {
      method,
      headers: {
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...(apiKey && { authorization: `Bearer ${apiKey}` }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(signal && { signal }),
    })
  } catch (error) {
    if (error instanceof LeavingRedirect)
      throw new CliError(
        'gateway_redirects',
        `--gateway: ${error.message}, because the API key stays at ${url.origin}: give the address that it redirects to`,
        error,
      )
    throw new CliError(
      'gateway_unreachable',
      `The gateway at ${gateway} can't be reached; is it running?`,
      error,
    )
  }
}

/** @returns the answer; an empty object if it has no body */
export async function request(flags: GatewayFlags, asked: Request): Promise<Record<string, unknown>> {
  const response = await ask(flags, asked, AbortSignal.timeout(15_000))
  if (response.status === 204) return {}
  const { method = 'POST', status = method === 'POST' ? 201 : 200 } = asked
  if (response.status !== status) throw await refuse(flags, response)
  const answer: unknown = await response.json().catch(() => undefined)
  if (!isRecord(answer)) throw await refuse(flags, response)
  return answer
}

/** Says why an answer isn't the expected one: a problem (RFC 9457), or no gateway at that URL. */
export async function refuse({ gateway }: GatewayFlags, response: Response): Promise<CliError> {
  const answer: unknown = response.bodyUsed ? undefined : await response.json().catch(() => undefined)
  if (!isRecord(answer) || response.ok) {
    return new CliError('not_a_gateway', `${gateway} answered HTTP ${response.status} as no gateway does`)
  }
  const { title, detail, code } = answer
  const hint = response.status === 401 ? '; give the API key as TOLLKEEPER_API_KEY' : ''
  return new CliError(
    textOf(code) || `http_${response.status}`,
    `${printable(textOf(detail ?? title))}${hint}`,
  )
}

/**
 * Changes the resource at a path, in its current version. With `ifVersion`, nothing is changed that somebody
 * else has changed since that version.
 */
export async function update(
  flags: GatewayFlags & { ifVersion?: string },
  path: string,
  body: Record<string, unknown>,
): Promise<void> {
  if (Object.values(body).every((value) => value === undefined)) {
    throw new CliError('invalid_flags', 'There is nothing to change: see --help')
  }
  const ifMatch = flags.ifVersion === undefined ? '*' : `"${flags.ifVersion}"`
  printAnswer(await request(flags, { method: 'PATCH', path, headers: { 'if-match': ifMatch }, body }), flags)
}

/** Prints an answer as JSON, or a line for each field. A secret, which is shown only this once, is the last line, apart from the others. */
export function printAnswer(answer: Record<string, unknown>, { json }: Pick<GatewayFlags, 'json'>): void {
  const secret = ['apiKey', 'secret'].find((name) => name in answer)
  const lines = Object.entries(answer).map(([name, value]) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value)
    return `${name === secret ? '\n' : ''}${name.padEnd(12)} ${printable(text)}`
  })
  const sorted = lines.toSorted((a, b) => Number(a.startsWith('\n')) - Number(b.startsWith('\n')))
  process.stdout.write(`${json ? JSON.stringify(answer) : sorted.join('\n')}\n`)
  if (secret && !json) process.stderr.write(`\nKeep the ${secret} now: it is not shown again.\n`)
}

// The gateway parses it; here it is only passed on, never calculated with.
export function parsePrice(value: string): string {
  if (!/^\d+(\.\d{1,6})?$/.test(value)) throw new InvalidArgumentError('Expected decimal USDC like 0.01.')
  return value
}

export function parseVersion(value: string): string {
  if (!/^\d{1,9}$/.test(value)) throw new InvalidArgumentError('Expected a number.')
  return value
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
