import { type Command, InvalidArgumentError, Option } from 'commander'
import { networkNames } from '#protocol/networks'
import { CliError } from './cliError.ts'
import { printable } from './output.ts'

type GatewayFlags = { gateway: string; apiKey?: string; provider?: string; json?: boolean }

/** `provider create | wallet | endpoint`: what a provider registers at a gateway. */
export function addProviderCommand(program: Command): void {
  const provider = program
    .command('provider')
    .summary('register at a gateway')
    .description('Registers at a gateway.')
    .addHelpText('after', '\nExample:\n  $ tollkeeper provider create --name Weather')

  withGateway(provider.command('create'))
    .summary('a provider, and its first API key')
    .description('Registers a provider. Its API key is shown this once.')
    .requiredOption('--name <name>', 'as shown to buyers')
    .option('--contact <contact>', 'where to reach you')
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper provider create --name Weather --contact ops@weather.example',
    )
    .action(async ({ name, contact, ...flags }: GatewayFlags & { name: string; contact?: string }) => {
      const body = { name, ...(contact !== undefined && { contact }) }
      print(await request({ ...flags, path: '/providers', body }), flags)
      if (!flags.json) process.stderr.write('Keep the apiKey: it is not shown again.\n')
    })

  withKey(withGateway(provider.command('wallet')))
    .summary('a wallet to be paid on')
    .description("Registers a wallet that the provider's payments go to.")
    .addOption(new Option('--network <name>', 'its network').choices(networkNames).makeOptionMandatory())
    .requiredOption('--address <address>', 'its address')
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper provider wallet --provider prov_… --network base --address 0x1000000000000000000000000000000000000001',
    )
    .action(async ({ network, address, ...flags }: GatewayFlags & { network: string; address: string }) => {
      print(await request({ ...flags, path: `${ownPath(flags)}/wallets`, body: { network, address } }), flags)
    })

  withKey(withGateway(provider.command('endpoint')))
    .summary('an endpoint and its price')
    .description('Registers an endpoint that buyers pay for.')
    .requiredOption('--url <url>', 'full URL of the resource')
    .requiredOption('--price <usdc>', 'decimal USDC a request', parsePrice)
    .option('--method <method>', 'GET, POST, PUT, PATCH or DELETE (default: any)')
    .option('--wallet <id>', "one of the provider's wallets (default: its oldest)")
    .addOption(new Option('--network <name>', 'the oldest wallet on this network').choices(networkNames))
    .option('--description <text>', 'shown in challenges')
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper provider endpoint --provider prov_… --url https://weather.example/forecast --method GET --price 0.01',
    )
    .action(async (flags: GatewayFlags & EndpointFlags) => {
      const { url, price, method, wallet, network, description } = flags
      const body = {
        ...{ url, method, walletId: wallet, network, description },
        pricing: { usdcPerUnit: price },
      }
      print(await request({ ...flags, path: `${ownPath(flags)}/endpoints`, body }), flags)
    })
}

type EndpointFlags = {
  url: string
  price: string
  method?: string
  wallet?: string
  network?: string
  description?: string
}

function withGateway(command: Command): Command {
  return command
    .addOption(
      new Option('--gateway <url>', 'address of the gateway')
        .env('TOLLKEEPER_GATEWAY_URL')
        .default('http://127.0.0.1:4020'),
    )
    .option('--json', 'print the answer as JSON')
}

function withKey(command: Command): Command {
  return command
    .addOption(
      new Option('--provider <id>', 'the provider').env('TOLLKEEPER_PROVIDER_ID').makeOptionMandatory(),
    )
    .addOption(
      new Option('--api-key <key>', 'its API key; in the variable no other user sees it').env(
        'TOLLKEEPER_API_KEY',
      ),
    )
}

function ownPath({ provider = '' }: GatewayFlags): string {
  return `/providers/${encodeURIComponent(provider)}`
}

async function request(
  options: GatewayFlags & { path: string; body: unknown },
): Promise<Record<string, unknown>> {
  const { gateway, apiKey, path, body } = options
  if (!URL.canParse(gateway)) throw new CliError('invalid_flags', `--gateway: expected a URL, got ${gateway}`)
  let response: Response
  try {
    response = await fetch(new URL(path, gateway), {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(apiKey && { authorization: `Bearer ${apiKey}` }) },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(15_000),
    })
  } catch (error) {
    throw new CliError(
      'gateway_unreachable',
      `The gateway at ${gateway} can't be reached; is it running?`,
      error,
    )
  }
  const answer: unknown = await response.json().catch(() => undefined)
  if (isRecord(answer) && response.status === 201) return answer
  if (!isRecord(answer) || response.ok) {
    throw new CliError('not_a_gateway', `${gateway} answered HTTP ${response.status} as no gateway does`)
  }
  // RFC 9457.
  const { title, detail, code } = answer
  const hint = response.status === 401 ? '; give the API key as TOLLKEEPER_API_KEY' : ''
  throw new CliError(
    String(code ?? `http_${response.status}`),
    `${printable(String(detail ?? title))}${hint}`,
  )
}

function print(answer: Record<string, unknown>, { json }: GatewayFlags): void {
  const lines = Object.entries(answer).map(([name, value]) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value)
    return `${name.padEnd(12)} ${printable(text)}`
  })
  process.stdout.write(`${json ? JSON.stringify(answer) : lines.join('\n')}\n`)
}

// The gateway reads it; it is only passed on, never calculated with.
function parsePrice(value: string): string {
  if (!/^\d+(\.\d{1,6})?$/.test(value)) throw new InvalidArgumentError('Expected decimal USDC like 0.01.')
  return value
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
