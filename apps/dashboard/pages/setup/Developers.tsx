import { href, type Route } from '../../display/routing.ts'
import { Empty, useTitle } from '../../parts/View.tsx'
import { HistoryPage } from './History.tsx'
import { keys, wallets, webhooks } from './resources.tsx'
import { ResourcePage } from './Setup.tsx'
import { hook, provider, upstream } from './singles.tsx'
import { WebhookPage } from './Webhook.tsx'

/**
 * Shows the settings for a provider's own programs: keys, webhooks, wallets, its server, its account, and the
 * history of changes.
 */
export function DevelopersPage({ route: [page = 'keys', id] }: { route: Route }) {
  if (page === 'keys') return <ResourcePage key="keys" resource={keys} />
  if (page === 'webhooks')
    return id ? <WebhookPage webhookId={id} /> : <ResourcePage key="webhooks" resource={webhooks} />
  if (page === 'wallets') return <ResourcePage key="wallets" resource={wallets} />
  if (page === 'upstream') return <ResourcePage key="upstream" resource={upstream} />
  if (page === 'hook') return <ResourcePage key="hook" resource={hook} />
  if (page === 'provider') return <ResourcePage key="provider" resource={provider} />
  if (page === 'history') return <HistoryPage />
  return <UnknownPage />
}

function UnknownPage() {
  useTitle('Not found')
  return (
    <Empty title="Page not found">
      <a href={href('developers')}>Go to the API keys</a>
    </Empty>
  )
}
