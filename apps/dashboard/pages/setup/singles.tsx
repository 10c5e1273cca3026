import type { Home, Provider, Upstream, UpstreamWithSecret } from '../../gateway/answers.ts'
import { GatewayError } from '../../gateway/gateway.ts'
import { ActionButton } from '../../parts/ActionButton.tsx'
import { type Act, say, toggle, versioned } from '../../parts/acts.tsx'
import { Code, Copyable, State, Time } from '../../parts/bits.tsx'
import { flagField, providerFields, serviceFields } from './fields.ts'
import type { Desk, Resource } from './Setup.tsx'

/* Things of which a provider has one. */

type UpstreamData = { base: string; upstream: Upstream | null }

/** The server that gets paid requests from the gateway, instead of a middleware. */
export const upstream: Resource<UpstreamData, Upstream> = {
  page: 'upstream',
  async read({ gateway, path, provider }, signal) {
    const [home, upstream] = await Promise.all([
      gateway.get<Home>('', signal),
      gateway.get<Upstream>(`${path}/upstream`, signal).catch(noneIfUnknown),
    ])
    return { base: `${home.gatewayUrl}/p/${provider.providerId}`, upstream }
  },
  // It seldom changes, and if there is none, the browser logs each 404.
  everyMs: 60_000,
  add: ({ upstream }, { gateway, path }) => ({
    button: upstream ? 'Change its URL' : 'Register your server',
    title: 'Your server',
    fields: [
      {
        name: 'url',
        label: 'URL',
        value: upstream?.url ?? '',
        inputMode: 'url',
        placeholder: 'https://origin.example/v2',
        note: 'https, and reachable from everywhere. Its path is put before that of a request.',
      },
    ],
    action: 'Save',
    async send(body) {
      const { secret } = await gateway.put<UpstreamWithSecret>(`${path}/upstream`, body)
      return { said: 'The server is registered.', ...shown(secret) }
    },
  }),
  items: ({ upstream }) => (upstream === null ? [] : [upstream]),
  empty: {
    title: 'No server yet',
    text: 'Sell without code: buyers call the gateway, and it passes on to your server what they paid for. Endpoints whose URL is a path alone, such as /forecast, are sold so.',
  },
  keyOf: ({ url }) => url,
  facts: ({ url, secretSince, previousSecretExpiresAt: previous }, { base }) => ({
    'Your server': <Code>{url}</Code>,
    'Buyers call': <Copyable text={base} whole />,
    'Secret since': <Time at={secretSince} />,
    'The secret before counts until': previous && <Time at={previous} />,
  }),
  acts: (_, __, { gateway, path }) => [
    {
      button: 'Rotate its secret',
      title: 'Rotate the secret?',
      text: 'For a day requests carry both secrets, so that your server misses none.',
      action: 'Rotate it',
      async send() {
        const { secret } = await gateway.post<UpstreamWithSecret>(`${path}/upstream/secret`)
        return { said: 'The secret is rotated.', ...shown(secret) }
      },
    },
    {
      button: 'Remove it',
      title: 'Remove your server?',
      text: 'What is sold without code is refused from then on. What was paid settles as usual.',
      action: 'Remove it',
      isDanger: true,
      send: () => say(gateway.delete(`${path}/upstream`), 'The server is removed.'),
    },
  ],
}

function noneIfUnknown(error: unknown): null {
  if (error instanceof GatewayError && error.code === 'unknown_upstream') return null
  throw error
}

/** A change of the URL alone keeps the secret. */
function shown(secret: string | undefined) {
  const note =
    'Requests from the gateway carry it in Service-Upstream-Secret. Refuse what does not, or your API is free for who finds your server. It is not shown again.'
  return secret === undefined ? {} : { secret: { title: 'Your server’s secret', text: secret, note } }
}

export const provider: Resource<{ provider: Provider; mail: boolean }, Provider> = {
  page: 'provider',
  async read({ gateway, path }, signal) {
    const [provider, { mail }] = await Promise.all([
      gateway.get<Provider>(path, signal),
      gateway.get<Home>('', signal),
    ])
    return { provider, mail }
  },
  items: ({ provider }) => [provider],
  keyOf: ({ providerId }) => providerId,
  facts: ({ name, providerId, contact, contactConfirmedAt, requiresKey, listed, createdAt, disabledAt }) => ({
    Name: name,
    Id: <Copyable text={providerId} />,
    Contact: (
      <>
        {contact ?? '–'}
        {contact && ' '}
        {contact && (
          <span class="note">{contactConfirmedAt ? 'confirmed' : 'not confirmed: no mail is sent'}</span>
        )}
      </>
    ),
    'Payments are verified': requiresKey ? 'for callers with your key only' : 'for anyone',
    'In catalogues': listed ? 'whatever you sell' : 'nothing',
    Registered: <Time at={createdAt} />,
    State: <State isOn={disabledAt === null} yes="on sale" no="disabled" />,
    'Disabled since': disabledAt && <Time at={disabledAt} />,
  }),
  acts(provider, { mail }, desk) {
    const { contact, contactConfirmedAt } = provider
    return [
      versioned(desk.gateway, desk.path, provider, (now, patch) => ({
        button: 'Change',
        title: 'Change the provider',
        fields: [
          ...providerFields(now),
          {
            ...flagField('requiresKey', 'Payments are verified', now.requiresKey, [
              'for callers with my API key only',
              'for anyone',
            ]),
            note: 'With your key only, your middleware needs its apiKey option.',
          },
          {
            ...flagField('ownMiddleware', 'Your middleware', now.ownMiddleware, ['one of your own', 'ours']),
            note: 'One of your own gets time to void what it never heard of, so batches take your payments minutes later.',
          },
          ...serviceFields(now),
        ],
        action: 'Save',
        send: (_, changed) =>
          say(
            patch(changed).then(() => refreshHead(desk)),
            'The change is made.',
          ),
      })),
      ...(mail && contact !== null && contactConfirmedAt === null ? [confirmContact(contact, desk)] : []),
      versioned(desk.gateway, desk.path, provider, ({ disabledAt }, patch) =>
        toggle(disabledAt, (body) => patch(body).then(() => refreshHead(desk)), '', {
          off: [
            'Disable everything',
            'Disable everything?',
            'Disable everything',
            'All your endpoints are disabled.',
          ],
          on: ['Enable again', 'Sell again?', 'Enable again', 'Your endpoints are on sale again.'],
          text:
            disabledAt === null
              ? 'Requests to all your endpoints are refused from now on. What was paid settles as usual.'
              : 'Requests are answered with a price again, but for endpoints that are disabled by themselves.',
        }),
      ),
    ]
  },
}

/** Reads the provider again for the page's head, which shows it, too. */
async function refreshHead({ gateway, update }: Desk) {
  update(await gateway.get<Provider>('account'))
}

/** Asks for the code and takes it in one place: it may have been mailed before, and counts for a day. */
function confirmContact(contact: string, desk: Desk): Act {
  const { gateway, path } = desk
  return {
    button: 'Confirm the contact',
    title: 'Confirm the contact',
    text: (
      <>
        <p class="break">
          You are told by mail what fails to settle once {contact} has shown that it is yours.
        </p>
        <p>
          <ActionButton
            label="Send me a code"
            class="quiet"
            ask={() => gateway.post(`${path}/contact/code`)}
            said="A code was mailed. "
          />
        </p>
      </>
    ),
    fields: [{ name: 'code', label: 'Code', note: 'It stands in the mail, and counts for 24 hours.' }],
    action: 'Confirm',
    async send(body) {
      await gateway.post(`${path}/contact/confirmation`, body)
      return say(refreshHead(desk), 'The contact is confirmed.')
    },
  }
}
