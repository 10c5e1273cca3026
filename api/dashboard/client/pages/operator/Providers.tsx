import { useState } from 'preact/hooks'
import type { OperatorProviders } from '../../answers.ts'
import { writeCount } from '../../format.ts'
import { type Gateway, query } from '../../gateway.ts'
import { type Act, say, useActs } from '../../parts/acts.tsx'
import { Badge, type Column, Copyable, Panel, ShowMore, Table, Time, Usdc } from '../../parts/bits.tsx'
import { Choice } from '../../parts/Choice.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { useOperator } from '../../session.ts'
import { usePolledPages } from '../../usePolledPages.ts'

export function ProvidersPage() {
  const { gateway } = useOperator()
  /** Undefined: the gateway's first choice, which is real money if any network has it. */
  const [testMoney, setTestMoney] = useState<'true' | 'false'>()
  const { polled, showMore } = usePolledPages(async ({ signal, pages }) => {
    let page: OperatorProviders | undefined
    const providers: OperatorProviders['providers'] = []
    for (let count = 0; count < pages && page?.cursor !== null; count++) {
      const asked = query({ testnet: testMoney, limit: 20, cursor: page?.cursor })
      page = await gateway.get<OperatorProviders>(`operator/providers${asked}`, signal)
      providers.push(...page.providers)
    }
    return { providers, testnet: page?.testnet ?? false, hasMore: page?.cursor != null }
  }, `providers ${testMoney}`)
  const { notice, buttons, dialog } = useActs(polled.refresh)
  const shown = testMoney ?? `${polled.data?.testnet ?? false}`
  const choice = <Choice label="Money" options={monies} value={shown} choose={setTestMoney} />
  return (
    <View title="Providers" actions={choice} polled={polled}>
      {({ providers, hasMore }) =>
        providers.length === 0 ? (
          <Empty title="No provider yet" />
        ) : (
          <Panel title="Their last 30 days">
            {notice}
            <Table
              label="Providers"
              rows={providers}
              keyOf={({ providerId }) => providerId}
              isOff={(one) => offOf(one) !== undefined}
              columns={[...columns, ['', (one) => buttons([turn(one, gateway)], 'quiet'), 'actions']]}
            />
            <ShowMore hasMore={hasMore} showMore={showMore} />
            {dialog}
          </Panel>
        )
      }
    </View>
  )
}

const monies = [
  ['false', 'Real money'],
  ['true', 'Test money'],
] as const

type Listed = OperatorProviders['providers'][number]

/** The operator's act that stops a provider's sales, or allows them again. */
function turn({ providerId, name, suspendedAt }: Listed, gateway: Gateway): Act {
  const suspended = suspendedAt === null
  const verb = suspended ? 'Suspend' : 'Reinstate'
  return {
    button: verb,
    of: name,
    title: `${verb} ${name}?`,
    text: 'While it is suspended, nothing of it is sold, and it can’t lift that. What was accepted before is settled all the same.',
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
