import type { ComponentChildren } from 'preact'
import { useMemo } from 'preact/hooks'
import { countOf, writeCount, writeSeconds } from '../../display/format.ts'
import { href } from '../../display/routing.ts'
import type { NetworkActivity } from '../../gateway/answers.ts'
import type { PlotSeries } from '../../parts/drawPlot.ts'
import { Plot } from '../../parts/Plot.tsx'
import type { Column } from '../../parts/Table.tsx'
import { Panel } from '../../parts/ui.tsx'
import { gasPerPayment, type IntervalRow, type NetworkPoint, networkSeries } from './intervals.ts'

type Measure = {
  title: string
  label: string
  series: PlotSeries<IntervalRow>[]
  /** Formats a value for the axis. */
  writeValue: (value: number) => string
  /** Columns of an interval's row. The row links to the interval's batches. */
  columns: [title: string, of: (row: IntervalRow) => string][]
  readout: (row: IntervalRow) => ComponentChildren
  /** Text under the plot. */
  note?: string
  isShown?: (points: NetworkPoint[]) => boolean
  /** Text shown instead of a plot. */
  missing?: string
}

const measures: Measure[] = [
  {
    title: 'Payments over time',
    label: 'Payments that settled, as bars.',
    series: [{ title: 'Payments', color: '--accent', of: ({ payments }) => payments }],
    writeValue: (value) => (Number.isInteger(value) ? writeCount(value) : ''),
    columns: [
      ['Payments', ({ payments }) => writeCount(payments)],
      ['Batches', ({ batches }) => writeCount(batches)],
      ['Moved, USDC', ({ total_usdc }) => total_usdc],
    ],
    readout: ({ payments, batches }) => (
      <>
        <b>{countOf(payments, 'payment')}</b> in {countOf(batches, 'batch', 'batches')}
      </>
    ),
  },
  {
    title: 'Gas per payment',
    label: 'Gas per payment, as bars.',
    series: [{ title: 'Gas per payment', color: '--accent', of: (row) => Number(gasPerPayment(row)) }],
    writeValue: (value) => writeCount(value),
    columns: [
      ['Gas per payment', (row) => writeCount(gasPerPayment(row))],
      ['Gas', ({ gas_used }) => writeCount(BigInt(gas_used))],
      ['Paid, gas token', ({ gas_cost_ether }) => gas_cost_ether],
    ],
    readout: (row) => (
      <>
        <b>{writeCount(gasPerPayment(row))}</b> gas a payment
      </>
    ),
  },
  {
    title: 'Time to settlement',
    label: 'Time from acceptance to the block: the median and the 95th percentile, as bars.',
    series: [
      {
        title: '95th percentile',
        color: '--wait',
        of: ({ settlementSeconds }) => settlementSeconds?.p95 ?? 0,
      },
      { title: 'Median', color: '--good', of: ({ settlementSeconds }) => settlementSeconds?.median ?? 0 },
    ],
    writeValue: writeSeconds,
    columns: [
      ['Median', ({ settlementSeconds: took }) => (took ? writeSeconds(took.median) : '–')],
      ['95th percentile', ({ settlementSeconds: took }) => (took ? writeSeconds(took.p95) : '–')],
    ],
    note: 'Measured over final payments that this gateway accepted in the interval, accurate to 5%. Intervals with fewer than 20 payments are not shown.',
    isShown: (points) => points.some(({ row }) => row?.settlementSeconds),
    missing: 'Too few payments so far.',
    readout: ({ settlementSeconds }) =>
      settlementSeconds === null ? (
        'fewer than 20 payments: not shown'
      ) : (
        <>
          <b>{writeSeconds(settlementSeconds.median)}</b> median, 95% within{' '}
          <b>{writeSeconds(settlementSeconds.p95)}</b>
        </>
      ),
  },
]

export function NetworkPlots({ activity }: { activity: NetworkActivity }) {
  const points = useMemo(() => networkSeries(activity, Date.now()), [activity])
  return (
    <>
      {measures.map((measure) => (
        <Panel key={measure.title} title={measure.title}>
          {measure.isShown?.(points) === false ? (
            <p class="note">{measure.missing}</p>
          ) : (
            <MeasurePlot measure={measure} activity={activity} points={points} />
          )}
          {measure.note && <p class="note">{measure.note}</p>}
        </Panel>
      ))}
    </>
  )
}

type SettledPoint = { startsAt: Date; row: IntervalRow }
type MeasurePlotProps = { measure: Measure; activity: NetworkActivity; points: NetworkPoint[] }

function MeasurePlot({ measure, activity: { network, interval }, points }: MeasurePlotProps) {
  const name = (startsAt: Date) => {
    const date = startsAt.toISOString().slice(0, 10)
    return (
      <a href={href('network', network, 'batches', interval, date)}>
        {interval === 'week' ? `Week from ${date}` : date}
      </a>
    )
  }
  return (
    <Plot
      title={measure.title}
      label={measure.label}
      points={points}
      timeOf={({ startsAt }) => startsAt.getTime()}
      series={measure.series.map((one) => ({
        ...one,
        of: ({ row }: NetworkPoint) => (row ? one.of(row) : 0),
      }))}
      shape="bars"
      writeValue={measure.writeValue}
      readout={({ startsAt, row }) => (
        <>
          {name(startsAt)}: {row ? measure.readout(row) : 'nothing settled'}
        </>
      )}
      rows={points.toReversed().flatMap(({ startsAt, row }) => (row ? [{ startsAt, row }] : []))}
      columns={[
        ['From (UTC)', ({ startsAt }) => name(startsAt)],
        ...measure.columns.map(
          ([title, of]): Column<SettledPoint> => [title, ({ row }) => of(row), 'number'],
        ),
      ]}
    />
  )
}
