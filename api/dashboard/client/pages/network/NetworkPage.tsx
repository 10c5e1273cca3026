import { useState } from 'preact/hooks'
import { parseUsdc } from '#protocol/amount'
import type { Home, NetworkActivity, NetworkBatches } from '../../answers.ts'
import { countOf, nameNetwork, writeCount, writeUsdc } from '../../format.ts'
import { createGateway, query } from '../../gateway.ts'
import { Copyable, ExplorerLink, Table, Time, Usdc } from '../../parts/bits.tsx'
import { Choice } from '../../parts/Choice.tsx'
import { Figure } from '../../parts/Figure.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { href } from '../../routing.ts'
import { usePolled } from '../../usePolled.ts'
import { BatchesPage, BatchTable } from './BatchesPage.tsx'
import { gasPerPayment, type Interval } from './intervals.ts'
import { NetworkPlots } from './NetworkPlots.tsx'

const gateway = createGateway()
/** How long the gateway gives everybody the same answer. */
const everyMs = 10_000
const newest = 10

/** For anyone, without a key: what settles on a network, who settles it and what that costs. */
export function NetworkPage({ route: [network, list, ...filter] }: { route: string[] }) {
  if (network !== undefined && list === 'batches') return <BatchesPage network={network} filter={filter} />
  return <Activity network={network} />
}

function Activity({ network: asked }: { network: string | undefined }) {
  const [interval, setInterval] = useState<Interval>('day')
  const polled = usePolled(
    async (signal) => {
      const [{ networks }, activity, { batches }] = await Promise.all([
        gateway.get<Home>('', signal),
        gateway.get<NetworkActivity>(`network${query({ network: asked, interval })}`, signal),
        gateway.get<NetworkBatches>(`network/batches${query({ network: asked, limit: newest })}`, signal),
      ])
      return { networks, activity, batches }
    },
    `network ${asked} ${interval}`,
    everyMs,
  )
  const choice = (
    <Choice
      label="Period"
      name="interval"
      options={[
        ['day', '30 days'],
        ['week', '26 weeks'],
      ]}
      value={interval}
      choose={setInterval}
    />
  )
  return (
    <View title="Network" actions={choice} polled={polled}>
      {({ networks, activity, batches }) => (
        <>
          {networks.length > 1 && <Networks networks={networks} shown={activity.network} />}
          <p class="note">
            Everything that settled on {nameNetwork(activity.network)}, of all providers and keepers, as of
            block {writeCount(activity.indexedBlock)}.{activity.testnet && ' Test money is worth nothing.'}
          </p>
          {activity.total.batches === 0 ? (
            <Empty
              title={`Nothing settled in the last ${activity.interval === 'day' ? '30 days' : '26 weeks'}`}
            >
              <p>Payments settle together, in one transaction. The first one shows here within seconds.</p>
            </Empty>
          ) : (
            <>
              <Figures activity={activity} />
              <NetworkPlots activity={activity} />
              <section class="panel">
                <h2>Keepers</h2>
                <Keepers activity={activity} />
                <p class="note">
                  Anyone may settle, and nobody pays for it: no terms of this gateway carry a reward, so a
                  keeper earns 0 USDC and its net is the gas that it paid. Amounts in USDC are at the price of
                  now.
                </p>
              </section>
            </>
          )}
          {batches.length > 0 && (
            <section class="panel">
              <h2>Newest batches</h2>
              <BatchTable batches={batches} network={activity.network} />
              <p>
                <a href={href('network', activity.network, 'batches')}>All batches</a>
              </p>
            </section>
          )}
        </>
      )}
    </View>
  )
}

function Networks({ networks, shown }: { networks: Home['networks']; shown: string }) {
  return (
    <nav class="tabs" aria-label="Networks">
      {networks.map(({ network }) => (
        <a
          key={network}
          href={href('network', network)}
          aria-current={network === shown ? 'page' : undefined}
        >
          {nameNetwork(network)}
        </a>
      ))}
    </nav>
  )
}

function Figures({ activity: { network, total } }: { activity: NetworkActivity }) {
  return (
    <dl class="figures">
      <Figure
        title="Payments"
        value={writeCount(total.payments)}
        note={
          <a href={href('network', network, 'batches')}>in {countOf(total.batches, 'batch', 'batches')}</a>
        }
      />
      <Figure
        title="Moved"
        value={writeUsdc(parseUsdc(total.total_usdc))}
        unit="USDC"
        note="to providers and platforms"
      />
      <Figure
        title="Gas per payment"
        value={writeCount(gasPerPayment(total))}
        note={`${writeCount(BigInt(total.gas_used))} in all`}
      />
      <Figure
        title="Paid for gas"
        value={writeUsdc(parseUsdc(total.gas_cost_usdc))}
        unit="USDC"
        note={`${total.gas_cost_ether} of the gas token`}
      />
      <Figure title="Keepers" value={writeCount(total.keepers)} note="settled any of it" />
    </dl>
  )
}

function Keepers({ activity: { network, keepers } }: { activity: NetworkActivity }) {
  return (
    <Table
      label="Keepers"
      isStacked
      head={[
        ['Keeper'],
        ['Batches', true],
        ['Payments', true],
        ['Moved, USDC', true],
        ['Gas per payment', true],
        ['Gas paid, USDC', true],
        ['Last batch'],
      ]}
    >
      {keepers.map((keeper) => (
        <tr key={keeper.address}>
          <td>
            <Copyable
              text={keeper.address}
              link={href('network', network, 'batches', 'keeper', keeper.address)}
            />{' '}
            <ExplorerLink network={network} path={`address/${keeper.address}`} />
          </td>
          <td class="right number" data-title="Batches">
            {writeCount(keeper.batches)}
          </td>
          <td class="right number" data-title="Payments">
            {writeCount(keeper.payments)}
          </td>
          <td class="right" data-title="Moved, USDC">
            <Usdc decimal={keeper.total_usdc} />
          </td>
          <td class="right number" data-title="Gas per payment">
            {writeCount(gasPerPayment(keeper))}
          </td>
          <td class="right" data-title="Gas paid, USDC">
            <Usdc decimal={keeper.gas_cost_usdc} />
          </td>
          <td data-title="Last batch">
            <Time at={keeper.lastBatchAt} distance />
          </td>
        </tr>
      ))}
    </Table>
  )
}
