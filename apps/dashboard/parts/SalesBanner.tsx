import { writeTime } from '../display/format.ts'
import type { Home } from '../gateway/answers.ts'
import { createGateway } from '../gateway/gateway.ts'
import { usePolled } from '../gateway/usePolled.ts'

const gateway = createGateway()
const everyMs = 30_000

/** Shows on every page that the operator has stopped sales, with the reason and the time. */
export function SalesBanner() {
  const { data } = usePolled((signal) => gateway.get<Home>('', signal), 'sales', everyMs)
  const sales = data?.sales
  if (!sales?.stopped) return null
  return (
    <p class="box bad" role="status">
      <strong>The operator has stopped sales</strong>
      {sales.stoppedAt && ` since ${writeTime(sales.stoppedAt)}`}
      {sales.reason && `: ${sales.reason}`}. New payments are refused. Accepted payments still settle.
    </p>
  )
}
