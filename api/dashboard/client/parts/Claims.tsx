import { type ReceiptClaims, zeroHash } from '#protocol/receipt'
import type { VerifiedReceipt } from '#sdk/audit/verifyReceipt'
import { nameNetwork, writeRate, writeUsdc } from '../format.ts'
import { Copyable, Fact, Time, Transaction } from './bits.tsx'

/** Shows the claims of a receipt. */
export function Claims({ claims }: { claims: ReceiptClaims | VerifiedReceipt }) {
  const { totalUsdc, providerUsdc, platformUsdc, tier, effectiveRate, network, transactionHash } = claims
  return (
    <dl class="facts">
      <Fact title="Payment">
        <Copyable text={claims.paymentId} />
      </Fact>
      <Fact title="Total">
        <span class="number">{writeUsdc(BigInt(totalUsdc))}</span> USDC
      </Fact>
      <Fact title="Provider and platform">
        <span class="number">
          {writeUsdc(BigInt(providerUsdc))} + {writeUsdc(BigInt(platformUsdc))}
        </span>{' '}
        USDC
      </Fact>
      <Fact title="Tier">
        {tier}, {writeRate(effectiveRate)} fee
      </Fact>
      <Fact title="Payer">
        <Copyable text={claims.payer} />
      </Fact>
      <Fact title="Paid to">
        <Copyable text={claims.authorizations[0].to} />
      </Fact>
      <Fact title="Network">{nameNetwork(network)}</Fact>
      <Fact title="Accepted">
        <Time at={claims.timestamp} />
      </Fact>
      <Fact title="Resource">
        <span class="code break">{claims.resource}</span>
      </Fact>
      <Fact title="Transaction">
        {transactionHash === zeroHash ? 'none yet' : <Transaction hash={transactionHash} network={network} />}
      </Fact>
      <Fact title="Issued by">
        <span class="code break">{claims.iss}</span>
      </Fact>
      {'kid' in claims && (
        <Fact title="Key">
          <span class="code break">{claims.kid}</span>
        </Fact>
      )}
    </dl>
  )
}
