import type { VerifiedReceipt } from '@tollkeeper/sdk/audit/verifyReceipt'
import { type ReceiptClaims, zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import { countOf, nameNetwork, shorten, writeRate, writeUsdc } from '../display/format.ts'
import { href } from '../display/routing.ts'
import type { ProviderPayment } from '../gateway/answers.ts'
import { Badge, Code, Copyable, Facts, Time, Transaction, Usdc } from './bits.tsx'
import type { Column } from './Table.tsx'

export function PaymentLink({ paymentId }: { paymentId: string }) {
  return (
    <a class="code" href={href('payments', paymentId)} title={paymentId}>
      {shorten(paymentId)}
    </a>
  )
}

const tones: Record<string, 'good' | 'busy' | 'bad'> = {
  settled: 'good',
  settling: 'busy',
  verified: 'busy',
  retrying: 'busy',
  partially_settled: 'busy',
  failed: 'bad',
}

const statusNames: Record<string, string> = { verified: 'queued', partially_settled: 'partly settled' }

export function nameStatus(status: string): string {
  return statusNames[status] ?? status
}

export function Status({ status }: { status: string }) {
  return <Badge tone={tones[status] ?? 'plain'}>{nameStatus(status)}</Badge>
}

const columns: Column<ProviderPayment>[] = [
  [
    'Payment',
    ({ paymentId, source, tab }) => (
      <>
        <PaymentLink paymentId={paymentId} />
        {source === 'facilitator' && <span class="note"> x402 facilitator</span>}
        {tab !== null && <span class="note"> tab, {countOf(tab.requests, 'request')}</span>}
      </>
    ),
  ],
  ['Status', ({ payment_status }) => <Status status={payment_status} />],
  ['You get, USDC', ({ providerUsdc }) => <Usdc units={providerUsdc} />, 'number'],
  ['Fee, USDC', ({ platformUsdc }) => <Usdc units={platformUsdc} />, 'number'],
  ['Payer', ({ payer }) => <Copyable text={payer} />],
  ['Accepted', ({ acceptedAt }) => <Time at={acceptedAt} />],
]

/** How a table shows payments. What was sold on one tab has a row for each endpoint and hour. */
export const payments = {
  columns,
  keyOf: ({ paymentId, tab }: ProviderPayment) => (tab === null ? paymentId : `${paymentId} ${tab.sale}`),
}

/** What a receipt says. */
export function Claims({ claims }: { claims: ReceiptClaims | VerifiedReceipt }) {
  const { totalUsdc, providerUsdc, platformUsdc, tier, effectiveRate, network, transactionHash } = claims
  const isOnChain = transactionHash !== zeroHash
  return (
    <Facts
      of={{
        Payment: <Copyable text={claims.paymentId} />,
        'Total, USDC': writeUsdc(BigInt(totalUsdc)),
        'Provider and platform, USDC': `${writeUsdc(BigInt(providerUsdc))} + ${writeUsdc(BigInt(platformUsdc))}`,
        Tier: `${tier}, ${writeRate(effectiveRate)} fee`,
        Payer: <Copyable text={claims.payer} />,
        'Paid to': <Copyable text={claims.authorizations[0].to} />,
        Network: nameNetwork(network),
        Accepted: <Time at={claims.timestamp} />,
        Resource: <Code>{claims.resource}</Code>,
        Transaction: isOnChain ? <Transaction hash={transactionHash} network={network} /> : 'none yet',
        'Issued by': <Code>{claims.iss}</Code>,
        Key: 'kid' in claims && <Code>{claims.kid}</Code>,
      }}
    />
  )
}
