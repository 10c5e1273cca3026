import type { Period } from '../display/period.ts'
import { useSearch } from '../display/routing.ts'
import { type RangeName, ranges } from '../display/series.ts'
import { Choice } from './ui.tsx'

type Chosen = RangeName | 'all' | 'custom'

type PeriodChoiceProps = {
  /** The chosen period. Undefined: all time. A text: why the days in the link are invalid. */
  period: Period | string | undefined
  /** The periods that the page offers, without custom days. */
  options: readonly (RangeName | 'all')[]
  /** The period if the link has none. */
  usual: RangeName | 'all'
}

const dateOf = (time: Date) => time.toISOString().slice(0, 10)

/**
 * Lets the user choose one of the page's periods, or any UTC days. The choice is added to the page's link, and the rest of the
 * link's query is kept.
 */
export function PeriodChoice({ period, options, usual }: PeriodChoiceProps) {
  const [{ period: _, from: first, to: last, ...search }, replace] = useSearch()
  const isReadable = typeof period === 'object'
  const name: Chosen = isReadable ? period.name : period === undefined ? 'all' : 'custom'
  const now = Date.now()
  const from = first ?? (isReadable ? dateOf(period.from) : dateOf(new Date(now - 29 * 86_400_000)))
  const to = last ?? dateOf(isReadable ? new Date(period.to.getTime() - 1) : new Date(now))
  const choose = (chosen: Chosen) =>
    replace(
      chosen === 'custom'
        ? { ...search, from, to }
        : { ...search, period: chosen === usual ? undefined : chosen },
    )
  const titleOf = (option: RangeName | 'all') => (option === 'all' ? 'All time' : ranges[option].title)
  return (
    <>
      <Choice<Chosen>
        label="Period"
        options={[...options.map((option) => [option, titleOf(option)] as const), ['custom', 'Custom']]}
        value={name}
        choose={choose}
      />
      {name === 'custom' && (
        // The key changes only if the link has other days. So the text that someone types stays when the page polls.
        <form
          key={`${from} ${to}`}
          class="line period"
          onSubmit={(event) => {
            event.preventDefault()
            const values = Object.fromEntries(new FormData(event.currentTarget)) as Record<string, string>
            replace({ ...search, ...values })
          }}
        >
          <label>
            <span class="note">First day, UTC</span>
            <input type="date" name="from" defaultValue={from} required />
          </label>
          <label>
            <span class="note">Last day, UTC</span>
            <input type="date" name="to" defaultValue={to} required />
          </label>
          <button type="submit" class="quiet">
            Show
          </button>
        </form>
      )}
    </>
  )
}
