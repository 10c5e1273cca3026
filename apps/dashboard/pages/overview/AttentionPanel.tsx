import type { Attention, Payers } from '../../gateway/answers.ts'
import { query } from '../../gateway/gateway.ts'
import { useSession } from '../../gateway/session.ts'
import { finalMs, usePolled } from '../../gateway/usePolled.ts'
import { Badge, Panel } from '../../parts/ui.tsx'
import { attentionItems, owingItems } from './attentionItems.ts'

const everyMs = 15_000
/** Maximum number of buyers whose debts are added up. */
const mostOwing = 100

/**
 * Lists matters that require the provider's attention, each with a link to the page where the provider can
 * act.
 */
export function AttentionPanel() {
  const { gateway, path } = useSession()
  const { data } = usePolled(
    (signal) => gateway.get<Attention>(`${path}/attention`, signal),
    'attention',
    everyMs,
  )
  // Poll the debts less often, because they change seldom and the gateway needs more time to read them.
  const owing = usePolled(
    (signal) => gateway.get<Payers>(`${path}/payers${query({ state: 'owing', limit: mostOwing })}`, signal),
    'owing',
    finalMs,
  )
  if (data === undefined) return null
  const items = [...attentionItems(data), ...(owing.data ? owingItems(owing.data) : [])]
  if (items.length === 0) return <p class="note">Nothing needs your attention.</p>
  return (
    <Panel title="Needs attention" label="Needs attention">
      <ul>
        {items.map(({ key, tone, text, link, action }) => (
          <li key={key} class="attention-item">
            <Badge tone={tone}>{tone === 'bad' ? 'problem' : 'notice'}</Badge>
            <span class="break">{text}</span>
            <a href={link}>{action}</a>
          </li>
        ))}
      </ul>
    </Panel>
  )
}
