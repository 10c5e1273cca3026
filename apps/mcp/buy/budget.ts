import { AsyncLocalStorage } from 'node:async_hooks'
import type { ProposedPayment } from '@tollkeeper/sdk/client/limits'
import type { PaymentOptions } from '@tollkeeper/sdk/client/paymentFlow'
import type { PaidReceipt } from '@tollkeeper/sdk/client/receipts'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { BuyerSettings } from './settings.ts'
import type { WalletFolder } from './walletFolder.ts'

/** A call of a tool, and its payments. Amounts are USDC base units. */
export type Call = {
  /** Maximum price of a payment in this call. */
  maxPrice: bigint | undefined
  /** Asks the user for approval; undefined if the host can't. */
  ask: ((question: string) => Promise<boolean>) | undefined
  /** The approved amounts, one for each payment. A payment can't be charged more than its amount. */
  agreed: bigint[]
  receipts: PaidReceipt[]
}

/** Ties payments to the call that makes them, and pays only within a call. */
export type Budget = {
  /** The wallet's payment options, except those that differ between clients. */
  options: Omit<PaymentOptions, 'tabs' | 'stores'>
  /** Runs `act`, which may make payments for a call. */
  within: <Result>(call: Call, act: () => Promise<Result>) => Promise<Result>
}

/**
 * Creates the wallet's budget. The SDK enforces the limits that apply to all calls together. The budget adds the limit of each
 * call and the user's approval.
 */
export function createBudget(
  settings: BuyerSettings,
  folder: WalletFolder,
  allowedHosts: readonly string[],
): Budget {
  const { askAbove, maxPayment, maxDaily, maxDailyPerHost, usdcAddress } = settings
  const { gatewayUrl, network, walletPrivateKey } = settings
  const calls = new AsyncLocalStorage<Call>()

  /** @throws Error with the reason why the payment is refused. */
  async function agree(proposed: ProposedPayment): Promise<void> {
    const call = calls.getStore()
    if (!call) throw new Error('no tool call is in progress')
    const { amount } = proposed
    const { maxPrice, ask } = call
    const price = `the price is ${formatUsdc(amount)} USDC`
    if (maxPrice !== undefined && amount > maxPrice)
      throw new Error(`${price}, but max_price_usdc of this call is ${formatUsdc(maxPrice)} USDC`)
    if (amount > askAbove) {
      const above = `${price}, above ASK_ABOVE_USDC (${formatUsdc(askAbove)} USDC)`
      if (!ask) {
        throw new Error(
          `${above}, and this host can't ask its user (it has no elicitation). To pay without asking, the owner can set ASK_ABOVE_USDC to ${formatUsdc(amount)} or more in this server's environment`,
        )
      }
      if (!(await ask(questionOf(proposed, settings)))) throw new Error(`${above}, and the user declined`)
    }
    call.agreed.push(amount)
  }

  return {
    options: {
      gatewayUrl,
      network,
      walletPrivateKey,
      otherSellers: true,
      limits: {
        perPayment: formatUsdc(maxPayment),
        perDay: formatUsdc(maxDaily),
        ...(maxDailyPerHost !== null && { perDayAndHost: formatUsdc(maxDailyPerHost) }),
        ...(allowedHosts.length > 0 && { hosts: [...allowedHosts, new URL(gatewayUrl).origin] }),
        onPayment: agree,
      },
      ...(usdcAddress !== null && { usdcAddress }),
      warn: (message) => process.stderr.write(`${message}\n`),
      onReceipt: async (paid) => {
        calls.getStore()?.receipts.push(paid)
        await folder.keepReceipt(paid)
      },
    },
    within: (call, act) => calls.run(call, act),
  }
}

/**
 * Returns the question for the user. The seller controls only the price and the URL in it, and the URL's encoding keeps the
 * question on one line.
 */
function questionOf({ amount, url }: ProposedPayment, { network, maxDaily }: BuyerSettings): string {
  const { origin, pathname, hash } = new URL(url)
  return `Pay ${formatUsdc(amount)} USDC on ${network} to ${origin} for ${`${pathname}${hash}`.slice(0, 200)}? At most ${formatUsdc(maxDaily)} USDC can be spent within 24 hours.`
}
