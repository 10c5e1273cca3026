import { useState } from 'preact/hooks'
import { writeCount } from '../../display/format.ts'
import type { OperatorProviders } from '../../gateway/answers.ts'
import type { Gateway } from '../../gateway/gateway.ts'
import { usePolledPages } from '../../gateway/usePolled.ts'
import { type Action, say, useActions } from '../../parts/actions.tsx'
import { type Column, Table } from '../../parts/Table.tsx'
import { Badge, Choice, Copyable, Panel, Time, Usdc } from '../../parts/ui.tsx'
import { Empty, View } from '../../parts/View.tsx'

export function ProvidersPage({ gateway }: { gateway: Gateway }) {
  /** The shown kind of money. Undefined: the gateway's default, which is real money if any network has it. */
  const [testMoney, setTestMoney] = useState<'true' | 'false'>()
  const polled = usePolledPages(async (pages) => {
    const asked = { testnet: testMoney, limit: 20 }
    return gateway.list<Listed, OperatorProviders>('operator/providers', asked, pages)
  }, `providers ${testMoney}`)
  const { notice, buttons, dialog } = useActions(polled.refresh)
  const shown = testMoney ?? `${polled.data?.last.testnet ?? false}`
  return (
    <View
      title="Providers"
      actions={<Choice label="Money" options={monies} value={shown} choose={setTestMoney} />}
      polled={polled}
      none={
        <Empty title="No provider yet">
          Providers appear here once they are registered. You can register one with{' '}
          <code>tollkeeper provider create</code>.
        </Empty>
      }
    >
      {({ rows, more }) => (
        <Panel title="Their last 30 days">
          {notice}
          <Table
            label="Providers"
            rows={rows}
            keyOf={({ providerId }) => providerId}
            isOff={(one) => offOf(one) !== undefined}
            columns={[...columns, ['', (one) => buttons([toggleSales(one, gateway)], 'quiet'), 'actions']]}
            more={more}
          />
          {dialog}
        </Panel>
      )}
    </View>
  )
}

const monies = [
  ['false', 'Real money'],
  ['true', 'Test money'],
] as const

type Listed = OperatorProviders['providers'][number]

/** The operator's action that suspends a provider's sales, or allows them again. */
function toggleSales({ providerId, name, suspendedAt }: Listed, gateway: Gateway): Action {
  const suspended = suspendedAt === null
  const verb = suspended ? 'Suspend' : 'Reinstate'
  return {
    button: verb,
    of: name,
    title: `${verb} ${name}?`,
    text: 'A suspended provider can’t sell anything, and can’t lift the suspension itself. Payments that were already accepted still settle.',
    action: `${verb} it`,
    isDanger: suspended,
    send: () =>
      say(
        gateway.patch(`operator/providers/${providerId}`, { suspended }),
        `${name} is ${suspended ? 'suspended' : 'reinstated'}.`,
      ),
  }
}

function offOf({ disabledAt, suspendedAt }: Listed): string | undefined {
  return suspendedAt !== null ? 'suspended' : disabledAt !== null ? 'disabled' : undefined
}

const columns: Column<Listed>[] = [
  [
    'Provider',
    (one) => (
      <>
        <b class="break">{one.name}</b> {offOf(one) && <Badge tone="plain">{offOf(one)}</Badge>}
        <br />
        <Copyable text={one.providerId} />
        {one.contact !== null && <span class="note break"> {one.contact}</span>}
      </>
    ),
    'wrap',
  ],
  ['Payments', ({ revenue }) => writeCount(revenue.payments), 'number'],
  ['Accepted, USDC', ({ revenue }) => <Usdc decimal={revenue.gross_usdc} />, 'number'],
  ['Settled, USDC', ({ revenue }) => <Usdc decimal={revenue.settled_usdc} />, 'number'],
  ['Fees settled, USDC', ({ revenue }) => <Usdc decimal={revenue.settled_fee_usdc} />, 'number'],
  ['Endpoints', ({ endpoints }) => writeCount(endpoints), 'number'],
  ['Keys', ({ keys }) => writeCount(keys), 'number'],
  ['Since', ({ createdAt }) => <Time at={createdAt} />],
]
