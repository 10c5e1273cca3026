import { type Command, Option } from 'commander'
import { networkNames } from '#protocol/networks'
import {
  type GatewayFlags,
  ownPath,
  parsePrice,
  print,
  request,
  update,
  withKey,
  withVersion,
} from './gateway.ts'

type EndpointFlags = {
  url?: string
  price?: string
  method?: string
  wallet?: string
  network?: string
  description?: string
  mimeType?: string
}

/** `provider endpoint [add] | update | disable | enable`. */
export function addEndpointCommands(provider: Command): void {
  const endpoint = provider
    .command('endpoint')
    .summary('an endpoint and its price')
    .description('Registers an endpoint that buyers pay for, or changes it.')
    .addHelpText('after', `\nExample:\n  $ tollkeeper provider endpoint ${addFlags}`)

  withTerms(withKey(endpoint.command('add', { isDefault: true })))
    .summary('register one')
    .description('Registers an endpoint; `add` may be left out.')
    .addHelpText('after', `\nExample:\n  $ tollkeeper provider endpoint add ${addFlags}`)
    .action(async (flags: GatewayFlags & EndpointFlags) => {
      print(await request(flags, { path: ownPath(flags, 'endpoints'), body: toBody(flags) }), flags)
    })

  withVersion(withTerms(withKey(endpoint.command('update'))))
    .summary('change its terms')
    .description('Changes an endpoint. New challenges have the new terms; those that are out keep theirs.')
    .argument('<endpoint>', 'its id, ep_…')
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper provider endpoint update ep_… --provider prov_… --price 0.02 --if-version 3',
    )
    .action(async (endpointId: string, flags: GatewayFlags & EndpointFlags & { ifVersion?: string }) => {
      await update(flags, ownPath(flags, 'endpoints', endpointId), toBody(flags))
    })

  for (const [verb, disabled, about] of [
    [
      'disable',
      true,
      'Refuses new challenges. Those that are out may be paid until they expire, in five minutes.',
    ],
    ['enable', false, 'Sells an endpoint again that was disabled.'],
  ] as const) {
    withKey(endpoint.command(verb))
      .summary(disabled ? 'sell it no more' : 'sell it again')
      .description(about)
      .argument('<endpoint>', 'its id, ep_…')
      .addHelpText('after', `\nExample:\n  $ tollkeeper provider endpoint ${verb} ep_… --provider prov_…`)
      .action(async (endpointId: string, flags: GatewayFlags) => {
        await update(flags, ownPath(flags, 'endpoints', endpointId), { disabled })
      })
  }
}

const addFlags = '--provider prov_… --url https://weather.example/forecast --method GET --price 0.01'

function withTerms(command: Command): Command {
  const isNew = command.name() === 'add'
  return command
    .addOption(
      new Option(
        '--url <url>',
        'full URL, or a path of your upstream; it may hold :name, and end in *',
      ).makeOptionMandatory(isNew),
    )
    .addOption(
      new Option('--price <usdc>', 'decimal USDC a request').argParser(parsePrice).makeOptionMandatory(isNew),
    )
    .option('--method <method>', 'GET, POST, PUT, PATCH, DELETE, or * for any')
    .option('--wallet <id>', "one of the provider's wallets (default: its oldest)")
    .addOption(new Option('--network <name>', 'the oldest wallet on this network').choices(networkNames))
    .option('--description <text>', 'shown in challenges')
    .option('--mime-type <type>', 'of what is sold')
}

function toBody({ url, price, method, wallet, network, description, mimeType }: EndpointFlags) {
  const pricing = price === undefined ? undefined : { usdcPerUnit: price }
  return { url, method, pricing, walletId: wallet, network, description, mimeType }
}
