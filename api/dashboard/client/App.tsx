import type { ComponentChildren } from 'preact'
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { Provider } from './answers.ts'
import { GatewayError } from './gateway.ts'
import { BatchPage } from './pages/Batch.tsx'
import { BatchesPage } from './pages/Batches.tsx'
import { FailuresPage } from './pages/Failures.tsx'
import { OverviewPage } from './pages/Overview.tsx'
import { OperationPage } from './pages/operator/Operation.tsx'
import { ProvidersPage } from './pages/operator/Providers.tsx'
import { PaymentPage } from './pages/Payment.tsx'
import { PaymentsPage } from './pages/Payments.tsx'
import { QueuePage } from './pages/Queue.tsx'
import { ReceiptCheckPage } from './pages/ReceiptCheck.tsx'
import { SignInPage } from './pages/SignIn.tsx'
import { StatementPage } from './pages/Statement.tsx'
import { HistoryPage } from './pages/setup/History.tsx'
import { ResourcePage } from './pages/setup/ResourcePage.tsx'
import { endpoints, keys, wallets, webhooks } from './pages/setup/resources.tsx'
import { provider, upstream } from './pages/setup/singles.tsx'
import { WebhookPage } from './pages/setup/Webhook.tsx'
import { FirstSteps } from './pages/start/FirstSteps.tsx'
import { StartPage } from './pages/start/Start.tsx'
import { Lazy } from './parts/Lazy.tsx'
import { Empty, useTitle } from './parts/View.tsx'
import { href, type Route, useRoute } from './routing.ts'
import {
  type End,
  EndContext,
  OperatorContext,
  type OperatorSession,
  openOperatorSession,
  openSession,
  type Session,
  SessionContext,
  storedKey,
} from './session.ts'

/** Loaded on demand, so that nobody else waits for it. */
const loadNetwork = () => import('./pages/network/NetworkPage.tsx').then(({ NetworkPage }) => NetworkPage)

const loadMarket = () => import('./pages/market/MarketPage.tsx').then(({ MarketPage }) => MarketPage)

/** A view, by the first part of its route: its place in the navigation, if any, and how it shows the rest of the route. */
type View = [
  name: string,
  title: string | undefined,
  show: (...rest: (string | undefined)[]) => ComponentChildren,
]

const publicViews: View[] = [
  [
    'network',
    'Network',
    (...rest) => <Lazy key="network" load={loadNetwork} props={{ route: rest as Route }} />,
  ],
  ['market', 'Market', (words) => <Lazy key="market" load={loadMarket} props={{ words }} />],
  ['receipt', 'Receipt check', (receipt) => <ReceiptCheckPage receipt={receipt} />],
]

const views: View[] = [
  ['', 'Overview', () => <OverviewPage />],
  ['queue', 'Queue', () => <QueuePage />],
  [
    'batches',
    'Batches',
    (network, txHash) =>
      network && txHash ? <BatchPage network={network} txHash={txHash} /> : <BatchesPage />,
  ],
  ['payments', 'Payments', (id) => (id ? <PaymentPage paymentId={id} /> : <PaymentsPage />)],
  ['failures', 'Failures', () => <FailuresPage />],
  ['statement', 'Statement', (month) => <StatementPage month={month} />],
  [
    'setup',
    'Setup',
    (page = 'endpoints', id) => setupViews[id ? `${page}/id` : page]?.(id ?? '') ?? <Unknown />,
  ],
  ['start', undefined, () => <FirstSteps />],
  ...publicViews,
]

const setupViews: Record<string, (id: string) => ComponentChildren> = {
  endpoints: () => <ResourcePage key="endpoints" resource={endpoints} />,
  wallets: () => <ResourcePage key="wallets" resource={wallets} />,
  keys: () => <ResourcePage key="keys" resource={keys} />,
  upstream: () => <ResourcePage key="upstream" resource={upstream} />,
  webhooks: () => <ResourcePage key="webhooks" resource={webhooks} />,
  'webhooks/id': (id) => <WebhookPage webhookId={id} />,
  provider: () => <ResourcePage key="provider" resource={provider} />,
  history: () => <HistoryPage />,
}

const operatorViews: View[] = [
  ['', 'Operation', () => <OperationPage />],
  ['providers', 'Providers', () => <ProvidersPage />],
  ...publicViews,
]

type SignIn =
  | { state: 'out'; reason?: string }
  | { state: 'opening' }
  | { state: 'in'; session: Omit<Session, 'update'> }
  | { state: 'operator'; session: OperatorSession }

export function App() {
  const route = useRoute()
  const main = useRef<HTMLElement>(null)
  const [signIn, setSignIn] = useState<SignIn>(() => ({
    state: storedKey.read() === null ? 'out' : 'opening',
  }))

  const end = useCallback((reason?: string) => {
    storedKey.forget()
    setSignIn({ state: 'out', ...(reason !== undefined && { reason }) })
  }, [])

  const open = useCallback(async (key: string) => {
    const opened: SignIn = key.startsWith('tko_')
      ? { state: 'operator', session: await openOperatorSession(key) }
      : { state: 'in', session: await openSession(key) }
    storedKey.write(key)
    setSignIn(opened)
  }, [])

  // Restores the session after a reload.
  useEffect(() => {
    const key = storedKey.read()
    if (key === null) return
    open(key).catch((error: unknown) => {
      if (!(error instanceof GatewayError)) throw error
      if (error.status === 401) end('Your API key is no longer in force.')
      // The key may be good, so it is kept for the next attempt.
      else setSignIn({ state: 'out', reason: `${error.message} Reload to try again.` })
    })
  }, [open, end])

  // Moves the focus to the new view's start, for keyboards and screen readers.
  const view = route.join('/')
  const seen = useRef(view)
  useEffect(() => {
    if (seen.current === view) return
    seen.current = view
    scrollTo(0, 0)
    main.current?.focus()
  }, [view])

  const update = useCallback((provider: Provider) => {
    setSignIn((now) => (now.state === 'in' ? { ...now, session: { ...now.session, provider } } : now))
  }, [])

  const session = useMemo(
    () => (signIn.state === 'in' ? { ...signIn.session, update } : null),
    [signIn, update],
  )
  const operator = signIn.state === 'operator' ? signIn.session : null
  const shown = session ? views : operator ? operatorViews : publicViews
  const [name = '', ...rest] = route
  const found = shown.find(([one]) => one === name)
  return (
    <EndContext.Provider value={end}>
      <OperatorContext.Provider value={operator}>
        <SessionContext.Provider value={session}>
          <button type="button" class="unseen" onClick={() => main.current?.focus()}>
            Skip to the content
          </button>
          <Header
            name={name}
            shown={shown}
            who={session?.provider ?? (operator && { name: 'Operator' })}
            end={end}
          />
          <main ref={main} tabIndex={-1}>
            {found ? (
              found[2](...rest)
            ) : session || operator ? (
              <Unknown />
            ) : signIn.state === 'opening' ? (
              <p class="loading" role="status">
                Signing in…
              </p>
            ) : name === 'start' ? (
              <StartPage open={open} />
            ) : (
              <SignInPage reason={signIn.state === 'out' ? signIn.reason : undefined} open={open} />
            )}
          </main>
        </SessionContext.Provider>
      </OperatorContext.Provider>
    </EndContext.Provider>
  )
}

function Header(props: {
  name: string
  shown: View[]
  who: { name: string; providerId?: string } | null
  end: End
}) {
  const { name, shown, who, end } = props
  return (
    <header class="top">
      <a class="brand" href={href()}>
        Tollkeeper
      </a>
      <nav aria-label="Views">
        {shown.map(
          ([one, title]) =>
            title !== undefined && (
              <a
                key={one}
                href={href(...(one === '' ? [] : [one]))}
                aria-current={name === one ? 'page' : undefined}
              >
                {title}
              </a>
            ),
        )}
      </nav>
      {who ? (
        <div class="line end who">
          <span class="who-name" title={who.providerId}>
            {who.name}
          </span>
          <button type="button" class="quiet small" onClick={() => end()}>
            Sign out
          </button>
        </div>
      ) : null}
    </header>
  )
}

function Unknown() {
  useTitle('Not found')
  return (
    <Empty title="There is no such view">
      <p>
        <a href={href()}>Go to the overview</a>
      </p>
    </Empty>
  )
}
