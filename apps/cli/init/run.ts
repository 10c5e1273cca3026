import { access, mkdir, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { newMacaroonSecret } from '@tollkeeper/api/payments/challenge/newMacaroonSecret'
import { loadReceiptKeys } from '@tollkeeper/api/payments/receipts/keys'
import { readDeployments } from '@tollkeeper/chain/networkSettings'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import type { Parser } from '@tollkeeper/runtime/parsers'
import { networkVariable } from '@tollkeeper/runtime/variables'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import type { Address, Hex } from 'viem'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { CliError } from '../terminal/cliError.ts'
import { type JsonFlag, readFlag } from '../terminal/options.ts'
import { printJson, printLines, printNote } from '../terminal/output.ts'
import { openPrompt, type Prompt } from '../terminal/prompt.ts'
import {
  type Answer,
  databaseUrlAnswer,
  nameAnswer,
  networksAnswer,
  registrationAnswer,
  urlAnswer,
  walletAnswer,
} from './answers.ts'
import { createFirstProvider, type FirstProvider } from './database.ts'
import { diffSettings, readEnvFile, renderEnvFile, type Settings, writeOwnFile } from './envFile.ts'
import { checkNode, findPublicNode } from './nodes.ts'

export type InitFlags = JsonFlag & {
  name?: string
  registration?: 'own' | 'open'
  networks?: NetworkName[]
  rpc?: [NetworkName, string][]
  wallet?: Address
  database?: string
  file: string
  force?: boolean
  yes?: boolean
}

type Answers = {
  name: string
  registration: 'own' | 'open'
  nodes: [NetworkName, string][]
  wallet: Address
  database: string
}

/** Asks for a gateway's settings. Writes the settings and the key files, and creates the first provider. */
export async function runInit(flags: InitFlags): Promise<void> {
  const { file, json } = flags
  const before = await readEnvFile(file)
  const prompt = flags.yes ? undefined : openPrompt()
  let answers: Answers
  try {
    answers = await askAll(flags, before ?? {}, prompt)
    if (before !== null) await confirmOverwrite(flags, before, toSettings(answers, before, file), prompt)
  } finally {
    prompt?.close()
  }
  const settings = toSettings(answers, before ?? {}, file)
  const isChanged = before === null || diffSettings(before, settings).length > 0
  const keeper = await withoutInterruption(async () => {
    const wallet = await writeKeys(settings)
    if (isChanged) await writeOwnFile(file, renderEnvFile(settings), { overwrite: before !== null })
    return wallet
  })
  const first = await createFirstProvider(answers.database, answers.name)
  const next = nextCommands(answers, file, settings, first)
  if (json)
    return printJson({
      file,
      isChanged,
      keyFiles: keyFilesOf(settings),
      keeperWallet: keeper,
      provider: first,
      next,
    })
  printLines(
    `${isChanged ? 'Wrote' : 'Kept'} ${file}. Back it up, and ${keyFilesOf(settings).join(' and ')}: they hold secrets that nothing can replace`,
    `Send gas money to the keeper's wallet ${keeper} on ${answers.nodes.map(([name]) => name).join(', ')}`,
    first.status === 'created'
      ? `Created ${first.providerId}. Its API key, shown only this once:\n${first.apiKey}`
      : `${first.status === 'not_yet' ? 'No provider was created yet' : 'No provider was created'}: ${first.reason}`,
    'Next:',
    ...next.map((command) => `  ${command}`),
  )
}

async function askAll(flags: InitFlags, known: Settings, prompt: Prompt | undefined): Promise<Answers> {
  const name = await answer(prompt, '--name', flags.name, nameAnswer, {
    text: 'Name of your provider, as buyers see it',
  })
  const registration = await answer(prompt, '--registration', flags.registration, registrationAnswer, {
    text: 'Sellers: "own" (only your APIs) or "open" (anyone may register)',
    fallback: known.REGISTRATION === 'open' ? 'open' : 'own',
  })
  const names = await answer(prompt, '--networks', flags.networks, networksAnswer, {
    text: 'Networks, separated by commas (base-sepolia uses testnet funds)',
    fallback: known.NETWORKS || 'base-sepolia',
  })
  const nodes: [NetworkName, string][] = []
  for (const network of new Set(names)) {
    const given = flags.rpc?.find(([name]) => name === network)?.[1]
    const fallback = known[networkVariable('RPC_URL', network)] || findPublicNode(network)
    nodes.push([network, await askForNode(prompt, network, given, fallback)])
  }
  const unused = flags.rpc?.find(([network]) => !names.includes(network))
  if (unused) throw new CliError('invalid_flags', `--rpc: ${unused[0]} isn't one of --networks`)
  const wallet = await answer(prompt, '--wallet', flags.wallet, walletAnswer, {
    text: 'Wallet that receives the fees (your sales need another one)',
    ...(known.PLATFORM_WALLET && { fallback: known.PLATFORM_WALLET }),
  })
  const database = await answer(prompt, '--database', flags.database, databaseUrlAnswer, {
    text: 'Database URL, Postgres 17 or later',
    ...(known.DATABASE_URL && { fallback: known.DATABASE_URL }),
  })
  return { name, registration, nodes, wallet, database }
}

/** Returns the flag's value. If the flag isn't given, asks for the value. Without a prompt, returns the fallback. */
async function answer<T>(
  prompt: Prompt | undefined,
  flag: string,
  given: T | undefined,
  parser: Answer<T>,
  question: { text: string; fallback?: string },
): Promise<T> {
  if (given !== undefined) return given
  if (prompt !== undefined) return prompt.ask(question, parser)
  if (question.fallback === undefined)
    throw new CliError('invalid_flags', `${flag}: required with --yes, for example ${parser.example}`)
  return readFlag(flag, question.fallback, parser as Parser<T>)
}

/**
 * Asks for a node until the given node serves the network. Also accepts a node that doesn't respond. Several URLs can be given,
 * separated by commas.
 */
async function askForNode(
  prompt: Prompt | undefined,
  network: NetworkName,
  given: string | undefined,
  fallback: string | undefined,
): Promise<string> {
  for (;;) {
    const nodes = await answer(prompt, '--rpc', given, listOf(urlAnswer), {
      text: `RPC URL of ${network} (public nodes are free and limit calls)`,
      ...(fallback !== undefined && { fallback }),
    })
    try {
      for (const node of nodes.split(',')) {
        if (!(await checkNode(network, node)))
          printNote(`  The node of ${network} isn't responding now; its URL is used anyway`)
      }
      return nodes
    } catch (error) {
      if (prompt === undefined || given !== undefined || !process.stdin.isTTY) throw error
      printNote(`  ${(error as Error).message}`)
    }
  }
}

/** Returns a parser for several values separated by commas. The parsed values are joined into one text again. */
function listOf(parser: Answer<string>): Answer<string> {
  return {
    ...parser,
    parse: (text) => (text.split(',').every((each) => parser.parse(each) !== undefined) ? text : undefined),
  }
}

async function confirmOverwrite(
  { file, force, yes }: InitFlags,
  before: Settings,
  after: Settings,
  prompt: Prompt | undefined,
): Promise<void> {
  const diff = diffSettings(before, after)
  if (diff.length === 0) return
  printNote([`${file} exists. It would change:`, ...diff].join('\n'))
  if (force) return
  const isAsked = prompt !== undefined && !yes && process.stdin.isTTY
  if (isAsked && (await prompt.ask({ text: 'Overwrite it? yes or no', fallback: 'no' }, yesOrNo))) return
  throw new CliError('file_exists', `${file} is unchanged. Give --force to overwrite it`)
}

const yesOrNo: Answer<boolean> = {
  expected: 'yes or no',
  parse: (text) => ({ yes: true, y: true, no: false, n: false })[text.toLowerCase()],
  example: 'yes',
}

/**
 * Returns the variables to write: those that the answers set, and all other variables of the existing file. Existing secrets are
 * kept, so that challenges remain valid.
 */
function toSettings(
  { registration, nodes, wallet, database }: Answers,
  before: Settings,
  file: string,
): Settings {
  const keys = join(dirname(file), '.tollkeeper')
  const { KEEPER_PRIVATE_KEYS: inline, ...kept } = before
  return {
    ...kept,
    DATABASE_URL: database,
    NETWORKS: nodes.map(([name]) => name).join(','),
    ...Object.fromEntries(nodes.map(([name, url]) => [networkVariable('RPC_URL', name), url])),
    PLATFORM_WALLET: wallet,
    REGISTRATION: registration === 'own' ? 'closed' : 'open',
    MACAROON_SECRETS: before.MACAROON_SECRETS || newMacaroonSecret(),
    RECEIPT_KEY_FILE: before.RECEIPT_KEY_FILE || join(keys, 'receipt-keys.json'),
    ...(inline
      ? { KEEPER_PRIVATE_KEYS: inline }
      : { KEEPER_KEY_FILE: before.KEEPER_KEY_FILE || join(keys, 'keeper-keys.txt') }),
  }
}

function keyFilesOf({ RECEIPT_KEY_FILE: receipt, KEEPER_KEY_FILE: keeper }: Settings): string[] {
  return [receipt, keeper].filter((path) => path !== undefined)
}

/** Creates the key files that don't exist yet. @returns the address of the keeper's first wallet. */
async function writeKeys(settings: Settings): Promise<Address> {
  const {
    RECEIPT_KEY_FILE: receiptFile = '',
    KEEPER_KEY_FILE: keeperFile,
    KEEPER_PRIVATE_KEYS: inline,
  } = settings
  await mkdir(dirname(receiptFile), { recursive: true, mode: 0o700 })
  await loadReceiptKeys(receiptFile, true)
  if (keeperFile === undefined) return addressOfFirst(inline ?? '')
  await mkdir(dirname(keeperFile), { recursive: true, mode: 0o700 })
  const exists = await access(keeperFile).then(
    () => true,
    () => false,
  )
  if (!exists) await writeOwnFile(keeperFile, `${generatePrivateKey()}\n`, { overwrite: false })
  return addressOfFirst(await readFile(keeperFile, 'utf8'))
}

function addressOfFirst(keys: string): Address {
  const [first = ''] = keys.trim().split(/[\s,]+/)
  const key = first.startsWith('0x') ? first : `0x${first}`
  if (!/^0x[0-9a-fA-F]{64}$/.test(key))
    throw new CliError('invalid_config', 'KEEPER_KEY_FILE: expected private keys, one per line')
  return privateKeyToAddress(key as Hex)
}

/** Delays Ctrl-C until files that belong together are written. */
async function withoutInterruption<T>(write: () => Promise<T>): Promise<T> {
  const wait = () => printNote('Still writing')
  process.on('SIGINT', wait)
  try {
    return await write()
  } finally {
    process.off('SIGINT', wait)
  }
}

/** Returns the next three commands, in the order in which the user must run them. */
function nextCommands(
  { name, nodes }: Answers,
  file: string,
  settings: Settings,
  first: FirstProvider,
): string[] {
  const [option, env] = file === '.env' ? ['', ''] : [` --file ${file}`, `--env ${file} `]
  const deployments = readDeployments({ ...process.env, ...settings })
  const undeployed = nodes.map(([network]) => network).find((network) => deployments[network] === undefined)
  const prepare =
    undeployed === undefined
      ? `${ownCommand} ${env}doctor`
      : `DEPLOYER_PRIVATE_KEY=0x… ${ownCommand} ${env}deploy --network ${undeployed}`
  const start = `${ownCommand} ${env}api    # then, in two more terminals, the same command with keeper and with indexer instead of api`
  const [[network] = ['base']] = nodes
  const sell = {
    // The user must enter another wallet than the one that receives the fees: a payment's two transfers need different
    // recipients, so the gateway would reject that wallet.
    created: `${ownCommand} login --provider ${first.status === 'created' ? first.providerId : ''} && ${ownCommand} provider wallet --network ${network} --address 0x…    # any wallet except the one that receives the fees`,
    exists: `${ownCommand} login`,
    not_yet: `${ownCommand} init --yes --name ${JSON.stringify(name)}${option}    # creates your provider once the database is up to date`,
  }[first.status]
  return [prepare, start, sell]
}
