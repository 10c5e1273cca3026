import { type ReceiptClaims, zeroHash } from '#protocol/receipt'
import type { VerifiedReceipt } from '#sdk/audit/verifyReceipt'
import { nameNetwork, writeRate, writeUsdc } from '../format.ts'
import { Code, Copyable, Facts, Time, Transaction } from './bits.tsx'

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
