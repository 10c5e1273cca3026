import type { Evidence } from '../src/audit/evidence.ts'
import { type ReceiptClaims, zeroHash } from '../src/protocol/receipt.ts'
import { encodeSplit } from '../src/protocol/splitter.ts'
import { tabNonce, tabStateDigest, toWord } from '../src/protocol/tab.ts'
import type { TabLineClaims } from '../src/protocol/tabLine.ts'
import type { SettledTab } from '../src/protocol/tabSettlement.ts'
import { address, facts, payer, claims as receipt, transaction } from './audited.ts'

// A tab with two lines for two providers, the tab line of the first provider, and the chain's logs of the tab.

const contract = facts.tabSettlement
const tabId = `tab_${'0'.repeat(32)}`
export const nonce = tabNonce(receipt.iss, tabId)
const splitOf = (digit: string) =>
  encodeSplit({ provider: address(digit), providerShare: 9n, platformShare: 1n })
const ownSplit = splitOf('1')
export const otherSplit = splitOf('2')

/** The state that the gateway selected. It pays 3,000 to the first provider and 7 to the second. */
const settledState: SettledTab = {
  platform: address('3'),
  rewardShare: 1_000,
  sequence: 12,
  lines: [
    { split: ownSplit, amount: 3_000n },
    { split: otherSplit, amount: 7n },
  ],
}
export const digestOf = (tab: SettledTab) =>
  tabStateDigest({ ...tab, chainId: 31_337 }, { ...tab, nonce, payer })

/** Three requests at 1,000 each: two for one endpoint, one for another. */
export const tabLine: TabLineClaims = {
  iss: receipt.iss,
  iat: receipt.iat,
  status: 'verified',
  network: 'localhost',
  testnet: true,
  asset: facts.token,
  contract,
  paymentId: 'pay_tab',
  providerId: 'prov_1',
  payer,
  validBefore: '2000',
  payee: address('1'),
  platform: address('3'),
  tab: {
    id: tabId,
    split: toWord(ownSplit),
    rewardShare: 1_000,
    sequence: 12,
    state: digestOf(settledState),
  },
  requests: 3,
  totalUsdc: '3000',
  providerUsdc: '2700',
  platformUsdc: '300',
  sales: [
    {
      endpointId: 'ep_1',
      requests: 2,
      totalUsdc: '2000',
      providerUsdc: '1800',
      platformUsdc: '200',
      lastAt: '2026-11-30T23:59:59.000Z',
    },
    {
      endpointId: 'ep_2',
      requests: 1,
      totalUsdc: '1000',
      providerUsdc: '900',
      platformUsdc: '100',
      lastAt: '2026-12-01T00:00:01.000Z',
    },
  ],
  line: { signedUsdc: '3000', chargedUsdc: '3000', creditUsdc: '0', othersUsdc: '0' },
  openedAt: '2026-11-30T23:30:00.000Z',
  closedAt: '2026-12-01T00:20:00.000Z',
  transactionHash: zeroHash,
}

/** Returns the receipt of a request on the line. */
export const requestReceipt = (sequence: number, change: Partial<ReceiptClaims> = {}): ReceiptClaims => ({
  ...receipt,
  paymentId: tabLine.paymentId,
  totalUsdc: '1000',
  providerUsdc: '900',
  platformUsdc: '100',
  authorizations: [{ to: contract, value: '1000', nonce }],
  split: { provider: address('1'), platform: address('3') },
  tab: {
    id: tabId,
    sequence,
    split: toWord(ownSplit),
    rewardShare: 1_000,
    lineTotal: `${1_000 * sequence}`,
  },
  ...change,
})

/** Returns the logs of USDC and TabSettlement for the tab. */
export const movedTab = (state: Partial<SettledTab> = {}, change: Partial<Evidence> = {}): Evidence => {
  const tab = { ...settledState, ...state }
  return {
    kind: 'used',
    authorizer: payer,
    nonce,
    transactionHash: transaction,
    blockNumber: 90n,
    blockHash: transaction,
    blockTime: 900n,
    logIndex: 0,
    transfer: { to: contract, value: tab.lines.reduce((sum, { amount }) => sum + amount, 0n) },
    tab,
    ...change,
  }
}

/** Returns a state with the given amount on the provider's line. */
export const withLine = (amount: bigint, sequence = settledState.sequence): SettledTab => ({
  ...settledState,
  sequence,
  lines: [
    { split: ownSplit, amount },
    { split: otherSplit, amount: 7n },
  ],
})
