import type { Difference } from '../display/changes.ts'

/** Fields before and after a change. */
export function Differences({ differences }: { differences: Difference[] }) {
  if (differences.length === 0) return null
  return (
    <dl class="differences">
      {differences.map(({ field, before, after }) => (
        <div key={field}>
          <dt>{field}</dt>
          <dd>
            {before !== null && (
              <>
                <del>{before}</del> <span aria-hidden="true">→ </span>
                <span class="unseen"> became </span>
              </>
            )}
            <ins>{after}</ins>
          </dd>
        </div>
      ))}
    </dl>
  )
}

/** In a form: what somebody else changed since it was opened. */
export function Meanwhile({ differences }: { differences: Difference[] }) {
  if (differences.length === 0) return null
  return (
    <section class="box busy" aria-label="Changed meanwhile">
      <p>Somebody else changed this while you had it open. Fields that you left alone show it.</p>
      <Differences differences={differences} />
    </section>
  )
}
