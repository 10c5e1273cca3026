import { differences } from '../../display/changes.ts'
import type { ApiKey, RegistryChange } from '../../gateway/answers.ts'
import { useSession } from '../../gateway/session.ts'
import { usePolledPages } from '../../gateway/usePolled.ts'
import { Copyable, Time } from '../../parts/bits.tsx'
import { Differences } from '../../parts/Differences.tsx'
import { Rows } from '../../parts/Table.tsx'
import { SetupView } from './Setup.tsx'

/** Who changed what, and when. */
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

const kinds: Record<string, string> = { prov: 'Provider', ep: 'Endpoint', wal: 'Wallet', key: 'API key' }

function ChangeItem({ change, labels }: { change: RegistryChange; labels: Map<string, string> }) {
  const { changedAt, by, subject, before, after } = change
  const kind = kinds[subject.split('_')[0] ?? ''] ?? subject
  const label = by === 'operator' ? 'the operator' : labels.get(by) && `the key “${labels.get(by)}”`
  return (
    <>
      <div class="line">
        <b>
          {kind} {before === null ? 'registered' : 'changed'}
        </b>
        <Copyable text={subject} />
        <span class="note end">
          <Time at={changedAt} />, by {label || <Copyable text={by} />}
        </span>
      </div>
      <Differences
        differences={differences(before, after).filter(({ after }) => before !== null || after !== '–')}
      />
    </>
  )
}
