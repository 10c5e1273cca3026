import { writeCount, writeExactUsdc, writeUsdc } from '../display/format.ts'
import { createDateFormat } from '../display/locale.ts'
import { namePeriod, type Period } from '../display/period.ts'
import type { RevenuePoint } from '../display/series.ts'
import type { PlotSeries } from './drawPlot.ts'
import { Plot } from './Plot.tsx'

// Converts an amount into a float, which is used only for the height of a bar.
const toFloat = (amount: bigint) => Number(amount) / 1e6

/** Shows the net revenue of each interval of a period: settled, outstanding and failed. */
export function RevenuePlot({ points, period }: { points: RevenuePoint[]; period: Period }) {
  const series: PlotSeries<RevenuePoint>[] = [
    { title: 'Outstanding', color: '--wait', of: (p) => toFloat(p.settled + p.outstanding) },
    { title: 'Settled', color: '--good', of: (p) => toFloat(p.settled) },
  ]
  if (points.some(({ failed }) => failed > 0n))
    series.unshift({
      title: 'Failed',
      color: '--bad',
      of: (p) => toFloat(p.settled + p.outstanding + p.failed),
    })
  const name = createIntervalName(period)
  return (
    <Plot
      title="Revenue over time"
      label={`Net revenue in USDC of ${namePeriod(period)}, settled and outstanding, as bars.`}
      points={points}
      timeOf={({ startsAt }) => startsAt.getTime()}
      series={series}
      shape="bars"
      writeValue={(value) => writeUsdc(BigInt(Math.round(value * 1e6)))}
      readout={(point) => (
        <>
          {name(point)}: <b>{writeUsdc(point.settled)}</b> USDC settled, <b>{writeUsdc(point.outstanding)}</b>{' '}
          USDC outstanding
        </>
      )}
      rows={points.filter(({ payments }) => payments > 0)}
      columns={[
        ['From (UTC)', name],
        ['Payments', ({ payments }) => writeCount(payments), 'number', 'second'],
        ['Settled, USDC', ({ settled }) => writeExactUsdc(settled), 'number', 'end'],
        ['Outstanding, USDC', ({ outstanding }) => writeExactUsdc(outstanding), 'number'],
        ['Failed, USDC', ({ failed }) => writeExactUsdc(failed), 'number'],
      ]}
    />
  )
}

const date = { day: 'numeric', month: 'short' } as const
const shownParts: Record<Period['interval'], Intl.DateTimeFormatOptions> = {
  hour: { ...date, hour: '2-digit', minute: '2-digit' },
  day: { ...date, year: 'numeric' },
  month: { month: 'long', year: 'numeric' },
}

/** Returns a function that names an interval of a period by its start, in UTC. */
export function createIntervalName({ interval }: Pick<Period, 'interval'>) {
  const format = createDateFormat({ ...shownParts[interval], timeZone: 'UTC' })
  return ({ startsAt }: { startsAt: Date }) => format.format(startsAt)
}
