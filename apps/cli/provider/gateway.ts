import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { BaseError, isErrorCode } from '@tollkeeper/sdk/protocol/errors'
import { isRecord, textOf } from '@tollkeeper/sdk/protocol/fields'
import { GatewayError } from '@tollkeeper/sdk/provider/errors'
import { createTransport } from '@tollkeeper/sdk/provider/transport'
import { type Command, InvalidArgumentError, Option } from 'commander'
import {
  defaultProfile,
  type Profile,
  type Profiles,
  profilesPath,
  readProfiles,
  sameGateway,
} from '../profiles/profiles.ts'
import { CliError } from '../terminal/cliError.ts'
import { type JsonFlag, jsonOption } from '../terminal/options.ts'
import { printable, printJson, printLines } from '../terminal/output.ts'

export type GatewayFlags = {
  gateway: string
  /** The key from the flag or the variable. */
  apiKey?: string
  /** Name of the profile that is used if there is no `apiKey`. */
  profile?: Profile & { name: string }
  provider?: string
  json?: boolean
}

/** The gateway that commands use if none is given. */
export const defaultGateway = 'http://127.0.0.1:4020'

/** Adds the options of every command that calls a gateway. @param options.hasJson whether the command prints data. */
export function withGateway(command: Command, { hasJson = true } = {}): Command {
  if (hasJson) command.addOption(jsonOption())
  return command
    .addOption(
      new Option('--gateway <url>', `URL of the gateway (default: the profile's, or ${defaultGateway})`).env(
        'TOLLKEEPER_GATEWAY_URL',
      ),
    )
    .addOption(
      new Option('--profile <name>', 'profile that `tollkeeper login` stored (default: "default")').env(
        'TOLLKEEPER_PROFILE',
      ),
    )
    .hook('preAction', applyProfile)
}

/** Adds the options of commands that only a provider itself can run. */
export function withKey(command: Command, options?: Parameters<typeof withGateway>[1]): Command {
  return withGateway(command, options)
    .addOption(
      new Option('--provider <id>', "provider id (default: the profile's)").env('TOLLKEEPER_PROVIDER_ID'),
    )
    .addOption(
      new Option(
        '--api-key <key>',
        "the provider's API key (default: the profile's). Prefer the variable: other users can see flags",
      ).env('TOLLKEEPER_API_KEY'),
    )
    .hook('preAction', (command) => {
      if (!command.opts().provider)
        throw new CliError(
          'invalid_flags',
          '--provider: required. Run `tollkeeper login`, set TOLLKEEPER_PROVIDER_ID, or give the flag',
        )
    })
}

/** Completes the flags. Values that neither a flag nor a variable sets are taken from the profile, or else from the defaults. */
async function applyProfile(command: Command): Promise<void> {
  const { gateway, provider, profile: name = defaultProfile } = command.opts()
  const isNamed = command.getOptionValueSource('profile') !== undefined
  const profiles = await readProfiles(profilesPath(process.env))
  const profile = Object.hasOwn(profiles, name) ? profiles[name] : undefined
  if (isNamed && profile === undefined)
    throw new CliError(
      'unknown_profile',
      `--profile: there is no profile ${JSON.stringify(name)}. ${describeKnown(profiles)}`,
    )
  command.setOptionValue('profile', profile && { ...profile, name })
  command.setOptionValue('gateway', gateway || profile?.gatewayUrl || defaultGateway)
  if (!provider && profile !== undefined) command.setOptionValue('provider', profile.providerId)
}

function describeKnown(profiles: Profiles): string {
  const names = Object.keys(profiles)
  return names.length === 0 ? 'Run `tollkeeper login`' : `Stored: ${names.join(', ')}`
}

/**
 * Returns the API key to send to `flags.gateway`.
 *
 * @throws {CliError} `other_gateway` if the key was stored for another gateway: a `.env` in a stranger's repository may set
 * TOLLKEEPER_GATEWAY_URL, and that gateway must not receive the key.
 */
export function keyFor({ gateway, apiKey, profile }: GatewayFlags): string | undefined {
  if (apiKey || profile === undefined) return apiKey
  if (!sameGateway(gateway, profile.gatewayUrl))
    throw new CliError(
      'other_gateway',
      `--gateway: the key of profile "${profile.name}" is sent to ${profile.gatewayUrl} only, got ${printable(gateway)}. ` +
        'Give the key of that gateway as TOLLKEEPER_API_KEY, or unset TOLLKEEPER_GATEWAY_URL',
    )
  return profile.apiKey
}

export function ownPath({ provider = '' }: GatewayFlags, ...rest: string[]): string {
  const parts = [provider, ...rest].filter((part) => part !== '')
  return ['/providers', ...parts.map(encodeURIComponent)].join('/')
}

type Request = {
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  path: string
  /** The status that a response with a body must have. */
  status?: number | undefined
  query?: Record<string, unknown>
  body?: unknown
  headers?: Record<string, string>
  /** The flag of each field of the request, for messages: `{ 'pricing.usdcPerUnit': '--price' }`. */
  flagOf?: Readonly<Record<string, string>>
  /** Whether to send no key, even if one is stored. */
  isOpen?: boolean
}

/** Timeout in ms of a request. It is short because a person is waiting. */
const timeout = 15_000

/**
 * Sends one request to the gateway.
 *
 * @returns the successful response. Its body may still be arriving.
 * @throws {CliError} the gateway's error; `gateway_unreachable`; `gateway_redirects` to another origin; `other_gateway`.
 */
export async function ask(
  flags: GatewayFlags,
  { method = 'POST', path, query = {}, headers = {}, body, flagOf, isOpen = false }: Request,
): Promise<Response> {
  const { gateway } = flags
  if (!/^https?:$/.test(URL.parse(gateway)?.protocol ?? ''))
    throw new CliError('invalid_flags', `--gateway: expected an http(s) URL, got ${JSON.stringify(gateway)}`)
  const apiKey = isOpen ? undefined : keyFor(flags)
  // Don't retry a command: its user sees the result and can run it again.
  const transport = createTransport({ gatewayUrl: gateway, apiKey, timeout, maxRetries: 0 })
  try {
    return await transport.file({ method, path, query, headers, body })
  } catch (error) {
    throw error instanceof GatewayError ? refuse(flags, error, flagOf) : error
  }
}

/** @returns the response; an empty object if it has no body */
export async function request(flags: GatewayFlags, asked: Request): Promise<Record<string, unknown>> {
  const response = await ask(flags, asked)
  if (response.status === 204) return {}
  const { method = 'POST', status = method === 'POST' ? 201 : 200 } = asked
  const answer: unknown = await response.json().catch(() => undefined)
  if (response.status !== status || !isRecord(answer)) throw noGateway(flags.gateway, response.status)
  return answer
}

/** Whether a failed request may succeed later without a change. */
export function isRetryable(error: unknown): error is CliError {
  if (!(error instanceof CliError)) return false
  return (
    error.code === 'gateway_unreachable' || (isErrorCode(error.code) && new BaseError(error.code).retryable)
  )
}

/** The flag to name for an error code, if the rejection doesn't name a field. */
const codeFlags: Readonly<Record<string, readonly string[]>> = {
  unknown_wallet: ['--wallet'],
  unknown_network: ['--network'],
  network_not_served: ['--network'],
  price_below_minimum: ['--price'],
  endpoint_exists: ['--url'],
  webhook_url_refused: ['--url'],
  upstream_url_refused: ['--url'],
  wallet_exists: ['--address'],
  payee_refused: ['--address'],
  invalid_cursor: ['--cursor'],
  invalid_date_range: ['--month', '--until'],
}

/** Returns the error to show for a failed call: the gateway's error, or that the gateway didn't respond. */
function refuse(
  { gateway, apiKey, profile }: GatewayFlags,
  error: GatewayError,
  flagOf: Readonly<Record<string, string>> = {},
): CliError {
  const { code, status, detail = '', fields, cause } = error
  if (code === 'gateway_redirects')
    return new CliError(
      'gateway_redirects',
      `--gateway: ${cause instanceof Error ? cause.message : 'it redirects'}, and the API key is sent only to ${new URL(gateway).origin}: use the address that it redirects to`,
      error,
    )
  if (status === undefined)
    return new CliError(
      'gateway_unreachable',
      `The gateway at ${gateway} can't be reached. Check --gateway, and whether the gateway runs`,
      error,
    )
  if (code === 'http_error') return noGateway(gateway, status)
  const [first] = fields
  const flagOfField = first && flagOf[first.field]
  const flagOfCode = codeFlags[code]?.find((flag) => Object.values(flagOf).includes(flag))
  const reason = printable(first && flagOfField !== undefined ? first.message : detail)
  const flag = flagOfField ?? flagOfCode
  const named = flag === undefined ? reason : `${flag}: ${reason}`
  const hint = status === 401 ? keyHint(apiKey, profile) : ''
  return new CliError(code, `${named}${hint}`)
}

function noGateway(gateway: string, status: number): CliError {
  return new CliError(
    'not_a_gateway',
    `--gateway: ${gateway} answered with HTTP ${status} and not as a gateway does. Check the URL`,
  )
}

function keyHint(apiKey: string | undefined, profile: GatewayFlags['profile']): string {
  if (!apiKey && profile) return `; log in again: \`tollkeeper login --profile ${profile.name}\``
  return '; run `tollkeeper login`, or give the API key as TOLLKEEPER_API_KEY'
}

/**
 * Changes the current version of the resource at a path. With `ifVersion`, the resource is changed only if it still has that
 * version.
 *
 * @returns the resource after the change.
 */
export async function update(
  flags: GatewayFlags & { ifVersion?: string },
  path: string,
  body: Record<string, unknown>,
  flagOf?: Readonly<Record<string, string>>,
): Promise<Record<string, unknown>> {
  if (Object.values(body).every((value) => value === undefined)) {
    throw new CliError('invalid_flags', 'There is nothing to change. See --help')
  }
  const ifMatch = flags.ifVersion === undefined ? '*' : `"${flags.ifVersion}"`
  return request(flags, {
    method: 'PATCH',
    path,
    headers: { 'if-match': ifMatch },
    body,
    ...(flagOf && { flagOf }),
  })
}

/** Prints a response: as JSON, or as lines that say what was done and what to do next. */
export function printDone(
  answer: Record<string, unknown>,
  { json }: JsonFlag,
  ...lines: readonly string[]
): void {
  if (json) printJson(answer)
  else printLines(...lines)
}

/** Prints a response as JSON, or as a line for each field. */
export function printFields(answer: Record<string, unknown>, { json }: JsonFlag): void {
  if (json) {
    printJson(answer)
    return
  }
  const width = Math.max(...Object.keys(answer).map((name) => name.length))
  printLines(
    ...Object.entries(answer).map(([name, value]) => {
      const text = typeof value === 'string' ? value : JSON.stringify(value)
      return `${name.padEnd(width)} ${printable(text)}`
    }),
  )
}

/** Returns lines with a secret that the gateway shows only once. The secret has a separate line, so that a user can copy it. */
export function secretLines(name: string, secret: unknown): string[] {
  return [`The ${name}, shown only this once:`, printable(textOf(secret))]
}

/** Checks a price and returns its text unchanged, because the gateway calculates with it. */
export function parsePrice(value: string): string {
  try {
    parseUsdc(value)
    return value
  } catch {
    throw new InvalidArgumentError('expected decimal USDC like 0.01')
  }
}

export function parseVersion(value: string): string {
  if (!/^\d{1,9}$/.test(value)) throw new InvalidArgumentError('expected a version number')
  return value
}
