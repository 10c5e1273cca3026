import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { writeCount } from '../display/format.ts'
import { hrefWith } from '../display/routing.ts'
import type { Payer } from '../gateway/answers.ts'
import { Badge, Copyable } from './ui.tsx'

/** Shows a buyer's address, with a link to its page. */
export function BuyerLink({ payer, testnet }: { payer: string; testnet: boolean }) {
  return <Copyable text={payer} link={hrefWith(['buyers', payer], { testnet: String(testnet) })} />
}

type BuyerState = Pick<Payer, 'isNew' | 'owed_usdc' | 'retryingPayments' | 'failedPayments'>

/** Shows a buyer's badges: new or returning, debts and failures. */
export function BuyerBadges({ isNew, owed_usdc, retryingPayments, failedPayments }: BuyerState) {
  return (
    <span class="line badges">
      {isNew !== null && <Badge tone="plain">{isNew ? 'new' : 'returning'}</Badge>}
      {parseUsdc(owed_usdc) > 0n && <Badge tone="bad">owes</Badge>}
      {retryingPayments > 0 && <Badge tone="busy">{writeCount(retryingPayments)} retrying</Badge>}
      {failedPayments > 0 && <Badge tone="bad">{writeCount(failedPayments)} failed</Badge>}
    </span>
  )
}
