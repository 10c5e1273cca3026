import { isRecord } from '@tollkeeper/sdk/protocol/fields'
import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { InvalidArgumentError, Option } from 'commander'
import { formatTable, printable } from '../terminal/output.ts'
import { parsePrice, secretLines } from './gateway.ts'

/** A command that sends one request to the gateway's API. */
export type Action = {
  /** Method and path, relative to the provider's path. `:id` is replaced with the command's argument. */
  does: string
  /** Purpose of the command, in the list of commands and in its help. */
  text: [summary: string, about: string]
  /** Options for the fields of the request: of its body, or for GET and DELETE, of its query. */
  options?: Option[]
  toBody?: (flags: Record<string, unknown>) => Record<string, unknown>
  /** Flags by request field, for fields whose name differs from the flag's name. */
  fields?: Readonly<Record<string, string>>
  /** Flags of the example in the help, after the id and `--provider`. */
  example?: string
  /** Status of the response. Default: 201 for POST, otherwise 200 or 204. */
  status?: number
  /** Whether the command takes `--if-version`. */
  isVersioned?: true
  /** Returns lines that say what was done and what to do next. */
  done?: (answer: Record<string, unknown>, id: string) => string[]
  /** Formats the response for people. If a command has neither `done` nor `render`, each field is printed on a line. */
  render?: (answer: Record<string, unknown>) => string
}

export type Actions = Record<string, Action>

/** A group of commands. */
export type Resource = {
  text: [summary: string, about: string]
  /** Prefix of the resource's ids. */
  prefix?: string
  /** The actions by the words that the user types. The word of the first action can be omitted. */
  actions: Actions
}

const required = (flags: string, about: string) => new Option(flags, about).makeOptionMandatory()
const networkOption = (about: string) => new Option('--network <name>', about).choices(networkNames)
export const scopeOption = () =>
  new Option('--scope <scope>', 'full, or read (the key can only read)').choices(['full', 'read'])
const exampleAddress = '--address 0x1000000000000000000000000000000000000001'

/** Actions on the provider itself: `provider show`. */
export const providerActions: Actions = {
  show: { does: 'GET ', text: ['show the provider', 'Shows the registered data of the provider.'] },
  update: {
    does: 'PATCH ',
    text: ['change the provider', 'Changes the registered data of the provider.'],
    options: [
      new Option('--name <name>', 'name that buyers see'),
      new Option('--contact <contact>', 'mail address or URL at which the operator reaches you'),
      new Option('--requires-key', "accept verifications only with the provider's API key"),
      new Option('--no-requires-key', 'accept verifications from anyone'),
      new Option(
        '--own-middleware',
        'the provider uses another middleware than Tollkeeper’s; its payments settle later, so that it has time to void them',
      ),
      new Option('--no-own-middleware', 'the provider uses Tollkeeper’s middleware, or sells without code'),
      new Option('--listed', 'list its endpoints in the catalog'),
      new Option('--no-listed', 'keep its endpoints out of the catalog'),
      new Option('--service-name <name>', 'name in catalogs: at most 32 ASCII characters'),
      new Option('--tags <tags...>', 'tags in catalogs: at most five'),
      new Option('--icon-url <url>', 'icon in catalogs'),
      new Option(
        '--ownership-proof <origin=signature...>',
        'an origin, and a signature of the origin by one of your wallets (EIP-191)',
      ),
    ],
    toBody: toProvider,
    fields: { ownershipProofs: '--ownership-proof' },
    example: '--name "Weather, Inc." --tags weather data',
    isVersioned: true,
    done: changed,
  },
  changes: {
    does: 'GET changes',
    text: [
      'show who changed what, and when',
      'Shows changes of the provider, its wallets, endpoints and keys, newest first.',
    ],
    options: [
      new Option('--limit <number>', 'number of changes, 1 to 100').default('20'),
      new Option('--cursor <cursor>', 'continue where the previous page ended'),
    ],
    render: renderChanges,
  },
}

function changed({ providerId, walletId, endpointId, version }: Record<string, unknown>): string[] {
  const id = text(endpointId ?? walletId ?? providerId)
  return [`Changed ${id}${version === undefined ? '' : `, now version ${text(version)}`}`]
}

function toProvider({ ownershipProof, ...fields }: Record<string, unknown>) {
  if (ownershipProof === undefined) return fields
  const ownershipProofs = (ownershipProof as string[]).map((text) => {
    const at = text.lastIndexOf('=')
    return { origin: text.slice(0, Math.max(at, 0)), signature: text.slice(at + 1) }
  })
  return { ...fields, ownershipProofs }
}

const jsonValueOption = (flags: string, about: string) => new Option(flags, about).argParser(parseJson)

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new InvalidArgumentError('expected JSON, like {"type":"object"}')
  }
}

const endpointOptions = (isNew: boolean) => [
  new Option(
    '--url <url>',
    'full URL including the host, or a path of your upstream; it may contain :name, and end in *',
  ).makeOptionMandatory(isNew),
  new Option('--price <usdc>', 'price per request in decimal USDC')
    .argParser(parsePrice)
    .makeOptionMandatory(isNew),
  new Option('--method <method>', 'GET, POST, PUT, PATCH, DELETE, or * for any'),
  new Option('--wallet <id>', "wallet that is paid (default: the provider's oldest wallet)"),
  networkOption("network of the payments, which go to the provider's oldest wallet on that network"),
  new Option('--description <text>', 'description in challenges'),
  new Option('--mime-type <type>', 'MIME type of the response'),
  new Option('--server-url <url>', 'for mcp://tool/<name>: URL at which buyers reach the MCP server'),
  new Option('--listed', 'list the endpoint in the catalog'),
  new Option('--no-listed', 'keep the endpoint out of the catalog'),
  jsonValueOption('--input-schema <json>', 'JSON Schema of the query or the body'),
  jsonValueOption('--input-example <json>', 'example that follows the input schema'),
  jsonValueOption('--output-schema <json>', 'JSON Schema of the response'),
  jsonValueOption('--output-example <json>', 'example of a response'),
]

const endpointFields = { 'pricing.usdcPerUnit': '--price', walletId: '--wallet' }

function toEndpoint({ price, wallet, ...terms }: Record<string, unknown>) {
  return { ...terms, walletId: wallet, pricing: price === undefined ? undefined : { usdcPerUnit: price } }
}

export const resources: Record<string, Resource> = {
  wallet: {
    text: [
      'wallets that receive the money',
      "Registers a wallet that the provider's payments go to, and lists or changes wallets.",
    ],
    prefix: 'wal_',
    actions: {
      add: {
        does: 'POST wallets',
        text: ['register a wallet', 'Registers a wallet; `add` may be omitted.'],
        options: [
          networkOption('network of the wallet').makeOptionMandatory(),
          required('--address <address>', 'address of the wallet'),
        ],
        example: `--network base ${exampleAddress}`,
        done: ({ walletId, address, network }) => [
          `Registered ${text(walletId)}: payments on ${text(network)} go to ${text(address)}. ` +
            'Next: `tollkeeper provider endpoint --url https://… --price 0.01`',
        ],
      },
      list: list('wallets', 'walletId', 'network', 'address', 'createdAt', 'retiredAt'),
      replace: {
        does: 'PATCH wallets/:id',
        text: [
          'move payments to another address',
          `Replaces a wallet by another address, in all endpoints at once. Payments that were challenged or accepted before settle to
the previous address.`,
        ],
        options: [required('--address <address>', 'the new address')],
        example: exampleAddress,
        done: ({ walletId, address }) => [`New payments go to ${text(address)}, wallet ${text(walletId)}`],
      },
      retire: {
        does: 'DELETE wallets/:id',
        text: ['retire a wallet', 'Retires a wallet that no endpoint uses.'],
        done: (_, id) => [`Retired ${printable(id)}`],
      },
    },
  },
  endpoint: {
    text: [
      'endpoints and their prices',
      'Registers an endpoint that buyers pay for, and lists or changes endpoints.',
    ],
    prefix: 'ep_',
    actions: {
      add: {
        does: 'POST endpoints',
        text: ['register an endpoint', 'Registers an endpoint; `add` may be omitted.'],
        options: endpointOptions(true),
        toBody: toEndpoint,
        fields: endpointFields,
        example: '--url https://weather.example/forecast --method GET --price 0.01',
        done: ({ endpointId, method, url, pricing, sharesPathWith }) => [
          `Registered ${text(endpointId)}: ${text(method)} ${text(url)} costs ${priceIn(pricing)} USDC. ` +
            'Next: add the middleware to your server, then `tollkeeper price <url>`',
          ...sharedPaths(sharesPathWith),
        ],
      },
      list: {
        ...list('endpoints', 'endpointId', 'method', 'url', 'pricing.usdcPerUnit', 'network', 'disabledAt'),
        text: [
          'list all endpoints',
          'Lists all endpoints that were registered, oldest first, and whether the catalog lists them. If an endpoint is not listed, ' +
            'or is unproven and therefore listed last, the command prints why and what to do.',
        ],
        render: renderEndpoints,
      },
      check: {
        does: 'POST endpoints/:id/check',
        text: [
          'check now why an endpoint is not listed',
          "Lets the gateway request the endpoint's URL now, without a payment, and prints what it found.",
        ],
        status: 200,
        render: renderCheck,
      },
      update: {
        does: 'PATCH endpoints/:id',
        text: [
          'change the terms of an endpoint',
          'Changes an endpoint. New challenges have the new terms; challenges that buyers already have keep theirs.',
        ],
        options: endpointOptions(false),
        toBody: toEndpoint,
        fields: endpointFields,
        example: '--price 0.02 --if-version 3',
        isVersioned: true,
        done: (answer) => [...changed(answer), ...sharedPaths(answer.sharesPathWith)],
      },
      disable: {
        does: 'PATCH endpoints/:id',
        text: [
          'stop selling an endpoint',
          'Refuses new challenges. Challenges that buyers already have can be paid until they expire after five minutes.',
        ],
        toBody: () => ({ disabled: true }),
        done: (_, id) => [
          `Disabled ${printable(id)}. Sell it again: \`tollkeeper provider endpoint enable ${printable(id)}\``,
        ],
      },
      enable: {
        does: 'PATCH endpoints/:id',
        text: ['sell an endpoint again', 'Sells a disabled endpoint again.'],
        toBody: () => ({ disabled: false }),
        done: (_, id) => [`Enabled ${printable(id)}`],
      },
    },
  },
  upstream: {
    text: [
      'the server behind the gateway, to sell without code',
      'Registers the server that the gateway forwards paid requests to, instead of a middleware.',
    ],
    actions: {
      set: {
        does: 'PUT upstream',
        text: [
          'register the server',
          'Registers the server or replaces it; `set` may be omitted. The first secret is shown only this once.',
        ],
        options: [
          required('--url <url>', 'https and public; its path is prepended to the path of each request'),
          new Option('--accept-x402-v1', 'let clients of x402 v1 pay as well'),
          new Option('--no-accept-x402-v1', 'let only our SDK and clients of x402 v2 pay'),
          new Option(
            '--forward-authorization',
            'callers log in to the server: pass Basic logins on, and charge nothing for 401 and 403',
          ),
          new Option('--no-forward-authorization', 'callers do not log in to the server'),
        ],
        example: '--url https://origin.weather.example',
        done: ({ url, secret }) => [
          `Paid requests go to ${text(url)}. Next: let your server accept only requests that carry the secret`,
          ...(secret === undefined ? [] : secretLines('secret', secret)),
        ],
      },
      show: { does: 'GET upstream', text: ['show the server', 'Shows the server, without its secret.'] },
      rotate: {
        does: 'POST upstream/secret',
        text: [
          'create a new secret',
          'Creates a new secret. For a day, requests carry the previous secret as well.',
        ],
        done: ({ secret }) => [
          'Requests carry the previous secret for another day. Next: let your server accept the new secret',
          ...secretLines('secret', secret),
        ],
      },
      remove: {
        does: 'DELETE upstream',
        text: [
          'stop forwarding',
          'Removes the server. The gateway then refuses requests for endpoints that are sold without code.',
        ],
        done: () => ['Removed the server'],
      },
    },
  },
  hook: {
    text: [
      'the URL that decides about payments',
      'Registers the URL that the gateway asks before it accepts a payment of the provider: docs/before-accept.md.',
    ],
    actions: {
      set: {
        does: 'PUT hook',
        text: [
          'register the URL',
          'Registers the URL or replaces it; `set` may be omitted. The first secret is shown only this once.',
        ],
        options: [
          required('--url <url>', 'https and public'),
          new Option(
            '--headers <names...>',
            'request headers to send to the hook, for endpoints sold without code',
          ),
          new Option('--on-failure <rule>', 'refuse or accept payments if the URL gives no decision').choices(
            ['refuse', 'accept'],
          ),
        ],
        example: '--url https://weather.example/before-accept --headers x-api-key',
        done: ({ url, secret }) => [
          `${text(url)} now decides which payments are accepted. Next: \`tollkeeper provider hook test\``,
          ...(secret === undefined ? [] : secretLines('secret', secret)),
        ],
      },
      show: { does: 'GET hook', text: ['show the URL', 'Shows the URL, without its secret.'] },
      test: {
        does: 'POST hook/test',
        text: [
          'ask the URL about a test payment',
          'Asks the URL about a made-up payment by the zero address, and shows its decision, or why its response is not a valid decision.',
        ],
        status: 200,
      },
      rotate: {
        does: 'POST hook/secret',
        text: [
          'create a new secret',
          'Creates a new secret. For a day, requests to the hook also carry a signature with the previous secret.',
        ],
        done: ({ secret }) => [
          'Requests to the hook also carry a signature with the previous secret for another day. Next: let your hook accept the new secret',
          ...secretLines('secret', secret),
        ],
      },
      remove: {
        does: 'DELETE hook',
        text: ['remove the URL', 'Removes the URL. Payments are then accepted without a decision.'],
        done: () => ['Removed the hook'],
      },
    },
  },
  webhook: {
    text: [
      'URLs that receive events',
      'Registers a URL that the gateway notifies of settlements, and lists or changes webhooks.',
    ],
    prefix: 'wh_',
    actions: {
      add: {
        does: 'POST webhooks',
        text: [
          'register a URL',
          'Registers a URL; `add` may be omitted. The secret that signs its messages is shown only this once.',
        ],
        options: [
          required('--url <url>', 'https and public'),
          new Option('--events <events...>', 'only these events, such as payment.settled (default: all)'),
          new Option('--description <text>', 'description in the list'),
        ],
        example: '--url https://weather.example/tollkeeper',
        done: ({ webhookId, url, secret }) => [
          `Registered ${text(webhookId)} for ${text(url)}. Next: \`tollkeeper webhook test --webhook ${text(webhookId)}\``,
          ...secretLines('secret', secret),
        ],
      },
      list: list('webhooks', 'webhookId', 'url', 'events', 'description', 'disabledAt'),
      rotate: {
        does: 'POST webhooks/:id/rotate',
        text: [
          'create a new secret',
          'Creates a new secret. For a day, messages also carry a signature with the previous secret. Enables a disabled webhook again.',
        ],
        status: 200,
        done: ({ secret }) => [
          'Messages also carry a signature with the previous secret for another day. Next: let your receiver accept the new secret',
          ...secretLines('secret', secret),
        ],
      },
      remove: {
        does: 'DELETE webhooks/:id',
        text: ['remove a webhook', 'Removes a webhook. Messages that were not delivered yet are dropped.'],
        done: (_, id) => [`Removed ${printable(id)}`],
      },
    },
  },
  key: {
    text: ['API keys', "Issues, lists and revokes a provider's API keys."],
    prefix: 'key_',
    actions: {
      add: {
        does: 'POST keys',
        text: [
          'issue another key, as the provider',
          'Issues another API key. The command needs a valid API key. The new key is shown only this once.',
        ],
        options: [new Option('--label <text>', 'label in the list'), scopeOption()],
        example: '--scope read',
        done: ({ keyId, scope, apiKey }) => [
          `Issued ${text(keyId)} (${text(scope)})`,
          ...secretLines('API key', apiKey),
        ],
      },
      list: list('keys', 'keyId', 'label', 'scope', 'createdAt', 'revokedAt'),
      revoke: {
        does: 'DELETE keys/:id',
        text: ['revoke a key', 'Revokes an API key permanently. The gateway refuses it within two seconds.'],
        options: [
          new Option('--force', 'also revoke the last key; then only the operator can issue a new one'),
        ],
        done: (_, id) => [`Revoked ${printable(id)}. The gateway refuses it within two seconds`],
      },
    },
  },
}

/** Warns about endpoints with the same path on other hosts, because a middleware by itself can't distinguish them. */
function sharedPaths(sharesPathWith: unknown): string[] {
  if (!Array.isArray(sharesPathWith) || sharesPathWith.length === 0) return []
  const others = sharesPathWith.filter(isRecord).map((one) => `${text(one.endpointId)} (${text(one.url)})`)
  return [
    `Other endpoints have the same path on another host: ${others.join(', ')}. Set publicUrl or endpointId in the middleware of each ` +
      'endpoint. Otherwise its requests are refused (endpoint_ambiguous)',
  ]
}

const endpointColumns = [
  'endpointId',
  'method',
  'url',
  'pricing.usdcPerUnit',
  'network',
  'disabledAt',
  'catalogue',
]

function renderEndpoints({ endpoints }: Record<string, unknown>): string {
  const rows = (endpoints as Record<string, unknown>[]).map((one) => {
    const fields = endpointColumns.slice(0, -1).map((field) => text(read(one, field) ?? ''))
    return { fields: [...fields, placeInCatalog(one)], notes: notesOf(one) }
  })
  const table = formatTable(
    endpointColumns,
    rows.map(({ fields }) => fields),
  )
  const notes = rows.flatMap(({ fields: [id], notes }) => notes.map((note) => `${id}: ${note}`))
  return [table, ...notes].join('\n')
}

/** Returns an endpoint's place in the catalog, in a word. */
function placeInCatalog({ listing, proof }: Record<string, unknown>): string {
  // A gateway of an older version doesn't report the state.
  if (!isRecord(listing)) return ''
  if (listing.status !== 'listed') return 'not listed'
  return isRecord(proof) && proof.status === 'unproven' ? 'listed last' : 'listed'
}

/** Returns the reason why an endpoint isn't listed, or is listed last because it isn't proven, and what to do. */
function notesOf({ listing, proof }: Record<string, unknown>): string[] {
  const reasons = isRecord(listing) && Array.isArray(listing.reasons) ? listing.reasons.filter(isRecord) : []
  const unlisted = reasons.map(({ message, advice }) => `${text(message)} ${text(advice)}`)
  const isListed = unlisted.length === 0
  if (!isListed || !isRecord(proof) || proof.finding === null) return unlisted
  return [`${text(proof.finding)} ${proof.advice === null ? '' : text(proof.advice)}`.trim()]
}

const severityMarks: Readonly<Record<string, string>> = { error: '✗', warning: '!', ok: '✓' }

function renderCheck({ endpoint, findings }: Record<string, unknown>): string {
  const lines = (findings as Record<string, unknown>[]).map(({ severity, message, advice }) => {
    const next = severity === 'ok' || advice === null ? '' : `\n  → ${text(advice)}`
    return `${severityMarks[String(severity)] ?? ' '} ${text(message)}${next}`
  })
  const found = isRecord(endpoint) ? endpoint : {}
  const unlisted = isRecord(found.listing) && found.listing.status !== 'listed' ? notesOf(found) : []
  return [...lines, ...unlisted.map((note) => `✗ ${note}`), `In the catalog: ${placeInCatalog(found)}`].join(
    '\n',
  )
}

function priceIn(pricing: unknown): string {
  return isRecord(pricing) ? text(pricing.usdcPerUnit) : ''
}

/** Reads a field of a row. `a.b` means the field `b` of the field `a`. */
function read(row: unknown, field: string): unknown {
  return field.split('.').reduce((value, name) => (value as Record<string, unknown>)[name], row)
}

/** Creates the command that lists a collection. @param fields the fields of each row, in the form that {@link read} reads. */
function list(collection: string, ...fields: string[]): Action {
  return {
    does: `GET ${collection}`,
    text: [`list all ${collection}`, `Lists all ${collection} that were registered, oldest first.`],
    render: (answer) => {
      const rows = answer[collection] as unknown[]
      return formatTable(
        fields,
        rows.map((row) => fields.map((field) => text(read(row, field) ?? ''))),
      )
    },
  }
}

type Change = {
  changedAt: string
  by: string
  subject: string
  before: Record<string, unknown> | null
  after: Record<string, unknown>
}

function renderChanges(answer: Record<string, unknown>): string {
  const { changes, cursor } = answer as { changes: Change[]; cursor: string | null }
  const rows = changes.flatMap(({ changedAt, by, subject, before, after }) =>
    Object.entries(after).map(([field, value]) => [
      ...[changedAt, by, subject, field],
      before === null ? '(new)' : text(before[field]),
      text(value),
    ]),
  )
  const next = cursor === null ? '' : `\nMore: --cursor ${printable(cursor)}`
  return formatTable(['when', 'who', 'what', 'field', 'before', 'after'], rows) + next
}

function text(value: unknown): string {
  return printable(typeof value === 'string' ? value : JSON.stringify(value))
}
