import { formatUsdc } from '../protocol/amount.ts'
import type { Verdict } from './judge.ts'
import type { AuditedHalf, AuditedPayout, AuditedRefund, AuditReason } from './report.ts'

/** Describes a verdict in one sentence for people. */
export function explain(
  { halves, reason, isSuperseded, refunds }: Verdict,
  payout?: AuditedPayout | 'waiting',
): string {
  if (reason === 'voided') return 'Voided by the provider, and no USDC moved'
  const text = `${explainHalves(halves)}${payout ? explainPayout(payout) : ''}${refunds?.map(explainRefund).join('') ?? ''}`
  return isSuperseded ? `${text}; the receipt names another transaction or block, from before a reorg` : text
}

function explainRefund({ number, state, value, transactionHash }: AuditedRefund): string {
  const refund = `; refund ${number} of ${formatUsdc(value)} USDC`
  if (state === 'settled') return `${refund} arrived in ${transactionHash}`
  if (state === 'pending') return `${refund} has not arrived yet`
  return state === 'missing'
    ? `${refund} is reported as arrived, but isn't on chain`
    : `${refund} doesn't match the transfer on chain`
}

function explainPayout(payout: AuditedPayout | 'waiting'): string {
  if (payout === 'waiting') return '; both parts wait in the splitter'
  const platform = payout.isPlatformPaid ? '' : ", with the platform's part in a separate splitter"
  return `; paid out in ${payout.transactionHash}${platform}`
}

function explainHalves([provider, platform]: Verdict['halves']): string {
  if (platform === undefined) return `The payment ${explainHalf(provider)}`
  const isSame =
    provider.state === platform.state &&
    provider.reason === platform.reason &&
    provider.onChain?.transactionHash === platform.onChain?.transactionHash
  return isSame && provider.reason !== 'recipient' && provider.reason !== 'amount'
    ? `Both authorizations ${explainHalf(provider)}`
    : `Provider's authorization ${explainHalf(provider)}; platform's ${explainHalf(platform)}`
}

/** Descriptions of an authorization's verdict, by its reason. */
const sentences: Partial<Record<AuditReason, (half: AuditedHalf) => string>> = {
  confirming: ({ onChain }) => `mined in ${onChain?.transactionHash}, not confirmed yet`,
  waiting: () => 'not used on chain yet',
  expired: () => 'never used on chain, and expired',
  said_to_be_settled: () => 'reported as settled, but not found on chain',
  payer: ({ onChain }) => `paid by ${onChain?.from}, not by the payer in the receipt`,
  recipient: ({ to, onChain }) => `paid to ${onChain?.to} instead of ${to}`,
  amount: ({ value, onChain }) =>
    `moved ${formatUsdc(onChain?.value ?? 0n)} USDC instead of ${formatUsdc(value)}`,
  tab: () => 'names a nonce, a contract or a provider that doesn’t match its tab',
  line: ({ onChain }) =>
    `is on a tab that settled with only ${formatUsdc(onChain?.line ?? 0n)} USDC on its line`,
  terms: ({ onChain }) =>
    `is on a tab that settled under other terms: ${(onChain?.lostFeeShare ?? 0) / 100}% of the platform's part went elsewhere`,
  token: () => "names a token that isn't this network's USDC",
  no_transfer: ({ onChain }) => `used in ${onChain?.transactionHash} without a transfer`,
  splitter: ({ to }) => `pays ${to}, which isn't the splitter for the receipt's two wallets and amounts`,
  same_nonce: () => 'has the same nonce as the other authorization',
  cancelled_on_chain: ({ onChain }) => `cancelled by the payer in ${onChain?.transactionHash}`,
}

function explainHalf(half: AuditedHalf): string {
  const sentence = half.reason && sentences[half.reason]
  return sentence?.(half) ?? `settled in ${half.onChain?.transactionHash}`
}
