import type { VerifiedReceipt } from '@tollkeeper/sdk/audit/verifyReceipt'
import { type ReceiptClaims, zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import { countOf, nameNetwork, shorten, writeRate, writeUsdc } from '../display/format.ts'
import { href } from '../display/routing.ts'
import type { ProviderPayment } from '../gateway/answers.ts'
import { useEndpoints } from '../gateway/useEndpoints.ts'
import type { Column } from './Table.tsx'
import { Badge, Code, Copyable, Facts, Time, Transaction, Usdc } from './ui.tsx'

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

/**
 * Shows an endpoint's method and path, with a link to its page. Shows the endpoint's id while the list of endpoints is being
 * read.
 */
export function EndpointName({ id }: { id: string | null }) {
  const found = useEndpoints().find(({ endpointId }) => endpointId === id)
  if (id === null) return <span class="note">x402 facilitator</span>
  return (
    <a class="code clip" href={href('endpoints', id)} title={found?.url ?? id}>
      {found ? `${found.method} ${found.path}` : shorten(id)}
    </a>
  )
}

/** Shows a buyer's address, with a link to the buyer's page. */
export function Buyer({ address }: { address: string }) {
  return <Copyable text={address} link={href('buyers', address.toLowerCase())} />
}

const nothing = <span class="note">–</span>

const columns: Column<ProviderPayment>[] = [
  [
    'Payment',
    ({ paymentId, tab }) => (
      <>
        <PaymentLink paymentId={paymentId} />
        {tab !== null && <span class="note"> tab, {countOf(tab.requests, 'request')}</span>}
      </>
    ),
  ],
  [
    'Endpoint',
    ({ endpointId, network }) => (
      <>
        <EndpointName id={endpointId} />
        <br />
        <span class="note">{nameNetwork(network)}</span>
      </>
    ),
    undefined,
    'more',
  ],
  ['Status', ({ payment_status }) => <Status status={payment_status} />],
  ['Gross, USDC', ({ totalUsdc }) => <Usdc units={totalUsdc} />, 'number'],
  ['Fee, USDC', ({ platformUsdc }) => <Usdc units={platformUsdc} />, 'number'],
  ['Net, USDC', ({ providerUsdc }) => <Usdc units={providerUsdc} />, 'number', 'end'],
  [
    'Refunded, USDC',
    ({ refundedUsdc }) => (refundedUsdc === '0' ? nothing : <Usdc units={refundedUsdc} />),
    'number',
  ],
  ['Buyer', ({ payer }) => <Buyer address={payer} />],
  ['Accepted', ({ acceptedAt }) => <Time at={acceptedAt} />],
]

/** The columns of a table of payments. A tab has one row for each endpoint and hour in which it was used. */
export const payments = {
  columns,
  keyOf: ({ paymentId, tab }: ProviderPayment) => (tab === null ? paymentId : `${paymentId} ${tab.sale}`),
}

/** Shows the claims of a receipt. */
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
        Transaction: isOnChain ? (
          <Transaction hash={transactionHash} network={network} />
        ) : (
          'none when the receipt was signed'
        ),
        'Issued by': <Code>{claims.iss}</Code>,
        Key: 'kid' in claims && <Code>{claims.kid}</Code>,
      }}
    />
  )
}
