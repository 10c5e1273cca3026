import type {
  AcceptHook,
  AcceptHookTest,
  AcceptHookWithSecret,
  Home,
  Provider,
  Upstream,
  UpstreamWithSecret,
} from '../../gateway/answers.ts'
import { GatewayError } from '../../gateway/gateway.ts'
import { ActionButton } from '../../parts/ActionButton.tsx'
import { type Action, say, toggle, versioned } from '../../parts/actions.tsx'
import { Code, Copyable, State, Time } from '../../parts/ui.tsx'
import { flagField, providerFields, serviceFields } from './fields.ts'
import type { Desk, Resource } from './Setup.tsx'

/* Settings that exist once per provider: upstream, accept hook, contact. */

type UpstreamData = { base: string; upstream: Upstream | null }

/** The provider's server, to which the gateway forwards paid requests; it replaces a middleware. */
export const upstream: Resource<UpstreamData, Upstream> = {
  page: 'upstream',
  async read({ gateway, path, provider }, signal) {
    const [home, upstream] = await Promise.all([
      gateway.get<Home>('', signal),
      gateway.get<Upstream>(`${path}/upstream`, signal).catch(noneIfUnknown),
    ])
    return { base: `${home.gatewayUrl}/p/${provider.providerId}`, upstream }
  },
  // Poll seldom, because the server rarely changes, and the browser logs a 404 for each read if none is registered.
  everyMs: 60_000,
  add: ({ upstream }, { gateway, path }) => ({
    button: upstream ? 'Change it' : 'Register your server',
    title: 'Your server',
    fields: [
      {
        name: 'url',
        label: 'URL',
        value: upstream?.url ?? '',
        inputMode: 'url',
        placeholder: 'https://origin.example/v2',
        note: 'Must use https and be publicly reachable. Its path is prepended to the path of each request.',
      },
      {
        ...flagField(
          'forwardAuthorization',
          'Callers log in to your server',
          upstream?.forwardAuthorization ?? false,
          ['yes', 'no'],
        ),
        note: 'If yes, the gateway forwards Authorization: Basic as well as Bearer, and responses with 401 or 403 are free.',
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
    text: 'Sell without code: buyers call the gateway, and it forwards paid requests to your server. This applies to endpoints whose URL is only a path, such as /forecast.',
  },
  keyOf: ({ url }) => url,
  facts: ({ url, forwardAuthorization, secretSince, previousSecretExpiresAt: previous }, { base }) => ({
    'Your server': <Code>{url}</Code>,
    'Buyers call': <Copyable text={base} whole />,
    'Callers log in to your server': forwardAuthorization ? 'yes' : 'no',
    'Secret since': <Time at={secretSince} />,
    'Previous secret valid until': previous && <Time at={previous} />,
  }),
  actions: (_, __, { gateway, path }) => [
    {
      button: 'Rotate secret',
      title: 'Rotate the secret?',
      text: 'For one day, requests carry both secrets, so that your server misses none.',
      action: 'Rotate it',
      async send() {
        const { secret } = await gateway.post<UpstreamWithSecret>(`${path}/upstream/secret`)
        return { said: 'The secret is rotated.', ...shown(secret) }
      },
    },
    {
      button: 'Remove it',
      title: 'Remove your server?',
      text: 'Requests to endpoints sold without code are refused from then on. Accepted payments settle as usual.',
      action: 'Remove it',
      isDanger: true,
      send: () => say(gateway.delete(`${path}/upstream`), 'The server is removed.'),
    },
  ],
}

function noneIfUnknown(error: unknown): null {
  if (error instanceof GatewayError && (error.code === 'unknown_upstream' || error.code === 'unknown_hook'))
    return null
  throw error
}

/** Shows the new secret, if there is one. A change of only the URL keeps the old secret. */
function shown(secret: string | undefined) {
  const note =
    'Requests from the gateway carry it in Service-Upstream-Secret. Refuse requests without it: otherwise anyone who finds your server can use your API for free. It is not shown again.'
  return secret === undefined ? {} : { secret: { title: 'Your server’s secret', text: secret, note } }
}

/** The accept hook: the URL that the gateway asks before it accepts a payment. */
export const hook: Resource<AcceptHook | null, AcceptHook> = {
  page: 'hook',
  read: ({ gateway, path }, signal) => gateway.get<AcceptHook>(`${path}/hook`, signal).catch(noneIfUnknown),
  // Poll seldom, because the hook rarely changes, and the browser logs a 404 for each read if none is registered.
  everyMs: 60_000,
  add: (hook, { gateway, path }) => ({
    button: hook ? 'Change it' : 'Register a URL',
    title: 'Acceptance hook',
    fields: [
      {
        name: 'url',
        label: 'URL',
        value: hook?.url ?? '',
        inputMode: 'url',
        placeholder: 'https://weather.example/before-accept',
        note: 'Must use https and be publicly reachable. The gateway asks it about every payment and waits at most 2 seconds.',
      },
      {
        name: 'onFailure',
        label: 'If the hook gives no decision',
        value: hook?.onFailure ?? 'refuse',
        options: [
          ['refuse', 'refuse payments'],
          ['accept', 'accept payments'],
        ],
      },
    ],
    action: 'Save',
    async send(body) {
      const { secret } = await gateway.put<AcceptHookWithSecret>(`${path}/hook`, body)
      return { said: 'The URL is registered.', ...shownHook(secret) }
    },
  }),
  items: (hook) => (hook === null ? [] : [hook]),
  empty: {
    title: 'Every payment is accepted',
    text: 'Register a URL that decides about each payment before it is accepted: refuse a payer, serve for free, or ask for another price.',
  },
  keyOf: ({ url }) => url,
  facts: ({ url, headers, onFailure, secretSince, previousSecretExpiresAt: previous }) => ({
    URL: <Code>{url}</Code>,
    'Headers sent to the hook': headers.join(', ') || 'none',
    'If the hook gives no decision':
      onFailure === 'refuse' ? 'payments are refused' : 'payments are accepted',
    'Secret since': <Time at={secretSince} />,
    'Previous secret valid until': previous && <Time at={previous} />,
  }),
  actions: (_, __, { gateway, path }) => [
    {
      button: 'Test it',
      title: 'Test the URL?',
      text: 'The gateway asks the URL about a sample payment from the zero address.',
      action: 'Test it',
      async send() {
        const { decision, error, durationMs } = await gateway.post<AcceptHookTest>(`${path}/hook/test`)
        return {
          said: decision
            ? `The hook decided: ${decision} (${durationMs} ms).`
            : `The hook gave no decision: ${error}. Check the server at its URL, and test it again.`,
        }
      },
    },
    {
      button: 'Rotate secret',
      title: 'Rotate the secret?',
      text: 'For one day, requests to the hook are signed with both secrets.',
      action: 'Rotate it',
      async send() {
        const { secret } = await gateway.post<AcceptHookWithSecret>(`${path}/hook/secret`)
        return { said: 'The secret is rotated.', ...shownHook(secret) }
      },
    },
    {
      button: 'Remove it',
      title: 'Remove the URL?',
      text: 'Every payment is then accepted without asking your hook.',
      action: 'Remove it',
      isDanger: true,
      send: () => say(gateway.delete(`${path}/hook`), 'The URL is removed.'),
    },
  ],
}

function shownHook(secret: string | undefined) {
  const note = 'Requests to the hook are signed with it (Standard Webhooks). It is not shown again.'
  return secret === undefined ? {} : { secret: { title: 'Your hook’s secret', text: secret, note } }
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
          <span class="note">{contactConfirmedAt ? 'confirmed' : 'not confirmed, so no mail is sent'}</span>
        )}
      </>
    ),
    'Payments can be verified by': requiresKey ? 'only callers with your key' : 'anyone',
    'In catalogs': listed ? 'everything you sell' : 'nothing',
    Registered: <Time at={createdAt} />,
    State: <State isOn={disabledAt === null} yes="on sale" no="disabled" />,
    'Disabled since': disabledAt && <Time at={disabledAt} />,
  }),
  actions(provider, { mail }, desk) {
    const { contact, contactConfirmedAt } = provider
    return [
      versioned(desk.gateway, desk.path, provider, (now, patch) => ({
        button: 'Change',
        title: 'Change the provider',
        fields: [
          ...providerFields(now),
          {
            ...flagField('requiresKey', 'Payments can be verified by', now.requiresKey, [
              'only callers with my API key',
              'anyone',
            ]),
            note: 'If only callers with your key can verify, set the apiKey option of your middleware.',
          },
          {
            ...flagField('ownMiddleware', 'Your middleware', now.ownMiddleware, [
              'another one',
              'Tollkeeper’s',
            ]),
            note: 'With another middleware, payments settle some minutes later. In that time, the middleware can void a payment of which it received no acceptance.',
          },
          ...serviceFields(now),
        ],
        action: 'Save',
        send: (_, changed) =>
          say(
            patch(changed).then(() => refreshHead(desk)),
            'The provider is changed.',
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
              ? 'Requests to all your endpoints are refused from now on. Accepted payments settle as usual.'
              : 'Requests are answered with a price again, except for endpoints that you disabled individually.',
        }),
      ),
    ]
  },
}

/** Reads the provider again, because the page's header also shows its data. */
async function refreshHead({ gateway, update }: Desk) {
  update(await gateway.get<Provider>('account'))
}

/** Requests the code and accepts it in one dialog. The code may have been mailed before: it is valid for a day. */
function confirmContact(contact: string, desk: Desk): Action {
  const { gateway, path } = desk
  return {
    button: 'Confirm the contact',
    title: 'Confirm the contact',
    text: (
      <>
        <p class="break">
          After you confirm {contact}, you are notified by mail of payments that fail to settle.
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
    fields: [{ name: 'code', label: 'Code', note: 'The code in the mail. It is valid for 24 hours.' }],
    action: 'Confirm',
    async send(body) {
      await gateway.post(`${path}/contact/confirmation`, body)
      return say(refreshHead(desk), 'The contact is confirmed.')
    },
  }
}
