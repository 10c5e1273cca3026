import type { Difference } from '../display/changes.ts'

/** Shows fields before and after a change. */
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

/** Shows the changes that someone else has made since the user opened the form. */
export function Meanwhile({ differences }: { differences: Difference[] }) {
  if (differences.length === 0) return null
  return (
    <section class="box busy" aria-label="Changed meanwhile">
      <p>
        Someone else changed this while you had it open. Fields that you did not edit show the new values.
      </p>
      <Differences differences={differences} />
    </section>
  )
}
