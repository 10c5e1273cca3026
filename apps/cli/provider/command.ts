import { type Command, Option } from 'commander'
import {
  type GatewayFlags,
  ownPath,
  parseVersion,
  printAnswer,
  request,
  update,
  withGateway,
  withKey,
} from './gateway.ts'
import type { GrantFlags, KeyFlags } from './operator.ts'
import { addRefundCommand } from './refund.ts'
import { type Action, providerActions, resources, scopeOption } from './resources.ts'

/** `provider …`: what a provider registers at a gateway, and what the operator can do to it. */
export function addProviderCommand(program: Command): void {
  const provider = program
    .command('provider')
    .summary('register at a gateway')
    .description('Registers at a gateway, and changes what is registered.')
  addExample(provider, 'provider create --name Weather')

  addCreateCommand(provider)
  for (const [verb, action] of Object.entries(providerActions)) addAction(provider, verb, action)
  addContactCommand(provider)
  addSwitchCommand(provider, 'disable', [
    'sell nothing for now',
    'Refuses new challenges of all its endpoints. Those that are out may still be paid.',
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
    command.option('--if-version <number>', 'only if it still is at this version', parseVersion)
  const typed = [...(group.name() === 'provider' ? [] : ['provider']), group.name(), verb]
  addExample(command, [...typed, ...(hasId ? [`${prefix}…`] : []), '--provider prov_…', example].join(' '))
  command.action((...given: unknown[]) => {
    const id = hasId ? String(given.shift()) : undefined
    return run(verb, action, given[0] as ActionFlags, id)
  })
}

async function run(verb: string, action: Action, flags: ActionFlags, id?: string): Promise<void> {
  const { does, status, options = [], toBody, render } = action
  const [method, path = ''] = does.split(' ') as ['GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE', string]
  const to = ownPath(flags, ...path.split('/').map((part) => (part === ':id' ? String(id) : part)))
  const names = options.map((option) => option.attributeName())
  const given = Object.fromEntries(names.filter((name) => name in flags).map((name) => [name, flags[name]]))
  const body = toBody?.(given) ?? (options.length > 0 ? given : undefined)
  if (method === 'PATCH') return update(flags, to, body ?? {})
  const inQuery = method === 'GET' || method === 'DELETE'
  const answer = await request(flags, {
    method,
    path: to,
    status,
    ...(inQuery ? { query: given } : { body }),
  })
  // A deleted thing has no fields, so the line says what is `retired`, for example.
  if (method === 'DELETE') printAnswer({ [`${verb}d`]: id ?? path }, flags)
  else if (render === undefined || flags.json) printAnswer(answer, flags)
  else process.stdout.write(`${render(answer)}\n`)
}

function addExample(command: Command, line: string): Command {
  return command.addHelpText('after', `\nExample:\n  $ tollkeeper ${line.trimEnd()}`)
}

function addCreateCommand(provider: Command): void {
  type Flags = GatewayFlags & { name: string; contact?: string; token?: string }
  const command = withGateway(provider.command('create'))
    .summary('a provider, and its first API key')
    .description('Registers a provider. Its API key is shown this once.')
    .requiredOption('--name <name>', 'as shown to buyers')
    .option('--contact <contact>', 'where to reach you')
    .addOption(
      new Option('--token <token>', 'where registration takes one').env('TOLLKEEPER_REGISTRATION_TOKEN'),
    )
    .action(async ({ name, contact, token, ...flags }: Flags) => {
      const headers = token === undefined ? {} : { 'registration-token': token }
      printAnswer(await request(flags, { path: '/providers', headers, body: { name, contact } }), flags)
    })
  addExample(command, 'provider create --name Weather --contact ops@weather.example')
}

function addContactCommand(provider: Command): void {
  const command = withKey(provider.command('contact'))
    .summary('confirm the contact, to be told by mail')
    .description(
      `Mails a code to the contact, or, with --code, confirms it. From then on the gateway mails there what fails to settle,
and which webhook was switched off.`,
    )
    .option('--code <code>', 'from the mail')
    .action(async ({ code, ...flags }: GatewayFlags & { code?: string }) => {
      const asked =
        code === undefined
          ? { path: ownPath(flags, 'contact', 'code') }
          : { path: ownPath(flags, 'contact', 'confirmation'), body: { code } }
      const answer = await request(flags, asked)
      printAnswer(code === undefined ? { mailed: true } : answer, flags)
    })
  addExample(command, 'provider contact --provider prov_… --code …')
}

/** Adds a switch that the provider uses at its gateway, and the operator in the database. */
function addSwitchCommand(
  provider: Command,
  verb: 'disable' | 'enable',
  [summary, about]: Action['text'],
): void {
  const disabled = verb === 'disable'
  const command = withKey(provider.command(verb))
    .summary(summary)
    .description(about)
    .option('--operator', 'as the operator, whom the provider cannot overrule. Reads DATABASE_URL')
    .action(async ({ operator, ...flags }: GatewayFlags & { operator?: true }) => {
      if (!operator) return update(flags, ownPath(flags), { disabled })
      const { suspend } = await import('./operator.ts')
      await suspend(flags.provider ?? '', disabled)
    })
  addExample(command, `provider ${verb} --provider prov_…`)
}

/** `key issue`, or `key` alone, by which the operator lets a provider in again. */
function addIssueCommand(group: Command): void {
  const command = group
    .command('issue', { isDefault: true })
    .summary('issue one, as the operator')
    .description(
      `Issues an API key for a provider that has lost its own; \`issue\` may be left out. The provider's other keys stay, and
its history shows that the operator issued this one. Reads DATABASE_URL.`,
    )
    .requiredOption('--provider <id>', 'the provider')
    .option('--label <text>', 'shown in the list of its keys', 'issued by the operator')
    .addOption(scopeOption().default('full'))
    .option('--json', 'print JSON')
    .action(async (flags: KeyFlags) => (await import('./operator.ts')).issueKey(flags))
  addExample(command, '--env .env provider key issue --provider prov_…')
}

function addGrantCommand(provider: Command): void {
  const command = provider
    .command('grant')
    .summary('pay for its gas, as the operator')
    .description(
      `Sets what the operator pays a UTC day for gas that a provider's payments carry by no fee: through x402's facilitator,
POST /submit, and refunds. Without a grant they share GAS_ALLOWANCE_USD with everybody's. Reads DATABASE_URL.`,
    )
    .requiredOption('--provider <id>', 'the provider')
    .requiredOption('--usdc <amount>', 'a UTC day; 0 takes the grant back')
    .option('--json', 'print JSON')
    .action(async (flags: GrantFlags) => (await import('./operator.ts')).grantGas(flags))
  addExample(command, '--env .env provider grant --provider prov_… --usdc 5')
}
