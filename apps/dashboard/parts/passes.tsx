import { writeCount } from '../display/format.ts'
import type { Pass } from '../gateway/answers.ts'
import { Buyer, PaymentLink } from './payments.tsx'
import type { Column } from './Table.tsx'
import { Badge, Facts, Panel, Time } from './ui.tsx'

const stateNames = { valid: 'valid', ended: 'ended', used_up: 'used up', expired: 'expired' } as const

const endReasons = {
  refunded: 'Your part of the payment was refunded.',
  voided: 'The request that paid for it failed, so the payment was voided.',
  unpaid: 'The payment could not be settled. The pass becomes valid again if the payment settles.',
} as const

function PassState({ pass: { pass_state } }: { pass: Pass }) {
  return <Badge tone={pass_state === 'valid' ? 'good' : 'plain'}>{stateNames[pass_state]}</Badge>
}

const usedOf = ({ requests, used }: Pass) =>
  requests === null ? 'not counted' : `${writeCount(used)} of ${writeCount(requests)}`

/** Shows the pass that a payment bought. */
export function PassPanel({ pass }: { pass: Pass }) {
  const { boundTo, startsAt, endsAt, endReason, endedAt } = pass
  return (
    <Panel title="Pass" label="Pass" beside={<PassState pass={pass} />}>
      <Facts
        of={{
          'Valid from': <Time at={startsAt} />,
          'Valid until': <Time at={endsAt} />,
          'Requests used': usedOf(pass),
          'Usable by': boundTo === 'payer' ? 'the wallet that paid' : 'anyone who has the pass',
          Ended: endedAt !== null && <Time at={endedAt} />,
          Reason: endReason !== null && endReasons[endReason],
        }}
      />
    </Panel>
  )
}

/** Columns of a list of passes. */
export const passColumns: Column<Pass>[] = [
  ['Sold', ({ paymentId }) => <PaymentLink paymentId={paymentId} />],
  ['Buyer', ({ payer }) => <Buyer address={payer} />],
  ['State', (pass) => <PassState pass={pass} />],
  ['Valid until', ({ endsAt }) => <Time at={endsAt} />],
  ['Requests used', usedOf, 'number'],
]
