import { countOf, nameNetwork } from '../../display/format.ts'
import { href } from '../../display/routing.ts'
import type {
  ApiKey,
  EndpointList,
  Home,
  IssuedApiKey,
  Wallet,
  WalletList,
  Webhook,
  WebhookWithSecret,
} from '../../gateway/answers.ts'
import { type Action, type Done, say } from '../../parts/actions.tsx'
import { Code, Copyable, State, Time } from '../../parts/ui.tsx'
import { walletFields } from './fields.ts'
import type { Desk, Resource } from './Setup.tsx'

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
  empty: {
    title: 'No wallet yet',
    text: 'A wallet is the address that receives your buyers’ USDC on a network.',
  },
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
  actions({ walletId, address, network, retiredAt }, _, { gateway, path }) {
    if (retiredAt !== null) return []
    const at = `${path}/wallets/${walletId}`
    return [
      {
        button: 'Replace',
        of: address,
        title: 'Replace a wallet',
        text: about(
          `${address} on ${nameNetwork(network)}`,
          'This wallet is retired, and every endpoint that uses it switches to the new address. Earlier payments and challenges still settle to the old address: keep its key.',
        ),
        fields: [{ name: 'address', label: 'New address', placeholder: '0x…' }],
        action: 'Replace it',
        async send(body) {
          const { endpoints } = await gateway.patch<{ endpoints: string[] }>(at, body)
          return { said: `The wallet is replaced in ${countOf(endpoints.length, 'endpoint')}.` }
        },
      },
      {
        button: 'Retire',
        of: address,
        title: 'Retire this wallet?',
        text: about(
          address,
          'Endpoints can no longer use it. Payments that were signed for it still settle to it.',
        ),
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
        note: 'Its purpose, such as the server that uses it. Optional.',
      },
      {
        name: 'scope',
        label: 'Scope',
        value: 'full',
        options: [
          ['full', 'sell, and change everything here'],
          ['read', 'only read payments and statements'],
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
          {keyId === desk.keyId && <span class="note"> you are signed in with this key</span>}
        </>
      ),
      'wrap',
    ],
    ['Issued', ({ createdAt }) => <Time at={createdAt} />],
    [
      'State',
      ({ revokedAt, scope }) => (
        <State isOn={revokedAt === null} yes={scope === 'read' ? 'may read' : 'active'} no="revoked" />
      ),
    ],
  ],
  actions({ keyId, label, revokedAt }, { keys }, desk) {
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
            ? 'No other valid key has full scope. Without one, you can’t change anything here, and only the operator can issue another.'
            : 'Requests with this key will be refused permanently.',
        ),
        action: isLast ? 'Revoke it and lock myself out' : 'Revoke it',
        isDanger: true,
        async send() {
          // Does exactly what the user confirmed. The gateway decides whether this is the last key.
          await desk.gateway.delete(`${desk.path}/keys/${keyId}${isLast ? '?force=true' : ''}`)
          if (keyId === desk.keyId) desk.end('You revoked the API key that you were signed in with.')
          return { said: 'The key is revoked. It stops working within two seconds.' }
        },
      },
    ]
  },
}

/** The names of all webhook events. The type requires a name for each event that the api declares. */
const eventNames: Record<Webhook['events'][number], string> = {
  'payment.settled': 'A payment settled',
  'payment.reverted': 'A reorg reverted a settlement',
  'tab.closed': 'A tab closed and awaits settlement',
  'tab.settled': 'A tab settled',
  'tab.reverted': 'A reorg reverted a tab’s settlement',
  'batch.confirmed': 'A batch is final',
  'settlement.failing': 'A payment failed three times and is still retried',
  'settlement.failed': 'A payment failed, its retries are exhausted',
  'refund.settled': 'A refund settled',
  'refund.reverted': 'A reorg reverted a refund',
  'refund.failing': 'A refund failed three times and is still retried',
  'refund.failed': 'A refund failed, its retries are exhausted',
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
        note: 'Must use https and be publicly reachable.',
      },
      {
        name: 'events',
        label: 'Events',
        value: Object.keys(eventNames).join(' '),
        isMany: true,
        options: Object.entries(eventNames),
      },
      { name: 'description', label: 'Description', note: 'Optional.' },
    ],
    action: 'Add the webhook',
    send: (body) => askForSecret(desk, 'webhooks', body),
  }),
  items: ({ webhooks }) => webhooks,
  empty: {
    title: 'No webhook yet',
    text: 'A webhook is one of your URLs. The gateway notifies it when payments settle or fail.',
  },
  keyOf: ({ webhookId }) => webhookId,
  isOff: ({ disabledAt }) => disabledAt !== null,
  columns: () => [
    [
      'URL',
      ({ webhookId, url, description }) => (
        <Described by={description}>
          <a class="code break" href={href('developers', 'webhooks', webhookId)}>
            {url}
          </a>
        </Described>
      ),
      'wrap',
    ],
    ['Events', ({ events }) => listEvents(events), 'wrap'],
    ['Since', ({ createdAt }) => <Time at={createdAt} />],
    ['State', ({ disabledAt }) => <State isOn={disabledAt === null} yes="active" no="disabled by a 410" />],
  ],
  actions: ({ webhookId, url }, _, desk) => [
    {
      button: 'Rotate',
      of: `the secret of ${url}`,
      title: 'Rotate this webhook’s secret?',
      text: about(
        url,
        'For 24 hours, messages are signed with both secrets, so that your receiver misses none. A webhook that was disabled by a 410 response is enabled again.',
      ),
      action: 'Rotate it',
      send: () => askForSecret(desk, `webhooks/${webhookId}/rotate`),
    },
    {
      button: 'Delete',
      of: url,
      title: 'Delete this webhook?',
      text: about(url, 'Messages that wait to be sent to it are dropped, and its log is deleted.'),
      action: 'Delete it',
      isDanger: true,
      send: () => say(desk.gateway.delete(`${desk.path}/webhooks/${webhookId}`), 'The webhook is deleted.'),
    },
  ],
}

async function askForSecret({ gateway, path }: Desk, what: string, body?: object): Promise<Done> {
  const { secret } = await gateway.post<WebhookWithSecret>(`${path}/${what}`, body)
  const note =
    'Your receiver uses it to verify that messages come from this gateway. It is not shown again; rotate it to get a new one.'
  return { said: 'The secret is active.', secret: { title: 'The webhook’s secret', text: secret, note } }
}

function Described({ by, children }: { by: string; children: preact.ComponentChildren }) {
  return (
    <>
      {children}
      {by !== '' && <p class="note break">{by}</p>}
    </>
  )
}

/** Returns a dialog's text: the subject, and the consequence. */
export function about(what: string, consequence: string): Action['text'] {
  return (
    <>
      <p>
        <Code>{what}</Code>
      </p>
      <p>{consequence}</p>
    </>
  )
}
