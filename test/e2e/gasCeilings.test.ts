import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { queueDue, raiseBaseFee, whileRunning } from '../support/keeperScenes.ts'
import { type KeeperStack, startKeeperStack, walletAccount } from '../support/keeperStack.ts'
import { until } from '../support/until.ts'

// What a keeper may pay for gas. Beyond it payments wait, and say why.

let stack: KeeperStack
beforeAll(async () => {
  stack = await startKeeperStack()
})
afterAll(() => stack?.close())
beforeEach(async () => {
  await stack.database`update payment set concluded_at = now() where concluded_at is null`
  await raiseBaseFee(stack)
})

const nonceOf = () => stack.served.client.getTransactionCount({ address: walletAccount(0).address })

describe('limits', () => {
  const settings = () => ({ ...stack.settings, gasPerFee: 10n })
  const holds = () => stack.database<{ reason: string }[]>`
    select distinct reason from settlement_hold where held_until > now()`

  test('behavior: dearer than ten times its fees, payments wait, say why, and go on by themselves', async () => {
    const payments = await queueDue(stack, 2)
    const nonce = await nonceOf()
    let offset = 0
    const dear = stack.keeper({
      settings: { ...settings(), gasTokenUsd: 1_000_000_000_000n },
      now: () => new Date(Date.now() + offset),
    })
    await whileRunning(dear, () => until('they are held', async () => (await holds()).length > 0))
    expect([...(await holds())]).toEqual([{ reason: 'gas_cost' }])
    expect(await nonceOf()).toBe(nonce)
    const metrics = await (await dear.app.request('/metrics')).text()
    expect(metrics).toContain('tollkeeper_settlement_holds_total{network="localhost",reason="gas_cost"}')
    expect(await stack.database`select 1 from payment where attempts > 0 and concluded_at is null`).toEqual(
      [],
    )

    // Gas is cheap again.
    offset = 16_000
    await whileRunning(
      stack.keeper({
        settings: { ...settings(), gasTokenUsd: 1_000n },
        now: () => new Date(Date.now() + offset),
      }),
      () => until('they are settled', () => stack.isSettled(payments)),
    )
  })

  test('behavior: beyond the day’s budget nothing is sent', async () => {
    await queueDue(stack, 1)
    const nonce = await nonceOf()
    const poor = stack.keeper({ settings: { ...stack.settings, dailyBudget: 1n } })
    await whileRunning(poor, () =>
      until('it is held', async () => (await holds()).some(({ reason }) => reason === 'gas_budget')),
    )
    expect(await nonceOf()).toBe(nonce)
  })

  test('behavior: a base fee over the cap: nothing is sent', async () => {
    await queueDue(stack, 1)
    const nonce = await nonceOf()
    const capped = stack.keeper({ settings: { ...stack.settings, maxFeePerGas: 1n } })
    await whileRunning(capped, () =>
      until('it is held', async () => (await holds()).some(({ reason }) => reason === 'gas_price')),
    )
    expect(await nonceOf()).toBe(nonce)
  })
})
