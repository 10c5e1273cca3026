import { AsyncLocalStorage } from 'node:async_hooks'
import type { ProposedPayment } from '@tollkeeper/sdk/client/limits'
import { payOtherSellers } from '@tollkeeper/sdk/client/otherSellers'
import type { PaymentOptions } from '@tollkeeper/sdk/client/paymentFlow'
import type { PaidReceipt } from '@tollkeeper/sdk/client/receipts'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { BuyerSettings } from './settings.ts'
import type { WalletFolder } from './walletFolder.ts'

/** One call of a tool, and its payments. Amounts are USDC base units. */
export type Call = {
  /** The most that a payment for it may cost. */
  maxPrice: bigint | undefined
  /** Asks the user; undefined if the host can't. */
  ask: ((question: string) => Promise<boolean>) | undefined
  /** Amounts that were agreed to: the most that can be charged. */
  agreed: bigint[]
  receipts: PaidReceipt[]
}

/** Ties payments to the call that makes them, and pays only within one. */
export type Purse = {
  /** How the wallet pays, without the tabs. */
  options: Omit<PaymentOptions, 'tabs'>
  /** Runs what may pay for a call. */
  within: <Result>(call: Call, act: () => Promise<Result>) => Promise<Result>
}

/** The wallet with its limits. The SDK keeps those for all calls; a call's own limit and the user's word are added here. */
export function createPurse(
  settings: BuyerSettings,
  folder: WalletFolder,
  allowedHosts: readonly string[],
): Purse {
  const { askAbove, maxPayment, maxDaily, maxDailyPerHost, usdcAddress } = settings
  const { gatewayUrl, network, walletPrivateKey } = settings
  const calls = new AsyncLocalStorage<Call>()

  /** @throws Error that says why it isn't paid. */
  async function agree(proposed: ProposedPayment): Promise<void> {
    const call = calls.getStore()
    if (!call) throw new Error('no call of a tool is under way')
    const { amount } = proposed
    const { maxPrice, ask } = call
    const price = `the price is ${formatUsdc(amount)} USDC`
    if (maxPrice !== undefined && amount > maxPrice)
      throw new Error(`${price}, max_price_usdc of this call is ${formatUsdc(maxPrice)}`)
    if (amount > askAbove) {
      const above = `${price}, above ASK_ABOVE_USDC (${formatUsdc(askAbove)})`
      if (!ask) {
        throw new Error(
          `${above}, and this host can't ask its user (it has no elicitation). To have it paid unasked, the owner sets ASK_ABOVE_USDC to ${formatUsdc(amount)} or more in this server's environment`,
        )
      }
      if (!(await ask(questionOf(proposed, settings)))) throw new Error(`${above}, and the user said no`)
    }
    call.agreed.push(amount)
  }

  return {
    options: {
      gatewayUrl,
      network,
      walletPrivateKey,
      otherSellers: payOtherSellers(),
      onPayment: agree,
      spending: folder.spending,
      maxPaymentUsdc: formatUsdc(maxPayment),
      maxDailyUsdc: formatUsdc(maxDaily),
      ...(maxDailyPerHost !== null && { maxDailyUsdcPerHost: formatUsdc(maxDailyPerHost) }),
      ...(usdcAddress !== null && { usdcAddress }),
      ...(allowedHosts.length > 0 && { allowedHosts: [...allowedHosts, new URL(gatewayUrl).origin] }),
      warn: (message) => process.stderr.write(`${message}\n`),
      onReceipt: async (paid) => {
        calls.getStore()?.receipts.push(paid)
        await folder.keepReceipt(paid)
      },
    },
    within: (call, act) => calls.run(call, act),
  }
}

/** A seller chooses nothing in it but the price and the URL, whose spelling keeps it on one line. */
function questionOf({ amount, url }: ProposedPayment, { network, maxDaily }: BuyerSettings): string {
  const { origin, pathname, hash } = new URL(url)
  return `Pay ${formatUsdc(amount)} USDC on ${network} to ${origin} for ${`${pathname}${hash}`.slice(0, 200)}? At most ${formatUsdc(maxDaily)} USDC are spent within 24 hours.`
}
