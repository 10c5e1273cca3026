import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { InvalidArgumentError, Option } from 'commander'
import { formatTable, printable } from '../terminal/output.ts'
import { parsePrice } from './gateway.ts'

/** One command, which is one request of the gateway's API. */
export type Action = {
  /** Method and path below the provider's own; `:id` is the command's argument. */
  does: string
  /** What it is for, in the list of commands and in its own help. */
  text: [summary: string, about: string]
  /** The fields of the request's body, or of the query of GET and DELETE. */
  options?: Option[]
  toBody?: (flags: Record<string, unknown>) => Record<string, unknown>
  /** Flags of the example in its help, after the id and `--provider`. */
  example?: string
  /** Status of the answer, unless it is the usual one: 201 for POST, else 200 or 204. */
  status?: number
  /** Whether it takes `--if-version`. */
  isVersioned?: true
  /** Formats the answer without `--json`, unless that is one line a field. */
  render?: (answer: Record<string, unknown>) => string
}

export type Actions = Record<string, Action>

/** A group of commands. */
export type Resource = {
  text: [summary: string, about: string]
  /** Prefix of its ids. */
  prefix?: string
  /** By the words that one types. The name of the first may be left out. */
  actions: Actions
}

const required = (flags: string, about: string) => new Option(flags, about).makeOptionMandatory()
const networkOption = (about: string) => new Option('--network <name>', about).choices(networkNames)
export const scopeOption = () =>
  new Option('--scope <scope>', 'read: it shows, and changes nothing').choices(['full', 'read'])
const exampleAddress = '--address 0x1000000000000000000000000000000000000001'

/** Actions on the provider itself: `provider show`. */
export const providerActions: Actions = {
  show: { does: 'GET ', text: ['what is registered', 'Shows the provider.'] },
  update: {
    does: 'PATCH ',
    text: ['change it', 'Changes what is registered of a provider.'],
    options: [
      new Option('--name <name>', 'as shown to buyers'),
      new Option('--contact <contact>', 'where to reach you'),
      new Option('--requires-key', '/verify takes its API key only'),
      new Option('--no-requires-key', '/verify takes anybody'),
      new Option('--own-middleware', 'it verifies by a middleware of its own, which gets time to void'),
      new Option('--no-own-middleware', 'it verifies by our middleware, or without code'),
      new Option('--listed', 'buyers can find what it sells'),
      new Option('--no-listed', 'nobody finds it'),
      new Option('--service-name <name>', 'in catalogues, at most 32 characters of ASCII'),
      new Option('--tags <tags...>', 'in catalogues, at most five'),
      new Option('--icon-url <url>', 'in catalogues'),
      new Option(
        '--ownership-proof <origin=signature...>',
        'an origin, and its signature by one of your wallets (EIP-191)',
      ),
    ],
    toBody: toProvider,
    example: '--name "Weather, Inc." --tags weather data',
    isVersioned: true,
  },
  changes: {
    does: 'GET changes',
    text: [
      'who changed what, and when',
      'Shows what was changed of the provider, its wallets, endpoints and keys; the newest first.',
    ],
    options: [
      new Option('--limit <number>', 'how many').default('20'),
      new Option('--cursor <cursor>', 'goes on where the page before ended'),
    ],
    render: renderChanges,
  },
}

function toProvider({ ownershipProof, ...fields }: Record<string, unknown>) {
  if (ownershipProof === undefined) return fields
  const ownershipProofs = (ownershipProof as string[]).map((text) => {
    const at = text.lastIndexOf('=')
    return { origin: text.slice(0, Math.max(at, 0)), signature: text.slice(at + 1) }
  })
  return { ...fields, ownershipProofs }
}

const jsonOption = (flags: string, about: string) => new Option(flags, about).argParser(parseJson)

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new InvalidArgumentError('expected JSON')
  }
}

const endpointOptions = (isNew: boolean) => [
  new Option(
    '--url <url>',
    'full URL, or a path of your upstream; it may hold :name, and end in *',
  ).makeOptionMandatory(isNew),
  new Option('--price <usdc>', 'decimal USDC a request').argParser(parsePrice).makeOptionMandatory(isNew),
  new Option('--method <method>', 'GET, POST, PUT, PATCH, DELETE, or * for any'),
  new Option('--wallet <id>', "one of the provider's wallets (default: its oldest)"),
  networkOption('the oldest wallet on this network'),
  new Option('--description <text>', 'shown in challenges'),
  new Option('--mime-type <type>', 'of what is sold'),
  new Option('--listed', 'buyers can find it'),
  new Option('--no-listed', 'nobody finds it'),
  jsonOption('--input-schema <json>', 'JSON Schema of its query, or of its body'),
  jsonOption('--input-example <json>', 'what follows it'),
  jsonOption('--output-schema <json>', 'JSON Schema of its answer'),
  jsonOption('--output-example <json>', 'an answer'),
]

function toEndpoint({ price, wallet, ...terms }: Record<string, unknown>) {
  return { ...terms, walletId: wallet, pricing: price === undefined ? undefined : { usdcPerUnit: price } }
}

export const resources: Record<string, Resource> = {
  wallet: {
    text: [
      'a wallet to be paid on',
      "Registers a wallet that the provider's payments go to, lists or changes them.",
    ],
    prefix: 'wal_',
    actions: {
      add: {
        does: 'POST wallets',
        text: ['register one', 'Registers a wallet; `add` may be left out.'],
        options: [
          networkOption('its network').makeOptionMandatory(),
          required('--address <address>', 'its address'),
        ],
        example: `--network base ${exampleAddress}`,
      },
      list: list('wallets', 'walletId', 'network', 'address', 'createdAt', 'retiredAt'),
      replace: {
        does: 'PATCH wallets/:id',
        text: [
          'be paid to another address',
          `Replaces a wallet by another address, in all endpoints at once. What was challenged or accepted before settles to
the old one.`,
        ],
        options: [required('--address <address>', 'the new address')],
        example: exampleAddress,
      },
      retire: {
        does: 'DELETE wallets/:id',
        text: ['use it no more', 'Retires a wallet that no endpoint uses.'],
      },
    },
  },
  endpoint: {
    text: ['an endpoint and its price', 'Registers an endpoint that buyers pay for, lists or changes them.'],
    prefix: 'ep_',
    actions: {
      add: {
        does: 'POST endpoints',
        text: ['register one', 'Registers an endpoint; `add` may be left out.'],
        options: endpointOptions(true),
        toBody: toEndpoint,
        example: '--url https://weather.example/forecast --method GET --price 0.01',
      },
      list: list('endpoints', 'endpointId', 'method', 'url', 'pricing.usdcPerUnit', 'network', 'disabledAt'),
      update: {
        does: 'PATCH endpoints/:id',
        text: [
          'change its terms',
          'Changes an endpoint. New challenges have the new terms; those that are out keep theirs.',
        ],
        options: endpointOptions(false),
        toBody: toEndpoint,
        example: '--price 0.02 --if-version 3',
        isVersioned: true,
      },
      disable: {
        does: 'PATCH endpoints/:id',
        text: [
          'sell it no more',
          'Refuses new challenges. Those that are out may be paid until they expire, in five minutes.',
        ],
        toBody: () => ({ disabled: true }),
      },
      enable: {
        does: 'PATCH endpoints/:id',
        text: ['sell it again', 'Sells an endpoint again that was disabled.'],
        toBody: () => ({ disabled: false }),
      },
    },
  },
  upstream: {
    text: [
      'a server to sell without code',
      'Registers the server that the gateway passes paid requests on to, in the place of a middleware.',
    ],
    actions: {
      set: {
        does: 'PUT upstream',
        text: [
          'register it',
          'Registers the server, or another one; `set` may be left out. The secret of the first is shown this once.',
        ],
        options: [
          required('--url <url>', 'https and public; its path is put before that of a request'),
          new Option('--body <form>', 'x402-v1: clients of x402 v1 pay, too').choices([
            'tollkeeper',
            'x402-v1',
          ]),
        ],
        example: '--url https://origin.weather.example',
      },
      show: { does: 'GET upstream', text: ['what is registered', 'Shows the server, without its secret.'] },
      rotate: {
        does: 'POST upstream/secret',
        text: ['a new secret', 'Makes a new secret. For a day, requests carry the one before as well.'],
      },
      remove: {
        does: 'DELETE upstream',
        text: [
          'pass nothing on any more',
          'Removes the server. What is sold without code is refused from then on.',
        ],
      },
    },
  },
  webhook: {
    text: [
      'a URL that is told of settlements',
      'Registers a URL that the gateway tells of settlements, lists or changes them.',
    ],
    prefix: 'wh_',
    actions: {
      add: {
        does: 'POST webhooks',
        text: [
          'register one',
          'Registers a URL; `add` may be left out. The secret that signs its messages is shown this once.',
        ],
        options: [
          required('--url <url>', 'https and public'),
          new Option('--events <events...>', 'only these, such as payment.settled (default: all)'),
          new Option('--description <text>', 'shown in the list'),
        ],
        example: '--url https://weather.example/tollkeeper',
      },
      list: list('webhooks', 'webhookId', 'url', 'events', 'description', 'disabledAt'),
      rotate: {
        does: 'POST webhooks/:id/rotate',
        text: [
          'a new secret',
          'Makes a new secret; for a day the one before signs as well. Enables a webhook that was switched off.',
        ],
        status: 200,
      },
      remove: {
        does: 'DELETE webhooks/:id',
        text: ['tell it nothing any more', 'Removes a webhook. What waits for it is dropped.'],
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
          'issue a further one, as the provider',
          'Issues a further API key, by one that is valid. It is shown this once.',
        ],
        options: [new Option('--label <text>', 'shown in the list'), scopeOption()],
        example: '--scope read',
      },
      list: list('keys', 'keyId', 'label', 'scope', 'createdAt', 'revokedAt'),
      revoke: {
        does: 'DELETE keys/:id',
        text: ['refuse it from now on', 'Revokes an API key, for good: within two seconds it is refused.'],
        options: [new Option('--force', 'also the last one: only the operator can issue another then')],
      },
    },
  },
}

/** @param fields of each row; `a.b` is a field of a field. */
function list(collection: string, ...fields: string[]): Action {
  const read = (row: unknown, field: string) =>
    field.split('.').reduce((value, name) => (value as Record<string, unknown>)[name], row)
  return {
    does: `GET ${collection}`,
    text: ['all of them', `Lists all ${collection} that were registered, the oldest first.`],
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
