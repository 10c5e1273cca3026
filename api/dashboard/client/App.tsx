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
import { EndpointsPage } from './pages/setup/Endpoints.tsx'
import { HistoryPage } from './pages/setup/History.tsx'
import { KeysPage } from './pages/setup/Keys.tsx'
import { ProviderPage } from './pages/setup/Provider.tsx'
import { UpstreamPage } from './pages/setup/Upstream.tsx'
import { WalletsPage } from './pages/setup/Wallets.tsx'
import { WebhookPage } from './pages/setup/Webhook.tsx'
import { WebhooksPage } from './pages/setup/Webhooks.tsx'
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

type Views = [name: string, title: string][]

const views: Views = [
  ['', 'Overview'],
  ['queue', 'Queue'],
  ['batches', 'Batches'],
  ['payments', 'Payments'],
  ['failures', 'Failures'],
  ['statement', 'Statement'],
  ['setup', 'Setup'],
  ['network', 'Network'],
  ['receipt', 'Receipt check'],
]

const operatorViews: Views = [
  ['', 'Operation'],
  ['providers', 'Providers'],
  ['network', 'Network'],
  ['receipt', 'Receipt check'],
]

const publicViews: Views = [
  ['network', 'Network'],
  ['receipt', 'Receipt check'],
]

const publicNames = new Set(publicViews.map(([name]) => name))

/** Loaded when somebody looks at it, so that nobody else waits for it. */
const loadNetwork = () => import('./pages/network/NetworkPage.tsx').then(({ NetworkPage }) => NetworkPage)

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
  const isPublic = publicNames.has(route[0] ?? '') || (route[0] === 'start' && signIn.state === 'out')
  return (
    <EndContext.Provider value={end}>
      <OperatorContext.Provider value={operator}>
        <SessionContext.Provider value={session}>
          <button type="button" class="skip" onClick={() => main.current?.focus()}>
            Skip to the content
          </button>
          <Header
            route={route}
            shown={session ? views : operator ? operatorViews : publicViews}
            who={session?.provider ?? (operator && { name: 'Operator' })}
            end={end}
          />
          <main ref={main} tabIndex={-1}>
            {operator ? (
              <OperatorView route={route} />
            ) : session || isPublic ? (
              <View route={route} open={open} />
            ) : signIn.state === 'opening' ? (
              <p class="loading" role="status">
                Signing in…
              </p>
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
  route: Route
  shown: Views
  who: { name: string; providerId?: string } | null
  end: End
}) {
  const { route, shown, who, end } = props
  return (
    <header class="top">
      <a class="brand" href={href()}>
        Tollkeeper
      </a>
      <nav aria-label="Views">
        {shown.map(([name, title]) => (
          <a
            key={name}
            href={href(...(name === '' ? [] : [name]))}
            aria-current={(route[0] ?? '') === name ? 'page' : undefined}
          >
            {title}
          </a>
        ))}
      </nav>
      {who ? (
        <div class="who">
          <span class="who-name" title={who.providerId}>
            {who.name}
          </span>
          <button type="button" class="quiet" onClick={() => end()}>
            Sign out
          </button>
        </div>
      ) : null}
    </header>
  )
}

type ViewProps = { route: Route; open: (key: string) => Promise<void> }

function View({ route, open }: ViewProps) {
  const [name, first, second] = route
  switch (name) {
    case undefined:
      return <OverviewPage />
    case 'queue':
      return <QueuePage />
    case 'batches':
      return first && second ? <BatchPage network={first} txHash={second} /> : <BatchesPage />
    case 'payments':
      return first ? <PaymentPage paymentId={first} /> : <PaymentsPage />
    case 'failures':
      return <FailuresPage />
    case 'statement':
      return <StatementPage month={first} />
    case 'start':
      return <StartPage open={open} />
    case 'setup':
      return <Setup page={first} id={second} />
    case 'network':
      return <Lazy load={loadNetwork} props={{ route: route.slice(1) }} />
    case 'receipt':
      return <ReceiptCheckPage receipt={first} />
    default:
      return <Unknown />
  }
}

function Setup({ page = 'endpoints', id }: { page: string | undefined; id: string | undefined }) {
  switch (page) {
    case 'endpoints':
      return <EndpointsPage />
    case 'wallets':
      return <WalletsPage />
    case 'keys':
      return <KeysPage />
    case 'upstream':
      return <UpstreamPage />
    case 'webhooks':
      return id ? <WebhookPage webhookId={id} /> : <WebhooksPage />
    case 'provider':
      return <ProviderPage />
    case 'history':
      return <HistoryPage />
    default:
      return <Unknown />
  }
}

function OperatorView({ route }: { route: Route }) {
  const [name, first] = route
  switch (name) {
    case undefined:
      return <OperationPage />
    case 'providers':
      return <ProvidersPage />
    case 'network':
      return <Lazy load={loadNetwork} props={{ route: route.slice(1) }} />
    case 'receipt':
      return <ReceiptCheckPage receipt={first} />
    default:
      return <Unknown />
  }
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
