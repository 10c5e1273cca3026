import { href, type Route } from '../../display/routing.ts'
import { Tabs } from '../../parts/ui.tsx'
import { BatchesPage, BatchPage } from '../Batches.tsx'
import { QueuePage } from '../Queue.tsx'
import { StatementPage } from '../Statement.tsx'
import { PayoutOverview } from './PayoutOverview.tsx'

const pages = [
  ['', 'Next payouts'],
  ['queue', 'Queue'],
  ['batches', 'Batches'],
  ['statement', 'Statement'],
] as const

/** Shows the payouts so far, the amounts that wait, and the time of the next payout. */
export function PayoutsPage({ route: [page = '', ...rest] }: { route: Route }) {
  const linkOf = (name: string) => (name === '' ? href('payouts') : href('payouts', name))
  return (
    <>
      <Tabs
        label="Payouts"
        links={pages.map(([name, title]) => [linkOf(name), title])}
        current={linkOf(page)}
      />
      <Shown page={page} rest={rest} />
    </>
  )
}

function Shown({ page, rest: [first, second] }: { page: string; rest: Route }) {
  if (page === 'queue') return <QueuePage />
  if (page === 'statement') return <StatementPage month={first} />
  if (page === 'batches')
    return first && second ? <BatchPage network={first} txHash={second} /> : <BatchesPage />
  return <PayoutOverview />
}
