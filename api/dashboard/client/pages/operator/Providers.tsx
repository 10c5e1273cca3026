import { useState } from 'preact/hooks'
import type { OperatorProviders } from '../../answers.ts'
import { writeCount } from '../../format.ts'
import { query } from '../../gateway.ts'
import { Copyable, ShowMore, Table, Time, Usdc } from '../../parts/bits.tsx'
import { Choice } from '../../parts/Choice.tsx'
import { Confirm } from '../../parts/Dialog.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { useOperator } from '../../session.ts'
import { usePolledPages } from '../../usePolledPages.ts'

const pageSize = 20

export function ProvidersPage() {
  const { gateway } = useOperator()
  /** Undefined: what the gateway shows first, real money where any network has it. */
  const [testMoney, setTestMoney] = useState<'true' | 'false'>()
  const { polled, showMore } = usePolledPages(async (signal, pages) => {
    let page: OperatorProviders | undefined
    const providers: OperatorProviders['providers'] = []
    for (let count = 0; count < pages && page?.cursor !== null; count++) {
      const asked = query({ testnet: testMoney, limit: pageSize, cursor: page?.cursor })
      page = await gateway.get<OperatorProviders>(`operator/providers${asked}`, signal)
      providers.push(...page.providers)
    }
    return { providers, testnet: page?.testnet ?? false, hasMore: page?.cursor != null }
  }, `providers ${testMoney}`)
  const [turned, setTurned] = useState<Listed>()
  const shown = testMoney ?? String(polled.data?.testnet ?? false)
  const choice = (
    <Choice
      label="Money"
      name="money"
      options={[
        ['false', 'Real money'],
        ['true', 'Test money'],
      ]}
      value={shown as 'true' | 'false'}
      choose={setTestMoney}
    />
  )
  return (
    <View title="Providers" actions={choice} polled={polled}>
      {({ providers, hasMore }) =>
        providers.length === 0 ? (
          <Empty title="No provider yet" />
        ) : (
          <section class="panel">
            <h2>Their last 30 days</h2>
            <ProviderTable providers={providers} turn={setTurned} />
            <ShowMore hasMore={hasMore} showMore={showMore} />
            {turned && (
              <Confirm
                title={`${turned.suspendedAt === null ? 'Suspend' : 'Reinstate'} ${turned.name}?`}
                action={turned.suspendedAt === null ? 'Suspend it' : 'Reinstate it'}
                isDanger={turned.suspendedAt === null}
                close={() => setTurned(undefined)}
                run={async () => {
                  const suspended = turned.suspendedAt === null
                  await gateway.patch(`operator/providers/${turned.providerId}`, { suspended })
                  setTurned(undefined)
                  polled.refresh()
                }}
              >
                <p>
                  While it is suspended, nothing of it is sold, and it can't lift that. What was accepted
                  before is settled all the same.
                </p>
              </Confirm>
            )}
          </section>
        )
      }
    </View>
  )
}

type Listed = OperatorProviders['providers'][number]

function ProviderTable({ providers, turn }: { providers: Listed[]; turn: (provider: Listed) => void }) {
  return (
    <Table
      label="Providers"
      isStacked
      head={[
        ['Provider'],
        ['Payments', true],
        ['Accepted, USDC', true],
        ['Settled, USDC', true],
        ['Fees settled, USDC', true],
        ['Endpoints', true],
        ['Keys', true],
        ['Since'],
        [''],
      ]}
    >
      {providers.map((provider) => {
        const { providerId, name, contact, disabledAt, suspendedAt, createdAt, endpoints, keys, revenue } =
          provider
        const off = suspendedAt !== null ? 'suspended' : disabledAt !== null ? 'disabled' : undefined
        return (
          <tr key={providerId} class={off && 'off'}>
            <td class="wrap">
              <b class="break">{name}</b> {off && <span class="status plain">{off}</span>}
              <br />
              <Copyable text={providerId} />
              {contact !== null && <span class="note break"> {contact}</span>}
            </td>
            <td class="right number" data-title="Payments">
              {writeCount(revenue.payments)}
            </td>
            <td class="right" data-title="Accepted, USDC">
              <Usdc decimal={revenue.gross_usdc} />
            </td>
            <td class="right" data-title="Settled, USDC">
              <Usdc decimal={revenue.settled_usdc} />
            </td>
            <td class="right" data-title="Fees settled, USDC">
              <Usdc decimal={revenue.settled_fee_usdc} />
            </td>
            <td class="right number" data-title="Endpoints">
              {writeCount(endpoints)}
            </td>
            <td class="right number" data-title="Keys">
              {writeCount(keys)}
            </td>
            <td data-title="Since">
              <Time at={createdAt} />
            </td>
            <td class="actions">
              <button type="button" class="quiet" onClick={() => turn(provider)}>
                {suspendedAt === null ? 'Suspend' : 'Reinstate'}
                <span class="unseen"> {name}</span>
              </button>
            </td>
          </tr>
        )
      })}
    </Table>
  )
}
