import { hash, randomBytes } from 'node:crypto'
import type { Keeper } from '@tollkeeper/keeper/keeper'
import type { KeeperSettings } from '@tollkeeper/keeper/settings/config'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import type { Address, Hex } from 'viem'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { queueDue, testClient, whileRunning } from '../support/keeperScenes.ts'
import {
  type KeeperOverrides,
  platformWallet,
  type QueuedPayment,
  signTransfer,
  useKeeperStack,
  walletAccount,
} from '../support/keeperStack.ts'
import { failAll, positionsOf } from '../support/paymentPosition.ts'
import { until } from '../support/until.ts'
import { randomHex, validFor } from '../support/usdc.ts'
import { ask, signPayment } from '../support/x402.ts'

// Attacks by strangers who make us spend gas for nothing, or delay payers whose fees cover their gas. The
// assertions are in dollars and counts.

const gwei = 1_000_000_000n
/** The daily budget: 0.02 USD. */
const gasAllowance = 20_000n

const stack = useKeeperStack({ gasAllowance, gasTokenUsd: 3_000_000_000n, gasPerFee: 10n })
beforeEach(async () => {
  await failAll(stack.database)
  await stack.database`delete from gas_draw`
  // The base fee is negligible, so the tip of each test determines the gas price.
  await testClient(stack).setNextBlockBaseFeePerGas({ baseFeePerGas: 1_000n })
  await testClient(stack).mine({ blocks: 1 })
})
afterEach(async () => {
  const broken =
    await stack.database`select drawer from gas_draw where drawer in ('common:test', 'refunds:test') and drawn > ${gasAllowance}`
  expect([...broken]).toEqual([])
})

const settingsAt = (tip: bigint, change: Partial<KeeperSettings> = {}): KeeperSettings => ({
  ...stack.settings,
  priorityFeePerGas: tip,
  ...change,
})
const keeperAt = (tip: bigint, change: KeeperOverrides = {}): Keeper =>
  stack.keeper({ settings: settingsAt(tip), ...change })

const nonceOf = () => stack.served.client.getTransactionCount({ address: walletAccount(0).address })

async function countBatches(): Promise<number> {
  const [row] = await stack.database<[{ count: number }]>`select count(*)::int as count from batch`
  return row.count
}

/**
 * Returns the gas cost of the transactions that settled these payments, in USDC base units, read from the chain.
 */
async function gasOf(ids: readonly string[]): Promise<bigint> {
  const rows = await stack.database<{ txHash: Hex }[]>`
    select distinct tx_hash as "txHash" from authorization_event where payment_id = any(${[...ids]}::text[])`
  const receipts = await Promise.all(
    rows.map(({ txHash: one }) => stack.served.client.getTransactionReceipt({ hash: one })),
  )
  const wei = receipts.reduce((sum, { gasUsed, effectiveGasPrice }) => sum + gasUsed * effectiveGasPrice, 0n)
  return (wei * stack.settings.gasTokenUsd) / 10n ** 18n
}

async function idsOf(source: string): Promise<string[]> {
  const rows = await stack.database<{ id: string }[]>`select id from payment where source = ${source}`
  return rows.map(({ id }) => id)
}

async function heldBy(payments: readonly { paymentId: string }[]): Promise<Record<string, number>> {
  const rows = await stack.database<{ reason: string; count: number }[]>`
    select coalesce(held_by, 'nothing') as reason, count(*)::int as count from queue
    where payment_id in ${stack.database(payments.map(({ paymentId }) => paymentId))} group by 1`
  return Object.fromEntries(rows.map(({ reason, count }) => [reason, count]))
}

/**
 * Returns how many transactions of the wallet were mined until these payments were settled, including the transactions that settled them.
 *
 * @param since the wallet's nonce at the start
 */
async function transactionsUntil(payments: readonly QueuedPayment[], since: number): Promise<number> {
  const halves = (await Promise.all(payments.map((one) => stack.halves(one)))).flat()
  const hashes = [...new Set(halves.map(({ txHash }) => txHash as Hex))]
  const found = await Promise.all(hashes.map((one) => stack.served.client.getTransaction({ hash: one })))
  return Math.max(...found.map(({ nonce }) => nonce)) + 1 - since
}

/** Creates a key that anyone can get by registering. */
async function freeKey(): Promise<string> {
  const [provider, key] = [randomBytes(16).toString('hex'), randomBytes(16).toString('hex')]
  const secret = randomBytes(32).toString('base64url')
  await stack.database`insert into provider (id, name) values (${`prov_${provider}`}, 'Free')`
  await stack.database`
    insert into api_key (id, provider_id, secret_hash)
    values (${`key_${key}`}, ${`prov_${provider}`}, ${hash('sha256', secret, 'buffer')})`
  return `tk_${key}_${secret}`
}

describe('payments without a fee', () => {
  test('behavior: if twelve callers with free keys pay themselves one base unit each, their gas comes only from the shared allowance, and other payments aren’t delayed', async () => {
    const before = new Set(await idsOf('facilitator'))
    const keys = await Promise.all(Array.from({ length: 12 }, freeKey))
    const buyers = await stack.buyers(12, 100n)
    const keeper = keeperAt(gwei / 100n)
    const verdicts: unknown[] = []
    const attack = Promise.all(
      keys.map(async (key, index) => {
        const buyer = buyers[index]
        if (!buyer) throw new Error('no buyer')
        const payTo = buyer.address.toLowerCase() as Address
        await Promise.all(
          Array.from({ length: 8 }, async () => {
            const { body } = await signPayment(stack.served, buyer, { payTo, value: 1n, validFor: 40 })
            const { body: answer } = await ask(keeper, '/settle', { body, key })
            verdicts.push(answer.success === true ? 'settled' : answer.errorMessage)
          }),
        )
      }),
    )
    await whileRunning(keeper, async () => {
      const nonce = await nonceOf()
      const honest = await queueDue(stack, 6)
      await until('the honest ones are settled', () => stack.isSettled(honest))
      expect(await heldBy(honest)).toEqual({ nothing: 6 })
      // Waiting payments get every second transaction of a wallet, and another transaction may already be in flight.
      expect(await transactionsUntil(honest, nonce)).toBeLessThanOrEqual(3)
      await attack
    })
    expect(verdicts).toHaveLength(96)
    const settled = verdicts.filter((verdict) => verdict === 'settled')
    expect(settled.length).toBeGreaterThan(0)
    const refused = new Set(verdicts.filter((verdict) => verdict !== 'settled'))
    expect([...refused]).toEqual([expect.stringContaining('the daily allowance covers the gas')])
    const own = (await idsOf('facilitator')).filter((id) => !before.has(id))
    expect(own).toHaveLength(settled.length)
    expect(await gasOf(own)).toBeLessThanOrEqual(gasAllowance)
  })

  test('behavior: spends at most the allowance on 45 half-cent submissions without a key, and doesn’t delay other payments', async () => {
    const [stranger] = await stack.buyers(1, 1_000_000n)
    const keeper = keeperAt((3n * gwei) / 100n, { submitLimits: { perCaller: 1_000 } })
    const window = validFor(200)
    const sign = (to: Address, value: bigint) =>
      signTransfer(stack.served, stranger, { to, value, nonce: randomHex(32), ...window })
    const statuses: number[] = []
    const before = new Set(await idsOf('submission'))
    const attack = async () => {
      for (let i = 0; i < 45; i++) {
        const transfers = [await sign(stack.payee, 4_500n), await sign(platformWallet, 500n)]
        const body = JSON.stringify({ network: 'localhost', transfers: transfers.map(encodePayload) })
        statuses.push((await keeper.app.request('/submit', { method: 'POST', body })).status)
      }
    }
    await whileRunning(keeper, async () => {
      const nonce = await nonceOf()
      const honest = await queueDue(stack, 10)
      const attacking = attack()
      await until('the honest ones are settled', () => stack.isSettled(honest))
      expect(await heldBy(honest)).toEqual({ nothing: 10 })
      expect(await transactionsUntil(honest, nonce)).toBeLessThanOrEqual(3)
      await attacking
    })
    expect(new Set(statuses)).toEqual(new Set([200, 422]))
    const own = (await idsOf('submission')).filter((id) => !before.has(id))
    expect(own).toHaveLength(statuses.filter((status) => status === 200).length)
    const fees = BigInt(own.length) * 500n
    expect((await gasOf(own)) - 10n * fees).toBeLessThanOrEqual(gasAllowance)
  })

  test('behavior: delays only the submission that has become too expensive, and reports the reason', async () => {
    const [buyer] = await stack.buyers(1, 1_000_000n)
    const window = validFor(3_600)
    const sign = (to: Address, value: bigint) =>
      signTransfer(stack.served, buyer, { to, value, nonce: randomHex(32), ...window })
    const submit = async (keeper: Keeper, fee: bigint) => {
      const transfers = [await sign(stack.payee, 10n * fee), await sign(platformWallet, fee)]
      const body = JSON.stringify({ network: 'localhost', transfers: transfers.map(encodePayload) })
      return keeper.app.request('/submit', { method: 'POST', body })
    }
    const before = new Set(await idsOf('submission'))
    const cheap = keeperAt(gwei / 100n, { submitTimeoutMs: 100 })
    expect((await submit(cheap, 1_000n)).ok).toBe(false)
    const [paymentId] = (await idsOf('submission')).filter((id) => !before.has(id))
    const batches = await countBatches()
    // The gas price is now ten times as high.
    const dear = keeperAt(gwei / 10n)
    await whileRunning(dear, async () => {
      expect((await submit(dear, 70_000n)).status).toBe(200)
      expect(await heldBy([{ paymentId: paymentId ?? '' }])).toEqual({ gas_allowance: 1 })
    })
    expect(await countBatches()).toBe(batches + 1)
    await whileRunning(keeperAt(gwei / 100n, { now: () => new Date(Date.now() + 16_000) }), () =>
      until('it is settled', () => stack.isSettled([{ paymentId: paymentId ?? '' }])),
    )
  })

  test('behavior: a provider that refunds its own wallet gets only its share of the gas money, and all 20 honest payments settle in the first round', async () => {
    const tip = gwei / 100n
    const [self] = await stack.buyers(1, 10_000_000n)
    const acceptedAt = new Date(Date.now() - 3_600_000)
    const payee = self.address.toLowerCase() as Address
    const own = await Promise.all(
      Array.from({ length: 14 }, () => stack.queue({ buyer: self, price: 15_000n, payee, acceptedAt })),
    )
    await whileRunning(keeperAt(tip), () => until('they are settled', () => stack.isSettled(own)))
    const refunds: { paymentId: string }[] = []
    for (const of of own)
      for (const number of [1, 2, 3])
        refunds.push(await stack.queueRefund({ of, number, wallet: self, value: 5_000n, acceptedAt }))
    const nonce = await nonceOf()
    const honest = await queueDue(stack, 20)
    const keeper = keeperAt(tip)
    await whileRunning(keeper, async () => {
      await until('the honest ones are settled', () => stack.isSettled(honest))
      expect(await transactionsUntil(honest, nonce)).toBeLessThanOrEqual(2)
      await until('each refund is settled or held with a reason', async () => {
        const { nothing = 0, gas_allowance = 0 } = await heldBy(refunds)
        return gas_allowance > 0 && nothing + gas_allowance === refunds.length
      })
    })
    const [row] = await stack.database<
      [{ drawn: bigint }]
    >`select drawn from gas_draw where drawer = 'refunds:test'`
    expect(row.drawn).toBeGreaterThan(0n)
    expect(row.drawn).toBeLessThanOrEqual(gasAllowance / 4n)
  })

  test('behavior: releases an unsettled payment’s reserved gas even if the reserving process has died', async () => {
    const [buyer] = await stack.buyers(1, 10_000n)
    const { body } = await signPayment(stack.served, buyer, { payTo: randomHex(20) })
    const drawn = async () => {
      const [row] = await stack.database<
        [{ drawn: bigint }?]
      >`select drawn from gas_draw where drawer = 'common:test'`
      return row?.drawn
    }
    const dying = keeperAt(gwei / 100n, { facilitator: { reserveMs: 1 } })
    expect((await ask(dying, '/verify', { body, key: stack.apiKey })).body.isValid).toBe(true)
    expect(await drawn()).toBeGreaterThan(0n)
    await whileRunning(keeperAt(gwei / 100n), () =>
      until('the reserved gas is released', async () => (await drawn()) === 0n),
    )
  })
})

describe('payments whose fee is too small', () => {
  test('behavior: at a gas price of 0.03 gwei, holds 40 half-cent payments, records the reason for each, and settles ten half-dollar payments', async () => {
    const small = await queueDue(stack, 40, 5_000n)
    const [nonce, batches] = [await nonceOf(), await countBatches()]
    const dear = await queueDue(stack, 10, 500_000n)
    await whileRunning(keeperAt((3n * gwei) / 100n), async () => {
      await until('they are settled', () => stack.isSettled(dear))
      await until('each half-cent payment has a reason', async () => (await heldBy(small)).gas_cost === 40)
    })
    expect(await transactionsUntil(dear, nonce)).toBe(1)
    expect([await nonceOf(), await countBatches()]).toEqual([nonce + 1, batches + 1])
    expect(await stack.isSettled(small)).toBe(false)
    // No attempt is counted for any of them.
    expect(new Set((await positionsOf(stack.database, small)).map(({ attempts }) => attempts))).toEqual(
      new Set([0]),
    )
  })

  test('behavior: an honest contract wallet’s payment with too small a fee waits without delaying other payments', async () => {
    const alwaysYes: Hex = '0x631626ba7e60e01b60005260206000f3'
    const [contract] = await queueDue(stack, 1, 5_000n)
    await testClient(stack).setCode({ address: contract.provider.from, bytecode: alwaysYes })
    await stack.database`update queue set has_code = true where payment_id = ${contract.paymentId}`
    const [nonce, batches] = [await nonceOf(), await countBatches()]
    const honest = await queueDue(stack, 10)
    await whileRunning(keeperAt(gwei / 100n), async () => {
      await until('they are settled', () => stack.isSettled(honest))
      await until(
        'the contract wallet’s payment has a reason',
        async () => (await heldBy([contract])).gas_cost === 1,
      )
    })
    expect(await transactionsUntil(honest, nonce)).toBe(1)
    expect(await countBatches()).toBe(batches + 1)
  })
})

test.each<[string, Partial<KeeperSettings>]>([
  ['the gas price is above the maximum', { maxFeePerGas: 1n }],
  ['the payment’s gas costs more than its reservation and its grant', { gasTokenUsd: 10n ** 18n }],
])(
  'behavior: if %s, a facilitator’s payment fails within the time limit, and the keeper never opens a batch for it',
  async (_, change) => {
    const [buyer] = await stack.buyers(1, 20_000n)
    const batches = await countBatches()
    const key = stack.grantedKey
    const taking = keeperAt(gwei / 100n, { facilitator: { timeoutMs: 100, holdMs: 1_500 } })
    const { body, authorization } = await signPayment(stack.served, buyer, { payTo: randomHex(20) })
    expect((await ask(taking, '/verify', { body, key })).body.isValid).toBe(true)
    await whileRunning(stack.keeper({ settings: settingsAt(gwei / 100n, change) }), async () => {
      const { body: answer } = await ask(taking, '/settle', { body, key })
      expect(answer).toMatchObject({ success: false, transaction: '' })
      expect(answer.errorMessage).toContain('will not be sent')
    })
    expect(await countBatches()).toBe(batches)
    expect([...(await stack.database`select drawer from gas_draw where drawn > 0`)]).toEqual([])
    // The gas price is low again, but the rejection stays final.
    await whileRunning(keeperAt(gwei / 100n), async () => {
      const honest = await queueDue(stack, 1)
      await until('another one is settled', () => stack.isSettled(honest))
    })
    expect(await stack.balanceOf(authorization.to)).toBe(0n)
  },
)
