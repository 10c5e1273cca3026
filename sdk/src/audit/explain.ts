import { formatUsdc } from '../protocol/amount.ts'
import type { Verdict } from './judge.ts'
import type { AuditedHalf, AuditedPayout, AuditedRefund } from './report.ts'

/** Describes a verdict in one sentence for people. */
export function explain(
  { halves, reason, isSuperseded, refunds }: Verdict,
  payout?: AuditedPayout | 'waiting',
): string {
  if (reason === 'voided') return 'Voided by the provider, and nothing moved'
  const text = `${explainHalves(halves)}${payout ? explainPayout(payout) : ''}${refunds?.map(explainRefund).join('') ?? ''}`
  return isSuperseded ? `${text}; the receipt names another transaction or block, from before a reorg` : text
}

function explainRefund({ number, state, value, transactionHash }: AuditedRefund): string {
  const refund = `; refund ${number} of ${formatUsdc(value)} USDC`
  if (state === 'settled') return `${refund} arrived in ${transactionHash}`
  if (state === 'pending') return `${refund} has not arrived yet`
  return state === 'missing'
    ? `${refund} is said to have arrived, but isn't on chain`
    : `${refund} is another transfer`
}

function explainPayout(payout: AuditedPayout | 'waiting'): string {
  if (payout === 'waiting') return '; both parts wait in the splitter'
  const platform = payout.isPlatformPaid ? '' : ", the platform's part to a splitter of its own"
  return `; paid out in ${payout.transactionHash}${platform}`
}

function explainHalves([provider, platform]: Verdict['halves']): string {
  if (platform === undefined) return `The payment ${explainHalf(provider)}`
  const isSame =
    provider.state === platform.state &&
    provider.reason === platform.reason &&
    provider.onChain?.transactionHash === platform.onChain?.transactionHash
  return isSame && provider.reason !== 'recipient' && provider.reason !== 'amount'
    ? `Both halves ${explainHalf(provider)}`
    : `Provider's half ${explainHalf(provider)}; platform's ${explainHalf(platform)}`
}

function explainHalf({ reason, to, value, onChain }: AuditedHalf): string {
  switch (reason) {
    case 'confirming':
      return `mined in ${onChain?.transactionHash}, not confirmed yet`
    case 'waiting':
      return 'not used on chain yet'
    case 'expired':
      return 'never used on chain, and expired'
    case 'said_to_be_settled':
      return 'said to be settled, but not on chain'
    case 'payer':
      return `paid by ${onChain?.from}, not by the payer named`
    case 'recipient':
      return `paid to ${onChain?.to} instead of ${to}`
    case 'amount':
      return `moved ${formatUsdc(onChain?.value ?? 0n)} USDC instead of ${formatUsdc(value)}`
    case 'tab':
      return 'names a nonce, a contract or a provider that is not that of its tab'
    case 'line':
      return `is on a tab that moved with only ${formatUsdc(onChain?.line ?? 0n)} USDC on its line`
    case 'lines_unread':
      return `is on a tab that moved in ${onChain?.transactionHash}, which does not show its lines`
    case 'token':
      return "in a token that isn't this network's USDC"
    case 'no_transfer':
      return `used in ${onChain?.transactionHash} without a transfer`
    case 'splitter':
      return `pays ${to}, which isn't the splitter of its two wallets`
    case 'same_nonce':
      return 'carries the same nonce as the other'
    case 'cancelled_on_chain':
      return `cancelled by the payer in ${onChain?.transactionHash}`
    default:
      return `settled in ${onChain?.transactionHash}`
  }
}
