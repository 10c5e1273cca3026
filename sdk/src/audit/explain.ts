import { formatUsdc } from '../protocol/amount.ts'
import type { Verdict } from './judge.ts'
import type { AuditedHalf, AuditedPayout, AuditedRefund, AuditReason } from './report.ts'

/** Describes a verdict in one sentence for people. */
export function explain(
  { halves, reason, isSuperseded, refunds }: Verdict,
  payout?: AuditedPayout | 'waiting',
): string {
  if (reason === 'voided') return 'The provider voided the payment, and no USDC moved'
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
    ? `Each authorization ${explainHalf(provider)}`
    : `The provider's authorization ${explainHalf(provider)}; the platform's ${explainHalf(platform)}`
}

/** The predicate of a sentence about an authorization, by the reason of its verdict. */
const sentences: Partial<Record<AuditReason, (half: AuditedHalf) => string>> = {
  confirming: ({ onChain }) =>
    `was mined in ${onChain?.transactionHash}, but without enough confirmations yet`,
  waiting: () => 'has yet to settle on chain',
  expired: () => 'expired without being used on chain',
  said_to_be_settled: () => 'was reported as settled, but can’t be found on chain',
  payer: ({ onChain }) => `was paid by ${onChain?.from}, not by the payer in the receipt`,
  recipient: ({ to, onChain }) => `was paid to ${onChain?.to} instead of ${to}`,
  amount: ({ value, onChain }) =>
    `moved ${formatUsdc(onChain?.value ?? 0n)} USDC instead of ${formatUsdc(value)}`,
  tab: () => 'names a nonce, a contract or a provider that doesn’t match its tab',
  line: ({ onChain }) =>
    `is on a tab that settled with only ${formatUsdc(onChain?.line ?? 0n)} USDC on its line`,
  terms: ({ onChain }) =>
    `is on a tab that settled under other terms: ${(onChain?.lostFeeShare ?? 0) / 100}% of the platform's part went elsewhere`,
  token: () => "names a token that isn't this network's USDC",
  no_transfer: ({ onChain }) => `was used in ${onChain?.transactionHash} without a transfer`,
  splitter: ({ to }) => `pays ${to}, which isn't the splitter for the receipt's two wallets and amounts`,
  same_nonce: () => 'has the same nonce as the other authorization',
  cancelled_on_chain: ({ onChain }) => `was cancelled by the payer in ${onChain?.transactionHash}`,
}

function explainHalf(half: AuditedHalf): string {
  const sentence = half.reason && sentences[half.reason]
  return sentence?.(half) ?? `settled in ${half.onChain?.transactionHash}`
}
