import type { ApiKey, RegistryChange, RegistryChanges } from '../../answers.ts'
import { differences } from '../../changes.ts'
import { query, readPages } from '../../gateway.ts'
import { Copyable, ShowMore, Time } from '../../parts/bits.tsx'
import { Differences } from '../../parts/Differences.tsx'
import { SetupView } from '../../parts/Setup.tsx'
import { useSession } from '../../session.ts'
import { usePolledPages } from '../../usePolledPages.ts'

const pageSize = 20

/** Who changed what, and when. */
export function HistoryPage() {
  const { gateway, provider } = useSession()
  const path = `providers/${provider.providerId}`
  const { polled, showMore } = usePolledPages(async (signal, pages) => {
    const [{ rows: changes, hasMore }, { keys }] = await Promise.all([
      readPages(
        (cursor) =>
          gateway.get<RegistryChanges>(`${path}/changes${query({ limit: pageSize, cursor })}`, signal),
        ({ changes }) => changes,
        pages,
      ),
      gateway.get<{ keys: ApiKey[] }>(`${path}/keys`, signal),
    ])
    return { changes, hasMore, labels: new Map(keys.map(({ keyId, label }) => [keyId, label])) }
  }, 'history')
  return (
    <SetupView page="history" polled={polled}>
      {({ changes, hasMore, labels }) => (
        <section class="panel">
          <ul class="rows">
            {changes.map((change) => (
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
  return (
    <li>
      <div class="line">
        <b>
          {kind} {before === null ? 'registered' : 'changed'}
        </b>
        <Copyable text={subject} />
        <span class="note end">
          <Time at={changedAt} />, by{' '}
          {by === 'operator' ? (
            'the operator'
          ) : labels.get(by) ? (
            `the key “${labels.get(by)}”`
          ) : (
            <Copyable text={by} />
          )}
        </span>
      </div>
      <Differences
        differences={differences(before, after).filter(({ after }) => before !== null || after !== '–')}
      />
    </li>
  )
}
