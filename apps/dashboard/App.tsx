import type { ComponentChildren, ComponentType } from 'preact'
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { href, type Route, useRoute } from './display/routing.ts'
import type { Provider } from './gateway/answers.ts'
import { type Gateway, GatewayError } from './gateway/gateway.ts'
import {
  EndContext,
  openOperatorSession,
  openSession,
  type Session,
  SessionContext,
  storedKey,
} from './gateway/session.ts'
import { BatchesPage, BatchPage } from './pages/Batches.tsx'
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
import { endpoints, keys, wallets, webhooks } from './pages/setup/resources.tsx'
import { ResourcePage } from './pages/setup/Setup.tsx'
import { provider, upstream } from './pages/setup/singles.tsx'
import { WebhookPage } from './pages/setup/Webhook.tsx'
import { FirstSteps } from './pages/start/FirstSteps.tsx'
import { StartPage } from './pages/start/Start.tsx'
import { Tabs } from './parts/bits.tsx'
import { Empty, Loading, useTitle } from './parts/View.tsx'

/** A page in a file of its own, which is fetched when somebody looks at it, so that nobody else waits for it. */
type LazyPage = ComponentType<{ route: Route }>

const loadNetwork = () => import('./pages/network/NetworkPage.tsx').then(({ NetworkPage }) => NetworkPage)
const loadMarket = () => import('./pages/market/MarketPage.tsx').then(({ MarketPage }) => MarketPage)

/** A view by the first part of its route: its place in the navigation, if it has one, and what shows the rest of the route. */
type View = [name: string, title: string | undefined, show: (...rest: string[]) => ComponentChildren]

const publicViews: View[] = [
  ['network', 'Network', (...route) => <Lazy key="network" load={loadNetwork} route={route} />],
  ['market', 'Market', (...route) => <Lazy key="market" load={loadMarket} route={route} />],
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

/** Who runs the gateway sees all providers. */
const operatorViews = (gateway: Gateway): View[] => [
  ['', 'Operation', () => <OperationPage gateway={gateway} />],
  ['providers', 'Providers', () => <ProvidersPage gateway={gateway} />],
  ...publicViews,
]

type SignIn =
  | { state: 'out'; reason?: string | undefined }
  | { state: 'opening' }
  | { state: 'in'; session: Omit<Session, 'update'> }
  | { state: 'operator'; gateway: Gateway }

export function App() {
  const route = useRoute()
  const main = useRef<HTMLElement>(null)
  const [signIn, setSignIn] = useState<SignIn>(() => ({
    state: storedKey.read() === null ? 'out' : 'opening',
  }))

  const end = useCallback((reason?: string) => {
    storedKey.forget()
    setSignIn({ state: 'out', reason })
  }, [])

  const open = useCallback(async (key: string) => {
    const opened: SignIn = key.startsWith('tko_')
      ? { state: 'operator', gateway: await openOperatorSession(key) }
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

  const session = useMemo(() => {
    if (signIn.state !== 'in') return null
    const update = (provider: Provider) =>
      setSignIn((now) => (now.state === 'in' ? { ...now, session: { ...now.session, provider } } : now))
    return { ...signIn.session, update }
  }, [signIn])
  const operator = signIn.state === 'operator' ? operatorViews(signIn.gateway) : undefined
  const shown = session ? views : (operator ?? publicViews)
  const [name = '', ...rest] = route
  const found = shown.find(([one]) => one === name)
  return (
    <EndContext.Provider value={end}>
      <SessionContext.Provider value={session}>
        <button type="button" class="unseen" onClick={() => main.current?.focus()}>
          Skip to the content
        </button>
        <header class="top">
          <a class="brand" href={href()}>
            Tollkeeper
          </a>
          <Tabs
            label="Views"
            links={shown.flatMap(([one, title]) => (title ? [[href(one), title]] : []))}
            current={href(name)}
          />
          {(session || operator) && (
            <div class="line end who">
              <span class="who-name" title={session?.provider.providerId}>
                {session ? session.provider.name : 'Operator'}
              </span>
              <button type="button" class="quiet small" onClick={() => end()}>
                Sign out
              </button>
            </div>
          )}
        </header>
        <main ref={main} tabIndex={-1}>
          {found ? (
            found[2](...rest)
          ) : session || operator ? (
            <Unknown />
          ) : signIn.state === 'opening' ? (
            <Loading>Signing in…</Loading>
          ) : name === 'start' ? (
            <StartPage open={open} />
          ) : (
            <SignInPage reason={signIn.state === 'out' ? signIn.reason : undefined} open={open} />
          )}
        </main>
      </SessionContext.Provider>
    </EndContext.Provider>
  )
}

function Lazy({ load, route }: { load: () => Promise<LazyPage>; route: Route }) {
  const [found, setFound] = useState<{ Page: LazyPage } | 'missing'>()
  useEffect(() => {
    load().then(
      (Page) => setFound({ Page }),
      () => setFound('missing'),
    )
  }, [load])
  if (found === undefined) return <Loading />
  if (found !== 'missing') return <found.Page route={route} />
  return (
    <Empty title="This page could not be fetched">
      The gateway may be away, or newer than what you see: reload.
    </Empty>
  )
}

function Unknown() {
  useTitle('Not found')
  return (
    <Empty title="There is no such view">
      <a href={href()}>Go to the overview</a>
    </Empty>
  )
}
