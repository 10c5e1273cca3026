import { type Command, Option } from 'commander'
import { networkNames } from '#protocol/networks'
import { type GatewayFlags, ownPath, print, request, withKey } from './gateway.ts'

/** `provider wallet [add] | replace | retire`. */
export function addWalletCommands(provider: Command): void {
  const wallet = provider
    .command('wallet')
    .summary('a wallet to be paid on')
    .description("Registers a wallet that the provider's payments go to, or changes it.")
    .addHelpText('after', `\nExample:\n  $ tollkeeper provider wallet ${addFlags}`)

  withKey(wallet.command('add', { isDefault: true }))
    .summary('register one')
    .description('Registers a wallet; `add` may be left out.')
    .addOption(new Option('--network <name>', 'its network').choices(networkNames).makeOptionMandatory())
    .requiredOption('--address <address>', 'its address')
    .addHelpText('after', `\nExample:\n  $ tollkeeper provider wallet add ${addFlags}`)
    .action(async ({ network, address, ...flags }: GatewayFlags & { network: string; address: string }) => {
      print(await request(flags, { path: ownPath(flags, 'wallets'), body: { network, address } }), flags)
    })

  withKey(wallet.command('replace'))
    .summary('be paid to another address')
    .description(
      `Replaces a wallet by another address, in all endpoints at once. What was challenged or accepted before settles to
the old one.`,
    )
    .argument('<wallet>', 'its id, wal_…')
    .requiredOption('--address <address>', 'the new address')
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper provider wallet replace wal_… --provider prov_… --address 0x1000000000000000000000000000000000000002',
    )
    .action(async (walletId: string, { address, ...flags }: GatewayFlags & { address: string }) => {
      const path = ownPath(flags, 'wallets', walletId)
      print(await request(flags, { method: 'PATCH', path, body: { address } }), flags)
    })

  withKey(wallet.command('retire'))
    .summary('use it no more')
    .description('Retires a wallet that no endpoint uses.')
    .argument('<wallet>', 'its id, wal_…')
    .addHelpText('after', '\nExample:\n  $ tollkeeper provider wallet retire wal_… --provider prov_…')
    .action(async (walletId: string, flags: GatewayFlags) => {
      await request(flags, { method: 'DELETE', path: ownPath(flags, 'wallets', walletId) })
      print({ retired: walletId }, flags)
    })
}

const addFlags = '--provider prov_… --network base --address 0x1000000000000000000000000000000000000001'
