import { differences } from '../../display/changes.ts'
import { shorten } from '../../display/format.ts'
import type { ApiKey, RegistryChange } from '../../gateway/answers.ts'
import { useSession } from '../../gateway/session.ts'
import { usePolledPages } from '../../gateway/usePolled.ts'
import { Differences } from '../../parts/Differences.tsx'
import { Rows } from '../../parts/Table.tsx'
import { Copyable, Time } from '../../parts/ui.tsx'
import { SetupView } from './Setup.tsx'

/** Shows the history of changes: what was changed, when and by whom. */
export function HistoryPage() {
  const { gateway, path } = useSession()
  const polled = usePolledPages(async (asked) => {
    const [changes, { keys }] = await Promise.all([
      gateway.list<RegistryChange>(`${path}/changes`, { limit: 20 }, asked),
      gateway.get<{ keys: ApiKey[] }>(`${path}/keys`, asked.signal),
    ])
    return { ...changes, labels: new Map(keys.map(({ keyId, label }) => [keyId, label])) }
  }, 'history')
  return (
    <SetupView page="history" polled={polled}>
      {({ rows, more, labels }) => (
        <section class="panel">
          <Rows rows={rows} keyOf={({ changedAt, subject }) => `${changedAt} ${subject}`} more={more}>
            {(change) => <ChangeItem change={change} labels={labels} />}
          </Rows>
        </section>
      )}
    </SetupView>
  )
}

const kinds: Record<string, string> = {
  prov: 'Provider',
  ep: 'Endpoint',
  wal: 'Wallet',
  key: 'API key',
  wh: 'Webhook',
}

/** Shows one change: what was changed, and when opened, the changed fields. */
function ChangeItem({ change, labels }: { change: RegistryChange; labels: Map<string, string> }) {
  const { changedAt, by, subject, before, after } = change
  const kind = kinds[subject.split('_')[0] ?? ''] ?? 'Something else'
  const label = by === 'operator' ? 'the operator' : labels.get(by) && `the key “${labels.get(by)}”`
  const changed = differences(before, after).filter(({ after }) => before !== null || after !== '–')
  return (
    <details class="change-item">
      <summary>
        <b>
          {kind} {before === null ? 'registered' : 'changed'}
        </b>{' '}
        {before !== null && changed.map(({ field }) => field.toLowerCase()).join(', ')}{' '}
        <span class="note">
          <Time at={changedAt} /> by {label || shorten(by)}
        </span>
      </summary>
      <p class="note">
        <Copyable text={subject} whole />
      </p>
      <Differences differences={changed} />
    </details>
  )
}
