import { matching, type Parser, publicUrl } from '@tollkeeper/runtime/parsers'
import { textOf } from '@tollkeeper/sdk/protocol/fields'
import type { Command, Option } from 'commander'
import {
  defaultProfile,
  type Profile,
  profilesPath,
  readProfiles,
  writeProfiles,
} from '../profiles/profiles.ts'
import { defaultGateway, request } from '../provider/gateway.ts'
import { CliError } from '../terminal/cliError.ts'
import { type JsonFlag, jsonOption, parsedOption } from '../terminal/options.ts'
import { formatTable, printable, printJson, printLines, printNote } from '../terminal/output.ts'
import { openPrompt } from '../terminal/prompt.ts'

const gatewayUrl = { ...publicUrl, example: 'https://gateway.example' }
const providerId = { ...matching('a provider id', /^prov_\w+$/), example: 'prov_0123…' }
const apiKey: Parser<string> = { ...matching('an API key, tk_…', /^tk_\S+$/), isSecret: true }
const profileName = matching(
  'a name of at most 64 letters, digits, dots, hyphens and underscores',
  /^(?!__proto__$)[\w.-]{1,64}$/,
)

type LoginFlags = JsonFlag & { profile: string; gateway?: string; provider?: string }

/** Adds `login`, `logout` and `profiles`, which set the gateway and the key of the provider commands. */
export function addLoginCommands(program: Command): void {
  program
    .command('login')
    .summary("store a provider's API key")
    .description(
      `Asks for the gateway, the provider and its API key, checks the key with the gateway, and stores it in a file that only you can
read: $XDG_CONFIG_HOME/tollkeeper/profiles.json. The terminal doesn't show the key while you type it. The key is never sent to another gateway.
If standard input is a pipe, it must have one line for each value that no flag gives, in this order: gateway, provider, key.`,
    )
    .addOption(profileOption())
    .addOption(parsedOption('--gateway <url>', 'URL of the gateway', gatewayUrl))
    .addOption(parsedOption('--provider <id>', 'provider id', providerId))
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper login
  $ tollkeeper login --profile test --gateway https://gateway.example --provider prov_… < key.txt`,
    )
    .action(login)

  program
    .command('logout')
    .summary('remove a stored API key')
    .description(
      'Removes a profile and its API key from this machine. The key itself stays valid; `provider key revoke` ends it.',
    )
    .addOption(profileOption())
    .addOption(jsonOption())
    .addHelpText('after', '\nExample:\n  $ tollkeeper logout --profile test')
    .action(logout)

  program
    .command('profiles')
    .summary('list the stored profiles')
    .description('Lists the profiles that `tollkeeper login` stored, without their keys.')
    .addOption(jsonOption())
    .addHelpText('after', '\nExample:\n  $ tollkeeper profiles')
    .action(listProfiles)
}

function profileOption(): Option {
  return parsedOption('--profile <name>', 'name of the profile', profileName)
    .env('TOLLKEEPER_PROFILE')
    .default(defaultProfile)
}

async function login({ profile: name, json, ...flags }: LoginFlags): Promise<void> {
  const path = profilesPath(process.env)
  const profiles = await readProfiles(path)
  const asked = await askFor(flags)
  const account = await request(
    { gateway: asked.gatewayUrl, apiKey: asked.apiKey },
    { method: 'GET', path: '/account' },
  )
  if (account.providerId !== asked.providerId)
    throw new CliError(
      'other_provider',
      `--provider: the key belongs to ${printable(textOf(account.providerId))}, got ${asked.providerId}`,
    )
  const profile: Profile = { ...asked, scope: textOf(account.scope) }
  await writeProfiles(path, { ...profiles, [name]: profile })
  const { apiKey: _, ...shown } = profile
  if (json) return printJson({ profile: name, ...shown, path })
  const named = name === defaultProfile ? '' : ` --profile ${name}`
  printLines(
    `Logged in to ${profile.gatewayUrl} as ${profile.providerId} (key: ${profile.scope}). Stored in ${path}`,
    `Next: \`tollkeeper provider show${named}\``,
  )
}

async function askFor(flags: Pick<LoginFlags, 'gateway' | 'provider'>): Promise<Omit<Profile, 'scope'>> {
  const prompt = openPrompt()
  try {
    return {
      gatewayUrl:
        flags.gateway ??
        (await prompt.ask({ text: 'URL of the gateway', fallback: defaultGateway }, gatewayUrl)),
      providerId: flags.provider ?? (await prompt.ask({ text: 'Provider id' }, providerId)),
      apiKey: await prompt.ask({ text: "API key (what you type isn't shown)", isHidden: true }, apiKey),
    }
  } finally {
    prompt.close()
  }
}

async function logout({ profile: name, json }: JsonFlag & { profile: string }): Promise<void> {
  const path = profilesPath(process.env)
  const { [name]: gone, ...rest } = await readProfiles(path)
  if (gone === undefined)
    throw new CliError('unknown_profile', `--profile: there is no profile ${JSON.stringify(name)}`)
  await writeProfiles(path, rest)
  if (json) return printJson({ removed: name, providerId: gone.providerId })
  printLines(`Removed the profile ${name} from ${path}. Its key stays valid until you revoke it`)
}

async function listProfiles({ json }: JsonFlag): Promise<void> {
  const path = profilesPath(process.env)
  const rows = Object.entries(await readProfiles(path)).map(
    ([profile, { gatewayUrl, providerId, scope }]) => ({
      profile,
      gatewayUrl,
      providerId,
      scope,
    }),
  )
  if (json) return printJson({ profiles: rows })
  if (rows.length === 0) return printNote('No profile is stored. Next: `tollkeeper login`')
  printLines(
    formatTable(
      ['profile', 'gateway', 'provider', 'key'],
      rows.map((row) => Object.values(row).map(printable)),
    ),
  )
}
