import type { ProposedPayment } from '@tollkeeper/sdk/client/limits'
import { describe, expect, test } from 'vitest'
import { type Call, createBudget } from './budget.ts'
import type { BuyerSettings } from './settings.ts'
import type { WalletFolder } from './walletFolder.ts'

const settings = {
  walletPrivateKey: `0x${'1'.repeat(64)}`,
  gatewayUrl: 'https://gateway.example',
  network: 'base',
  usdcAddress: null,
  askAbove: 50_000n,
  maxPayment: 1_000_000n,
  maxDaily: 5_000_000n,
  maxDailyPerHost: null,
} as unknown as BuyerSettings
const budget = createBudget(settings, {} as WalletFolder, [])

const proposed: ProposedPayment = {
  url: 'https://api.example/weather?city=1',
  host: 'api.example',
  amount: 50_000n,
  network: 'base',
  payTo: `0x${'2'.repeat(40)}`,
  description: 'Pay me twice',
  requestId: 'req_1',
}

/** Proposes a payment within a call. @returns the approved amounts. */
async function propose(change: Partial<Call>, amount: bigint): Promise<bigint[]> {
  const call: Call = { maxPrice: undefined, ask: undefined, agreed: [], receipts: [], ...change }
  await budget.within(call, async () => budget.options.limits?.onPayment?.({ ...proposed, amount }))
  return call.agreed
}

describe('limits.onPayment', () => {
  test('default: approves payments up to ASK_ABOVE_USDC without asking', async () => {
    const ask = () => Promise.reject(new Error('asked'))
    expect(await propose({ ask }, 50_000n)).toEqual([50_000n])
  })

  test('behavior: asks the user about a payment above ASK_ABOVE_USDC, and pays if the user agrees', async () => {
    const questions: string[] = []
    const ask = async (question: string) => {
      questions.push(question)
      return true
    }
    expect(await propose({ ask }, 50_001n)).toEqual([50_001n])
    expect(questions).toEqual([
      'Pay 0.050001 USDC on base to https://api.example for /weather? At most 5.000000 USDC can be spent within 24 hours.',
    ])
  })

  test('error: does not pay if the user refuses', async () => {
    await expect(propose({ ask: async () => false }, 50_001n)).rejects.toThrow('the user declined')
  })

  test('error: does not pay more than ASK_ABOVE_USDC if the host cannot ask the user', async () => {
    await expect(propose({}, 50_001n)).rejects.toThrow("this host can't ask its user")
  })

  test('args: max_price_usdc limits each payment of the call', async () => {
    expect(await propose({ maxPrice: 10_000n }, 10_000n)).toEqual([10_000n])
    await expect(propose({ maxPrice: 10_000n }, 10_001n)).rejects.toThrow('max_price_usdc of this call')
  })

  test('error: does not pay outside a call', async () => {
    await expect(budget.options.limits?.onPayment?.(proposed)).rejects.toThrow('no tool call is in progress')
  })
})
