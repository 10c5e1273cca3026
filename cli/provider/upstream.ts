import type { Command } from 'commander'
import { type GatewayFlags, ownPath, print, request, withKey } from './gateway.ts'

const example = '--provider prov_… --url https://origin.weather.example'

/** `provider upstream [set] | show | rotate | remove`. */
export function addUpstreamCommands(provider: Command): void {
  const upstream = provider
    .command('upstream')
    .summary('a server to sell without code')
    .description(
      'Registers the server that the gateway passes paid requests on to, in the place of a middleware.',
    )
    .addHelpText('after', `\nExample:\n  $ tollkeeper provider upstream ${example}`)

  withKey(upstream.command('set', { isDefault: true }))
    .summary('register it')
    .description(
      'Registers the server, or another one; `set` may be left out. The secret of the first is shown this once.',
    )
    .requiredOption('--url <url>', 'https and public; its path is put before that of a request')
    .addHelpText('after', `\nExample:\n  $ tollkeeper provider upstream set ${example}`)
    .action(async ({ url, ...flags }: GatewayFlags & { url: string }) => {
      const answer = await request(flags, { method: 'PUT', path: ownPath(flags, 'upstream'), body: { url } })
      print(answer, flags)
      if ('secret' in answer) keepSecret(flags)
    })

  withKey(upstream.command('show'))
    .summary('what is registered')
    .description('Shows the server, without its secret.')
    .addHelpText('after', '\nExample:\n  $ tollkeeper provider upstream show --provider prov_…')
    .action(async (flags: GatewayFlags) => {
      print(await request(flags, { method: 'GET', path: ownPath(flags, 'upstream') }), flags)
    })

  withKey(upstream.command('rotate'))
    .summary('a new secret')
    .description('Makes a new secret. For a day, requests carry the one before as well.')
    .addHelpText('after', '\nExample:\n  $ tollkeeper provider upstream rotate --provider prov_…')
    .action(async (flags: GatewayFlags) => {
      print(await request(flags, { path: ownPath(flags, 'upstream', 'secret') }), flags)
      keepSecret(flags)
    })

  withKey(upstream.command('remove'))
    .summary('pass nothing on any more')
    .description('Removes the server. What is sold without code is refused from then on.')
    .addHelpText('after', '\nExample:\n  $ tollkeeper provider upstream remove --provider prov_…')
    .action(async (flags: GatewayFlags) => {
      await request(flags, { method: 'DELETE', path: ownPath(flags, 'upstream') })
      print({ removed: 'upstream' }, flags)
    })
}

function keepSecret({ json }: GatewayFlags): void {
  if (!json) process.stderr.write('Keep the secret: it is not shown again.\n')
}
