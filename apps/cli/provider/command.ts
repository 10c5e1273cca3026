import { textOf } from '@tollkeeper/sdk/protocol/fields'
import { type Command, Option } from 'commander'
import { jsonOption } from '../terminal/options.ts'
import { printable } from '../terminal/output.ts'
import {
  type GatewayFlags,
  ownPath,
  parseVersion,
  printDone,
  printFields,
  request,
  secretLines,
  update,
  withGateway,
  withKey,
} from './gateway.ts'
import type { GrantFlags, KeyFlags } from './operator.ts'
import { addRefundCommand } from './refund.ts'
import { type Action, providerActions, resources, scopeOption } from './resources.ts'

/** Adds `provider …`: the resources that a provider registers at a gateway, and those that the operator can change. */
export function addProviderCommand(program: Command): void {
  const provider = program
    .command('provider')
    .summary('register at a gateway: provider, wallets, endpoints, keys, webhooks')
    .description('Registers a provider at a gateway, and changes what is registered.')
  addExample(provider, 'provider create --name Weather')

  addCreateCommand(provider)
  for (const [verb, action] of Object.entries(providerActions)) addAction(provider, verb, action)
  addContactCommand(provider)
  addSwitchCommand(provider, 'disable', [
    'stop selling',
    'Refuses new challenges for all endpoints of the provider. Challenges that buyers already have can still be paid.',
  ])
  addSwitchCommand(provider, 'enable', ['sell again', 'Sells again after `provider disable`.'])
  for (const [name, { text, prefix, actions }] of Object.entries(resources)) {
    const [summary, about] = text
    const group = provider.command(name).summary(summary).description(about)
    if (name === 'key') addIssueCommand(group)
    const [first, ...others] = Object.entries(actions)
    if (first) addAction(group, ...first, { prefix, isDefault: name !== 'key' })
    for (const other of others) addAction(group, ...other, { prefix })
    addExample(group, `provider ${name} --provider prov_… ${name === 'key' ? '' : first?.[1].example}`)
  }
  addRefundCommand(provider)
  addGrantCommand(provider)
}

type ActionFlags = GatewayFlags & { ifVersion?: string } & Record<string, unknown>

function addAction(
  group: Command,
  verb: string,
  action: Action,
  { prefix, isDefault = false }: { prefix?: string | undefined; isDefault?: boolean } = {},
): void {
  const { does, text, options = [], isVersioned, example = '' } = action
  const command = withKey(group.command(verb, { isDefault }))
  command.summary(text[0]).description(text[1])
  const hasId = does.includes(':id')
  if (hasId) command.argument(`<${group.name()}>`, `its id, ${prefix}…`)
  for (const option of options) command.addOption(option)
  if (isVersioned)
    command.option('--if-version <number>', 'change it only if it still has this version', parseVersion)
  const typed = [...(group.name() === 'provider' ? [] : ['provider']), group.name(), verb]
  addExample(command, [...typed, ...(hasId ? [`${prefix}…`] : []), '--provider prov_…', example].join(' '))
  command.action((...given: unknown[]) => {
    const id = hasId ? String(given.shift()) : undefined
    return run(verb, action, given[0] as ActionFlags, id)
  })
}

async function run(verb: string, action: Action, flags: ActionFlags, id?: string): Promise<void> {
  const { does, status, options = [], toBody } = action
  const [method, path = ''] = does.split(' ') as ['GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE', string]
  const to = ownPath(flags, ...path.split('/').map((part) => (part === ':id' ? String(id) : part)))
  const names = options.map((option) => option.attributeName())
  const given = Object.fromEntries(names.filter((name) => name in flags).map((name) => [name, flags[name]]))
  const body = toBody?.(given) ?? (options.length > 0 ? given : undefined)
  const flagOf = flagsOf(action)
  if (method === 'PATCH') return print(action, flags, await update(flags, to, body ?? {}, flagOf), id)
  const inQuery = method === 'GET' || method === 'DELETE'
  const answer = await request(flags, {
    method,
    path: to,
    status,
    flagOf,
    ...(inQuery ? { query: given } : { body }),
  })
  // The response to DELETE has no fields, so print the resource's id under the verb, for example `retired`.
  print(action, flags, method === 'DELETE' ? { [`${verb}d`]: id ?? path } : answer, id)
}

/** Returns the flag for each field that an action's request can have. */
function flagsOf({ options = [], fields = {} }: Action): Record<string, string> {
  const own = options.map((option) => [option.attributeName(), option.long?.replace('--no-', '--') ?? ''])
  return { ...Object.fromEntries(own), ...fields }
}

function print(
  { render, done }: Action,
  flags: ActionFlags,
  answer: Record<string, unknown>,
  id: string | undefined,
): void {
  if (done !== undefined) printDone(answer, flags, ...done(answer, id ?? ''))
  else if (render === undefined) printFields(answer, flags)
  else printDone(answer, flags, render(answer))
}

function addExample(command: Command, line: string): Command {
  return command.addHelpText('after', `\nExample:\n  $ tollkeeper ${line.trimEnd()}`)
}

function addCreateCommand(provider: Command): void {
  type Flags = GatewayFlags & { name: string; contact?: string; token?: string; operator?: true }
  const command = withGateway(provider.command('create'))
    .summary('register a provider and issue its first API key')
    .description(
      `Registers a provider and issues its first API key, which is shown only this once. With --operator, the command creates
the provider directly in the gateway's database, even if registration is closed.`,
    )
    .requiredOption('--name <name>', 'name that buyers see')
    .option('--contact <contact>', 'mail address or URL at which the operator reaches you')
    .addOption(
      new Option('--token <token>', 'registration token, if the gateway requires one').env(
        'TOLLKEEPER_REGISTRATION_TOKEN',
      ),
    )
    .option('--operator', 'create it as the operator, even if REGISTRATION is closed. Reads DATABASE_URL')
    .action(async ({ name, contact, token, operator, ...flags }: Flags) => {
      if (operator) {
        const { createAsOperator } = await import('./operator.ts')
        return createAsOperator({
          name,
          ...(contact !== undefined && { contact }),
          json: flags.json ?? false,
        })
      }
      const headers = token === undefined ? {} : { 'registration-token': token }
      const answer = await request(flags, {
        path: '/providers',
        headers,
        body: { name, contact },
        flagOf: { name: '--name', contact: '--contact', 'registration-token': '--token' },
        isOpen: true,
      })
      const providerId = printable(textOf(answer.providerId))
      printDone(
        answer,
        flags,
        `Created ${providerId}. Next: \`tollkeeper login --gateway ${flags.gateway}\`, then \`tollkeeper provider wallet --network base --address 0x…\``,
        ...secretLines('API key', answer.apiKey),
      )
    })
  addExample(command, 'provider create --name Weather --contact ops@weather.example')
}

function addContactCommand(provider: Command): void {
  const command = withKey(provider.command('contact'))
    .summary('confirm the address for notifications')
    .description(
      `Mails a code to the contact address, or confirms the address with --code. Once the address is confirmed, the gateway
sends a mail to it when settlements fail and when a webhook is disabled.`,
    )
    .option('--code <code>', 'code from the mail')
    .action(async ({ code, ...flags }: GatewayFlags & { code?: string }) => {
      const flagOf = { code: '--code' }
      if (code === undefined) {
        await request(flags, { path: ownPath(flags, 'contact', 'code') })
        const next = 'Mailed a code. Next: `tollkeeper provider contact --code …` within 24 hours'
        return printDone({ mailed: true }, flags, next)
      }
      const answer = await request(flags, {
        path: ownPath(flags, 'contact', 'confirmation'),
        body: { code },
        flagOf,
      })
      printDone(
        answer,
        flags,
        `Confirmed ${printable(textOf(answer.contact))}. The gateway now sends notifications there`,
      )
    })
  addExample(command, 'provider contact --provider prov_… --code …')
}

/** Adds a command that a provider runs through the gateway. With `--operator`, the operator runs it on the gateway's database. */
function addSwitchCommand(
  provider: Command,
  verb: 'disable' | 'enable',
  [summary, about]: Action['text'],
): void {
  const disabled = verb === 'disable'
  const command = withKey(provider.command(verb))
    .summary(summary)
    .description(about)
    .option('--operator', 'act as the operator; the provider cannot undo this. Reads DATABASE_URL')
    .action(async ({ operator, ...flags }: GatewayFlags & { operator?: true }) => {
      if (operator) return (await import('./operator.ts')).suspend(flags.provider ?? '', disabled, flags)
      const answer = await update(flags, ownPath(flags), { disabled })
      const next = disabled
        ? `${flags.provider} sells nothing now. Sell again: \`tollkeeper provider enable\``
        : `${flags.provider} sells again`
      printDone(answer, flags, next)
    })
  addExample(command, `provider ${verb} --provider prov_…`)
}

/** Adds `key issue`, also as `key` alone. With it, the operator restores a provider's access. */
function addIssueCommand(group: Command): void {
  const command = group
    .command('issue', { isDefault: true })
    .summary('issue a key as the operator')
    .description(
      `Issues an API key for a provider that has lost its key; \`issue\` may be omitted. The provider's other keys stay valid, and
the provider's history shows that the operator issued the new key. Reads DATABASE_URL.`,
    )
    .requiredOption('--provider <id>', 'provider id')
    .option('--label <text>', 'label in the list of keys', 'issued by the operator')
    .addOption(scopeOption().default('full'))
    .addOption(jsonOption())
    .action(async (flags: KeyFlags) => (await import('./operator.ts')).issueKey(flags))
  addExample(command, '--env .env provider key issue --provider prov_…')
}

function addGrantCommand(provider: Command): void {
  const command = provider
    .command('grant')
    .summary("pay for a provider's gas, as the operator")
    .description(
      `Sets how much the operator pays per UTC day for the gas of the provider's payments without a fee: refunds, and payments through
x402's facilitator or POST /submit. Without a grant, providers share GAS_ALLOWANCE_USD. Reads DATABASE_URL.`,
    )
    .requiredOption('--provider <id>', 'provider id')
    .requiredOption('--usdc <amount>', 'amount in USDC per UTC day; 0 removes the grant')
    .addOption(jsonOption())
    .action(async (flags: GrantFlags) => (await import('./operator.ts')).grantGas(flags))
  addExample(command, '--env .env provider grant --provider prov_… --usdc 5')
}
