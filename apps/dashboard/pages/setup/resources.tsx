import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { countOf, nameNetwork, writeUsdc } from '../../display/format.ts'
import { href } from '../../display/routing.ts'
import type {
  ApiKey,
  Endpoint,
  EndpointList,
  Home,
  IssuedApiKey,
  Wallet,
  WalletList,
  Webhook,
  WebhookWithSecret,
} from '../../gateway/answers.ts'
import { type Act, type Done, say, toggle, versioned } from '../../parts/acts.tsx'
import { Code, Copyable, State, Time } from '../../parts/bits.tsx'
import { endpointFields, walletFields } from './fields.ts'
import type { Desk, Resource } from './Setup.tsx'

type Endpoints = EndpointList & WalletList

export const endpoints: Resource<Endpoints, Endpoint> = {
  page: 'endpoints',
  async read({ gateway, path }, signal) {
    const [{ endpoints }, { wallets }] = await Promise.all([
      gateway.get<EndpointList>(`${path}/endpoints`, signal),
      gateway.get<WalletList>(`${path}/wallets`, signal),
    ])
    return { endpoints, wallets: wallets.filter(({ retiredAt }) => retiredAt === null) }
  },
  add: ({ wallets }, { gateway, path }) => ({
    button: 'Add an endpoint',
    title: 'Add an endpoint',
    ...(wallets.length === 0 && {
      text: (
        <p>
          Say first where the money goes: <a href={href('setup', 'wallets')}>register a wallet</a>.
        </p>
      ),
    }),
    fields: endpointFields(wallets),
    action: 'Add the endpoint',
    send: (body) => say(gateway.post(`${path}/endpoints`, body), 'The endpoint is registered.'),
  }),
  items: ({ endpoints }) => endpoints,
  empty: {
    title: 'No endpoint yet',
    text: (
      <>
        An endpoint is a URL of your API and what a request to it costs.{' '}
        <a href={href('start')}>The first steps</a> lead through everything.
      </>
    ),
  },
  keyOf: ({ endpointId }) => endpointId,
  isOff: ({ disabledAt }) => disabledAt !== null,
  columns: () => [
    [
      'Endpoint',
      ({ method, url, description, proof }) => (
        <Described by={[description, findingOf(proof)].filter(Boolean).join(' · ')}>
          <Code>{`${method === '*' ? 'any' : method} ${url}`}</Code>
        </Described>
      ),
      'wrap',
    ],
    ['Price, USDC', ({ pricing }) => writeUsdc(parseUsdc(pricing.usdcPerUnit)), 'number'],
    ['Paid on', ({ networks }) => networks.map(({ network }) => nameNetwork(network)).join(', ')],
    ['Id', ({ endpointId }) => <Copyable text={endpointId} />],
    ['State', ({ disabledAt }) => <State isOn={disabledAt === null} yes="on sale" no="disabled" />],
  ],
  acts(endpoint, { wallets }, { gateway, path }) {
    const at = `${path}/endpoints/${endpoint.endpointId}`
    return [
      versioned(gateway, at, endpoint, (now, patch) => ({
        button: 'Edit',
        of: now.url,
        title: 'Change an endpoint',
        fields: endpointFields(wallets, now),
        action: 'Save',
        send: (_, changed) =>
          say(
            patch(changed),
            'The endpoint is changed. New challenges have its new terms within two seconds.',
          ),
      })),
      versioned(gateway, at, endpoint, ({ url, disabledAt }, patch) =>
        toggle(disabledAt, patch, url, {
          off: ['Disable', 'Disable this endpoint?', 'Disable it', 'The endpoint is disabled.'],
          on: ['Enable', 'Sell this endpoint again?', 'Enable it', 'The endpoint is on sale again.'],
          text: about(
            url,
            disabledAt === null
              ? 'Requests to it are refused from now on. Challenges that are out may be paid for five more minutes, and what was paid settles as usual.'
              : 'Requests to it are answered with its price again.',
          ),
        }),
      ),
    ]
  },
}

type Wallets = WalletList & EndpointList & { home: Home }

export const wallets: Resource<Wallets, Wallet> = {
  page: 'wallets',
  async read({ gateway, path }, signal) {
    const [{ wallets }, { endpoints }, home] = await Promise.all([
      gateway.get<WalletList>(`${path}/wallets`, signal),
      gateway.get<EndpointList>(`${path}/endpoints`, signal),
      gateway.get<Home>('', signal),
    ])
    return { wallets, endpoints, home }
  },
  add: ({ home }, { gateway, path }) => ({
    button: 'Add a wallet',
    title: 'Add a wallet',
    fields: walletFields(home),
    action: 'Add the wallet',
    send: (body) => say(gateway.post(`${path}/wallets`, body), 'The wallet is registered.'),
  }),
  items: ({ wallets }) => wallets,
  empty: { title: 'No wallet yet', text: 'A wallet is the address on a network that buyers’ USDC goes to.' },
  keyOf: ({ walletId }) => walletId,
  isOff: ({ retiredAt }) => retiredAt !== null,
  columns: ({ endpoints }) => [
    ['Address', ({ address }) => <Copyable text={address} />],
    ['Network', ({ network }) => nameNetwork(network)],
    [
      'Endpoints',
      ({ walletId }) =>
        endpoints.filter(({ networks }) => networks.some((paid) => paid.walletId === walletId)).length,
      'number',
    ],
    ['Since', ({ createdAt }) => <Time at={createdAt} />],
    ['State', ({ retiredAt }) => <State isOn={retiredAt === null} yes="in use" no="retired" />],
  ],
  acts({ walletId, address, network, retiredAt }, _, { gateway, path }) {
    if (retiredAt !== null) return []
    const at = `${path}/wallets/${walletId}`
    return [
      {
        button: 'Replace',
        of: address,
        title: 'Replace a wallet',
        text: about(
          `${address} on ${nameNetwork(network)}`,
          'It is retired, and every endpoint that uses it goes over to the new address. What was challenged or paid before settles to the old one: keep its key.',
        ),
        fields: [{ name: 'address', label: 'New address', placeholder: '0x…' }],
        action: 'Replace it',
        async send(body) {
          const { endpoints } = await gateway.patch<{ endpoints: string[] }>(at, body)
          return { said: `The wallet is replaced, in ${countOf(endpoints.length, 'endpoint')}.` }
        },
      },
      {
        button: 'Retire',
        of: address,
        title: 'Retire this wallet?',
        text: about(address, 'No endpoint may use it any more. What was signed for it still settles to it.'),
        action: 'Retire it',
        isDanger: true,
        send: () => say(gateway.delete(at), 'The wallet is retired.'),
      },
    ]
  },
}

type Keys = { keys: ApiKey[] }

export const keys: Resource<Keys, ApiKey> = {
  page: 'keys',
  read: ({ gateway, path }, signal) => gateway.get<Keys>(`${path}/keys`, signal),
  add: (_, { gateway, path }) => ({
    button: 'Issue a key',
    title: 'Issue an API key',
    fields: [
      {
        name: 'label',
        label: 'Label',
        note: 'What it is for, such as the server that uses it. May be empty.',
      },
      {
        name: 'scope',
        label: 'It may',
        value: 'full',
        options: [
          ['full', 'sell, and change everything here'],
          ['read', 'read payments and statements only'],
        ],
      },
    ],
    action: 'Issue it',
    async send(body) {
      const { apiKey } = await gateway.post<IssuedApiKey>(`${path}/keys`, body)
      return { said: 'The key is issued.', secret: { title: 'Your new API key', text: apiKey } }
    },
  }),
  items: ({ keys }) => keys,
  keyOf: ({ keyId }) => keyId,
  isOff: ({ revokedAt }) => revokedAt !== null,
  columns: (_, desk) => [
    ['Key', ({ keyId }) => <Copyable text={keyId} />],
    [
      'Label',
      ({ keyId, label }) => (
        <>
          <span class="break">{label || '–'}</span>
          {keyId === desk.keyId && <span class="note"> you are signed in with it</span>}
        </>
      ),
      'wrap',
    ],
    ['Issued', ({ createdAt }) => <Time at={createdAt} />],
    [
      'State',
      ({ revokedAt, scope }) => (
        <State isOn={revokedAt === null} yes={scope === 'read' ? 'may read' : 'in force'} no="revoked" />
      ),
    ],
  ],
  acts({ keyId, label, revokedAt }, { keys }, desk) {
    if (revokedAt !== null) return []
    const usable = keys.filter((key) => key.revokedAt === null && key.scope === 'full')
    const isLast = usable.length === 1 && usable[0]?.keyId === keyId
    return [
      {
        button: 'Revoke',
        of: label || keyId,
        title: isLast ? 'Revoke your last key?' : 'Revoke this key?',
        text: about(
          `${keyId} ${label}`,
          isLast
            ? 'There is no other key in force that may change anything. Without one, nobody can change anything here, and only the operator can issue another.'
            : 'Whoever uses it is refused, for good.',
        ),
        action: isLast ? 'Revoke it and lock myself out' : 'Revoke it',
        isDanger: true,
        async send() {
          // Does what the user was shown; whether this is the last key, the gateway decides.
          await desk.gateway.delete(`${desk.path}/keys/${keyId}${isLast ? '?force=true' : ''}`)
          if (keyId === desk.keyId) desk.end('You revoked the API key that you were signed in with.')
          return { said: 'The key is revoked; it is refused within two seconds.' }
        },
      },
    ]
  },
}

/** All events that the api knows, which the type checker compares. */
const eventNames: Record<Webhook['events'][number], string> = {
  'payment.settled': 'A payment has settled',
  'payment.reverted': 'A reorg took a settlement back',
  'tab.closed': 'A tab has closed, and waits for its settlement',
  'tab.settled': 'A tab has settled',
  'tab.reverted': 'A reorg took a tab’s settlement back',
  'batch.confirmed': 'A batch is final',
  'settlement.failing': 'A payment failed three times, and is tried again',
  'settlement.failed': 'A payment’s retries are used up',
  'refund.settled': 'A refund has settled',
  'refund.reverted': 'A reorg took a refund back',
  'refund.failing': 'A refund failed three times, and is tried again',
  'refund.failed': 'A refund’s retries are used up',
}

export function listEvents(events: Webhook['events']): string {
  return events.length === Object.keys(eventNames).length ? 'all' : events.join(', ')
}

type Webhooks = { webhooks: Webhook[] }

export const webhooks: Resource<Webhooks, Webhook> = {
  page: 'webhooks',
  read: ({ gateway, path }, signal) => gateway.get<Webhooks>(`${path}/webhooks`, signal),
  add: (_, desk) => ({
    button: 'Add a webhook',
    title: 'Add a webhook',
    fields: [
      {
        name: 'url',
        label: 'URL',
        inputMode: 'url',
        placeholder: 'https://api.example/tollkeeper',
        note: 'https, and reachable from everywhere.',
      },
      {
        name: 'events',
        label: 'Tell it when',
        value: Object.keys(eventNames).join(' '),
        isMany: true,
        options: Object.entries(eventNames),
      },
      { name: 'description', label: 'Description', note: 'May be empty.' },
    ],
    action: 'Add the webhook',
    send: (body) => askForSecret(desk, 'webhooks', body),
  }),
  items: ({ webhooks }) => webhooks,
  empty: {
    title: 'No webhook yet',
    text: 'A webhook is a URL of yours that is told when payments settle or fail.',
  },
  keyOf: ({ webhookId }) => webhookId,
  isOff: ({ disabledAt }) => disabledAt !== null,
  columns: () => [
    [
      'URL',
      ({ webhookId, url, description }) => (
        <Described by={description}>
          <a class="code break" href={href('setup', 'webhooks', webhookId)}>
            {url}
          </a>
        </Described>
      ),
      'wrap',
    ],
    ['Events', ({ events }) => listEvents(events), 'wrap'],
    ['Since', ({ createdAt }) => <Time at={createdAt} />],
    ['State', ({ disabledAt }) => <State isOn={disabledAt === null} yes="in force" no="disabled by a 410" />],
  ],
  acts: ({ webhookId, url }, _, desk) => [
    {
      button: 'Rotate',
      of: `the secret of ${url}`,
      title: 'Rotate this webhook’s secret?',
      text: about(
        url,
        'For 24 hours messages are signed with both secrets, so that your receiver misses none. One that was disabled by its answer 410 is told again.',
      ),
      action: 'Rotate it',
      send: () => askForSecret(desk, `webhooks/${webhookId}/rotate`),
    },
    {
      button: 'Delete',
      of: url,
      title: 'Delete this webhook?',
      text: about(url, 'What waits to be sent to it is dropped, and its log goes with it.'),
      action: 'Delete it',
      isDanger: true,
      send: () => say(desk.gateway.delete(`${desk.path}/webhooks/${webhookId}`), 'The webhook is deleted.'),
    },
  ],
}

async function askForSecret({ gateway, path }: Desk, what: string, body?: object): Promise<Done> {
  const { secret } = await gateway.post<WebhookWithSecret>(`${path}/${what}`, body)
  const note =
    'Your receiver checks with it that messages are ours. It is not shown again; a rotation makes a new one.'
  return { said: 'The secret is in force.', secret: { title: 'The webhook’s secret', text: secret, note } }
}

/** Why catalogues show an endpoint as unproven; undefined if there is nothing to say. */
function findingOf(proof: Endpoint['proof']): string | undefined {
  return proof?.status === 'unproven' ? `Not proven in catalogues: ${proof.finding}` : undefined
}

function Described({ by, children }: { by: string; children: preact.ComponentChildren }) {
  return (
    <>
      {children}
      {by !== '' && <p class="note break">{by}</p>}
    </>
  )
}

/** A dialog's subject, and what follows from it. */
function about(what: string, consequence: string): Act['text'] {
  return (
    <>
      <p>
        <Code>{what}</Code>
      </p>
      <p>{consequence}</p>
    </>
  )
}
