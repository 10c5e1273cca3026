import type { ComponentChildren } from 'preact'
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { href, hrefWith, movedTo, parseSearch, type Route, useRoute } from './display/routing.ts'
import { useZone } from './display/zone.ts'
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
import { OverviewPage } from './pages/overview/OverviewPage.tsx'
import { SignInPage } from './pages/SignIn.tsx'
import { StartPage } from './pages/start/Start.tsx'
import { fetchWhenIdle, Lazy, type LoadPage } from './parts/Lazy.tsx'
import { PaletteButton } from './parts/PaletteButton.tsx'
import { SalesBanner } from './parts/SalesBanner.tsx'
import { Tabs } from './parts/ui.tsx'
import { Empty, Loading, useTitle } from './parts/View.tsx'
import { ZoneSwitch } from './parts/ZoneSwitch.tsx'

/** A page or a group of pages. `name` is the first part of its route. */
type View = {
  name: string
  /** Title in the navigation. A view without a title is reached only by links. */
  title?: string
  /** Name of the view whose navigation entry is marked as current while this view is shown. Default: the view itself. */
  under?: string
  /** Whether the view needs no key. Such views are listed separately from a provider's own views. */
  isPublic?: boolean
  /** The pages of a view that has several. */
  pages?: readonly (readonly [route: Route, title: string])[]
  show: (...rest: Route) => ComponentChildren
}

/** Returns a view whose code is fetched when it is first opened. The view receives the rest of the route. */
function lazy(name: string, load: LoadPage, more: Partial<View> = {}): View {
  return { name, ...more, show: (...route) => <Lazy key={name} load={load} route={route} /> }
}

/** The files of the pages, which {@link Lazy} loads. */
const files = {
  network: () => import('./pages/network/NetworkPage.tsx').then(({ NetworkPage }) => NetworkPage),
  market: () => import('./pages/market/MarketPage.tsx').then(({ MarketPage }) => MarketPage),
  receipt: () =>
    import('./pages/ReceiptCheck.tsx').then(({ ReceiptCheckPage }) => ({ route: [receipt] }) => (
      <ReceiptCheckPage receipt={receipt} />
    )),
  payments: () => import('./pages/payments/PaymentPages.tsx').then(({ PaymentPages }) => PaymentPages),
  tabs: () => import('./pages/tabs/TabsPage.tsx').then(({ TabsPage }) => TabsPage),
  buyers: () => import('./pages/buyers/BuyersPage.tsx').then(({ BuyersPage }) => BuyersPage),
  endpoints: () => import('./pages/endpoints/EndpointsPage.tsx').then(({ EndpointsPage }) => EndpointsPage),
  payouts: () => import('./pages/payouts/PayoutsPage.tsx').then(({ PayoutsPage }) => PayoutsPage),
  developers: () => import('./pages/setup/Developers.tsx').then(({ DevelopersPage }) => DevelopersPage),
  start: () => import('./pages/start/FirstSteps.tsx').then(({ FirstSteps }) => FirstSteps),
} satisfies Record<string, LoadPage>

const publicViews: View[] = [
  lazy('network', files.network, { title: 'Network', isPublic: true }),
  lazy('market', files.market, { title: 'Market', isPublic: true }),
  lazy('receipt', files.receipt, { title: 'Receipt check', isPublic: true }),
]

const paymentPages: View['pages'] = [
  [['payments'], 'All payments'],
  [['tabs'], 'Tabs'],
  [['payments', 'failures'], 'Failures'],
]

const developerPages: View['pages'] = [
  [['developers', 'keys'], 'API keys'],
  [['developers', 'webhooks'], 'Webhooks'],
  [['developers', 'wallets'], 'Wallets'],
  [['developers', 'upstream'], 'Without code'],
  [['developers', 'hook'], 'Acceptance hook'],
  [['developers', 'provider'], 'Provider'],
  [['developers', 'history'], 'History'],
]

const views: View[] = [
  { name: '', title: 'Overview', show: () => <OverviewPage /> },
  lazy('payments', files.payments, { title: 'Payments', pages: paymentPages }),
  lazy('tabs', files.tabs, { under: 'payments', pages: paymentPages }),
  lazy('buyers', files.buyers, { title: 'Buyers' }),
  lazy('endpoints', files.endpoints, { title: 'Endpoints' }),
  lazy('payouts', files.payouts, { title: 'Payouts' }),
  lazy('developers', files.developers, { title: 'Developers', pages: developerPages }),
  lazy('start', files.start),
  ...publicViews,
]

/** All pages that the palette lists. If a view and its first page have the same link, the palette shows the view's title. */
const palettePages = views.flatMap(({ name, title, pages = [] }) => {
  if (title === undefined) return []
  const own = { title, link: href(name) }
  const others = pages.map(([route, title]) => ({ title, link: href(...route) }))
  return [own, ...others.filter(({ link }) => link !== own.link)]
})

/** Returns the views of the operator, who sees all providers. */
const operatorViews = (gateway: Gateway): View[] => [
  lazy('', loadOperation(gateway), { title: 'Operation' }),
  lazy('providers', loadProviders(gateway), { title: 'Providers' }),
  ...publicViews,
]

const loadOperation =
  (gateway: Gateway): LoadPage =>
  () =>
    import('./pages/operator/Operation.tsx').then(({ OperationPage }) => () => (
      <OperationPage gateway={gateway} />
    ))

const loadProviders =
  (gateway: Gateway): LoadPage =>
  () =>
    import('./pages/operator/Providers.tsx').then(({ ProvidersPage }) => () => (
      <ProvidersPage gateway={gateway} />
    ))

type SignIn =
  | { state: 'out'; reason?: string | undefined }
  | { state: 'opening' }
  | { state: 'in'; session: Omit<Session, 'update'> }
  | { state: 'operator'; gateway: Gateway }

export function App() {
  const route = useRoute()
  const main = useRef<HTMLElement>(null)
  // All times on the page are shown in this zone, so a change of the zone renders everything again.
  useZone()
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
      if (error.status === 401) end('Your API key is no longer valid.')
      // The key may still be valid, so keep it for the next attempt.
      else setSignIn({ state: 'out', reason: `${error.message} Reload to try again.` })
    })
  }, [open, end])

  // Redirects old links to the current routes of their views. Keeps the filters, and replaces the entry in the browser's history.
  const newRoute = movedTo(route)
  const moved = newRoute && hrefWith(newRoute, parseSearch(location.hash))
  useEffect(() => {
    if (moved !== undefined) location.replace(moved)
  }, [moved])

  // Moves the focus to the start of the new view, for keyboards and screen readers.
  const view = route.join('/')
  const seen = useRef(view)
  useEffect(() => {
    if (seen.current === view) return
    seen.current = view
    scrollTo(0, 0)
    main.current?.focus()
  }, [view])

  const isIn = signIn.state === 'in'
  useEffect(() => {
    if (isIn) fetchWhenIdle(Object.values(files))
  }, [isIn])

  const session = useMemo(() => {
    if (signIn.state !== 'in') return null
    const update = (provider: Provider) =>
      setSignIn((now) => (now.state === 'in' ? { ...now, session: { ...now.session, provider } } : now))
    return { ...signIn.session, update }
  }, [signIn])
  const operator = useMemo(
    () => (signIn.state === 'operator' ? operatorViews(signIn.gateway) : undefined),
    [signIn],
  )
  const shown = session ? views : (operator ?? publicViews)
  const [name = '', ...rest] = route
  const found = shown.find((one) => one.name === name)
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
          <Navigation views={shown} current={found?.under ?? name} />
          <div class="line end who">
            {session && <PaletteButton session={session} pages={palettePages} />}
            {(session || operator) && (
              <>
                <span class="who-name" title={session?.provider.providerId}>
                  {session ? session.provider.name : 'Operator'}
                </span>
                <button type="button" class="quiet small" onClick={() => end()}>
                  Sign out
                </button>
              </>
            )}
          </div>
        </header>
        <SalesBanner />
        <main ref={main} tabIndex={-1}>
          {moved !== undefined ? (
            <Loading />
          ) : found ? (
            <>
              {found.pages && <Pages of={found} route={route} />}
              {found.show(...rest)}
            </>
          ) : session || operator ? (
            <Unknown />
          ) : signIn.state === 'opening' ? (
            <Loading>Signing in</Loading>
          ) : name === 'start' ? (
            <StartPage open={open} />
          ) : (
            <SignInPage reason={signIn.state === 'out' ? signIn.reason : undefined} open={open} />
          )}
        </main>
        <footer class="line">
          <ZoneSwitch />
        </footer>
      </SessionContext.Provider>
    </EndContext.Provider>
  )
}

/**
 * One row of links, which scrolls on a narrow screen: first the provider's own views, then the public ones.
 */
function Navigation({ views, current }: { views: View[]; current: string }) {
  const row = useRef<HTMLDivElement>(null)
  useEffect(() => {
    row.current?.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' })
  }, [current])
  const linksOf = (isPublic: boolean) =>
    views.flatMap((one) =>
      one.title && (one.isPublic ?? false) === isPublic ? [[href(one.name), one.title] as const] : [],
    )
  const own = linksOf(false)
  return (
    <div ref={row} class="views">
      {own.length > 0 && <Tabs label="Views" links={own} current={href(current)} />}
      <div class={own.length > 0 ? 'apart' : undefined}>
        <Tabs label="Public pages" links={linksOf(true)} current={href(current)} />
      </div>
    </div>
  )
}

/** The pages of a view that has several. */
function Pages({ of: { title, name, pages = [] }, route }: { of: View; route: Route }) {
  const links = pages.map(([to, title]) => [href(...to), title] as const)
  // The current page is the one whose route is the longest prefix of the shown route.
  const [current = href(name)] = links
    .map(([link]) => link)
    .filter((link) => `${href(...route)}/`.startsWith(`${link}/`))
    .sort((a, b) => b.length - a.length)
  return <Tabs label={title ?? 'Payments'} links={links} current={current} />
}

function Unknown() {
  useTitle('Not found')
  return (
    <Empty title="Page not found">
      <a href={href()}>Go to the overview</a>
    </Empty>
  )
}
