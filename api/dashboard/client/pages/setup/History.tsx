import type { ApiKey, RegistryChange, RegistryChanges } from '../../answers.ts'
import { differences } from '../../changes.ts'
import { readPages } from '../../gateway.ts'
import { Copyable, ShowMore, Time } from '../../parts/bits.tsx'
import { Differences } from '../../parts/Differences.tsx'
import { SetupView } from '../../parts/Setup.tsx'
import { useSession } from '../../session.ts'
import { usePolledPages } from '../../usePolledPages.ts'

/** Who changed what, and when. */
export function HistoryPage() {
  const { gateway, path } = useSession()
  const { polled, showMore } = usePolledPages(async (asked) => {
    const changesOf = ({ changes }: RegistryChanges) => changes
    const [changes, { keys }] = await Promise.all([
      readPages(gateway, `${path}/changes`, { limit: 20 }, changesOf, asked),
      gateway.get<{ keys: ApiKey[] }>(`${path}/keys`, asked.signal),
    ])
    return { ...changes, labels: new Map(keys.map(({ keyId, label }) => [keyId, label])) }
  }, 'history')
  return (
    <SetupView page="history" polled={polled}>
      {({ rows, hasMore, labels }) => (
        <section class="panel">
          <ul class="rows">
            {rows.map((change) => (
              <ChangeItem key={`${change.changedAt} ${change.subject}`} change={change} labels={labels} />
            ))}
          </ul>
          <ShowMore hasMore={hasMore} showMore={showMore} />
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
    <li>
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
    </li>
  )
}
