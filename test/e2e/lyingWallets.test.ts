import type { Keeper } from '@tollkeeper/keeper/keeper'
import type { CheckpointName } from '@tollkeeper/keeper/settings/checkpoints'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import type { Address, Hex } from 'viem'
import { beforeEach, describe, expect, test } from 'vitest'
import { openIndependentSettler } from '../support/independentSettler.ts'
import { hourAgo, settleAll, testClient, whileRecording, whileRunning } from '../support/keeperScenes.ts'
import { type QueuedPayment, useKeeperStack, walletAccount } from '../support/keeperStack.ts'
import { failAll, positionsOf } from '../support/paymentPosition.ts'
import { until } from '../support/until.ts'
import { randomHex } from '../support/usdc.ts'
import { ask, signPayment } from '../support/x402.ts'

// Payers whose wallets accept their signature in every simulation but reject it in the mined transaction. These wallets
// distinguish a simulation from a mined transaction by a balance that changes while the transaction is in flight. An earlier
// transaction in the same block could change that balance as well, so no read of the chain can predict the result. The
// assertions limit the number of transactions that the keeper sends.

const stack = useKeeperStack()
beforeEach(async () => {
  await failAll(stack.database)
})

const tell: Address = `0x${'7e11'.repeat(10)}`
// MUL(ISZERO(…), 0x1626ba7e) << 224: returns the magic value of IERC1271 if the value on the stack is 0, else 0.
const yesIfZero = '15631626ba7e0260e01b5f5260205ff3'
/** Code that reads BALANCE(tell). */
const liesWhenMined: Hex = `0x73${tell.slice(2)}31${yesIfZero}`
/** Code that reads GASPRICE. */
const liesAtNoPrice: Hex = `0x3a${yesIfZero}`
const burnsAll: Hex = '0xfe'

/** Makes the wallets lie only at the moment of each broadcast. */
async function lieInBlocks(name: CheckpointName): Promise<void> {
  if (name === 'before-broadcast') await testClient(stack).setBalance({ address: tell, value: 1n })
  if (name === 'after-broadcast') await testClient(stack).setBalance({ address: tell, value: 0n })
}

async function queueWith(code: Hex | null, count: number, price: bigint, acceptedAt = hourAgo()) {
  const buyers = await stack.buyers(count, price)
  const payments: QueuedPayment[] = []
  for (const buyer of buyers) {
    if (code) await testClient(stack).setCode({ address: buyer.address, bytecode: code })
    payments.push(await stack.queue({ buyer, price, acceptedAt }))
  }
  return payments
}

const nonceOf = (wallet = 0) =>
  stack.served.client.getTransactionCount({ address: walletAccount(wallet).address })

/** Returns how many transactions the wallet sent, from `firstNonce` on, until all of these payments were settled. */
async function settledWithin(payments: QueuedPayment[], firstNonce: number, wallet = 0): Promise<number> {
  const hashes = (await Promise.all(payments.map((one) => stack.halves(one))))
    .flat()
    .map((half) => half.txHash)
  const found = await Promise.all(
    [...new Set(hashes)].map((hash) => stack.served.client.getTransaction({ hash: hash as Hex })),
  )
  expect(found.every(({ from }) => from === walletAccount(wallet).address.toLowerCase())).toBe(true)
  return Math.max(...found.map(({ nonce }) => nonce)) - firstNonce + 1
}

async function failedOf(payments: QueuedPayment[]): Promise<number> {
  const standings = await positionsOf(stack.database, payments)
  return standings.filter(({ failedAt }) => failedAt !== null).length
}

/** Runs a keeper through two days, as fast as possible. */
async function throughTwoDays(liars: QueuedPayment[], checkpoint = lieInBlocks): Promise<void> {
  let offset = 0
  const keeper = stack.keeper({ now: () => new Date(Date.now() + offset), checkpoint })
  await whileRunning(keeper, async () => {
    let looks = 0
    await until('all of them have failed', async () => {
      if (++looks % 10 === 0) offset += 61_000
      return (await failedOf(liars)) === liars.length
    })
  })
}

describe('the keeper', () => {
  test('behavior: the simulation detects a wallet that reads the gas price, and the keeper sends nothing for it', async () => {
    const nonce = await nonceOf()
    const liars = await queueWith(liesAtNoPrice, 1, 50_000n)
    const honest = await queueWith(null, 2, 50_000n)
    await whileRunning(stack.keeper(), async () => {
      await until('the honest ones are settled', () => stack.isSettled(honest))
      await until('it is counted', async () => (await attempts(liars)) === 1)
    })
    expect((await nonceOf()) - nonce).toBe(1)
  })

  test.each([
    ['that pays 0.05 USD', 1, 50_000n],
    ['that pays 12 USD', 1, 12_000_000n],
  ])(
    'behavior: sends at most three transactions for a lying wallet %s, and no further transactions later',
    async (_, count, price) => {
      const nonce = await nonceOf()
      const liars = await queueWith(liesWhenMined, count, price)
      await throughTwoDays(liars)
      expect((await nonceOf()) - nonce).toBeLessThanOrEqual(3)
      const spent = await nonceOf()
      const payer = liars[0]?.provider.from as Address
      await stack.chain.mintUsdc([payer], 50_000n)
      const again = await queueAgain(payer)
      await throughTwoDays(again)
      expect(await nonceOf()).toBe(spent)
    },
  )

  test('behavior: settles 6 honest payments within two transactions despite 75 lying wallets that pay half a cent each', async () => {
    const nonce = await nonceOf()
    const liars = await queueWith(liesWhenMined, 75, 5_000n)
    const honest = await queueWith(null, 6, 50_000n)
    await settleAll(stack, honest, { checkpoint: lieInBlocks })
    expect(await settledWithin(honest, nonce)).toBeLessThanOrEqual(2)
    await throughTwoDays(liars)
    // Each transaction contains more than twenty of the lying wallets' payments.
    expect((await nonceOf()) - nonce).toBeLessThanOrEqual(1 + 12)
  })

  test('behavior: sends at most three additional transactions for 75 payments of one lying wallet', async () => {
    const nonce = await nonceOf()
    const [first] = await queueWith(liesWhenMined, 1, 375_000n)
    if (!first) throw new Error('no liar')
    const liars = [first]
    for (let i = 1; i < 75; i++)
      liars.push(await queueAgain(first.provider.from).then(([one]) => one as QueuedPayment))
    const honest = await queueWith(null, 2, 50_000n)
    await settleAll(stack, honest, { checkpoint: lieInBlocks })
    expect(await settledWithin(honest, nonce)).toBeLessThanOrEqual(2)
    await throughTwoDays(liars)
    expect((await nonceOf()) - nonce).toBeLessThanOrEqual(1 + 3)
  })

  test('behavior: if payers’ accounts get code that burns all gas only in the mined transaction, the keeper settles the other payers’ payments in the next batches', async () => {
    const nonce = await nonceOf()
    const liars = await queueWith(null, 24, 5_000n)
    const honest = await queueWith(null, 2, 50_000n, new Date(Date.now() - 3_590_000))
    const setAll = async (bytecode: Hex) => {
      for (const { provider } of liars) await testClient(stack).setCode({ address: provider.from, bytecode })
    }
    const checkpoint = async (name: CheckpointName) => {
      if (name === 'before-broadcast') await setAll(burnsAll)
      if (name === 'after-broadcast') await setAll('0x')
    }
    await settleAll(stack, honest, { checkpoint })
    // After the first transaction, the keeper sends some lying wallets' payments alone, sometimes before the next
    // batch of honest payments.
    expect(await settledWithin(honest, nonce)).toBeLessThanOrEqual(3)
    expect(await attempts(honest)).toBe(0)
    await throughTwoDays(liars, checkpoint)
    expect((await nonceOf()) - nonce).toBeLessThanOrEqual(1 + 6)
  })

  test('behavior: POST /submit rejects a lying wallet after its second transaction', async () => {
    const nonce = await nonceOf()
    const [liar] = await queueWith(liesWhenMined, 1, 50_000n)
    if (!liar) throw new Error('no liar')
    const keeper = stack.keeper({ checkpoint: lieInBlocks })
    await whileRunning(keeper, async () => {
      for (let i = 0; i < 5; i++) {
        const [next] = i === 0 ? [liar] : await queueAgain(liar.provider.from)
        if (!next) throw new Error('no payment')
        await keeper.app.request('/submit', {
          method: 'POST',
          headers: { 'content-type': 'application/json', authorization: `Bearer ${stack.apiKey}` },
          body: JSON.stringify({
            network: 'localhost',
            transfers: [next.provider, next.fee].map(encodePayload),
          }),
        })
        await until('nothing is in flight', async () => {
          return (
            (await stack.database`select 1 from batch where state in ('claimed', 'broadcast')`).length === 0
          )
        })
      }
    })
    expect((await nonceOf()) - nonce).toBeLessThanOrEqual(3)
  })
})

test('behavior: sends at most three transactions for a lying wallet that uses the facilitator with a seller’s key', async () => {
  const nonce = await nonceOf()
  const [liar] = await stack.buyers(1, 100_000n)
  await testClient(stack).setCode({ address: liar.address, bytecode: liesWhenMined })
  // For a liar, the response says only that the payment isn't settled yet.
  const keeper = stack.keeper({ checkpoint: lieInBlocks, facilitator: { timeoutMs: 2_000 } })
  await whileRunning(keeper, async () => {
    for (let i = 0; i < 5; i++) {
      const { body } = await signPayment(stack.served, liar, { payTo: randomHex(20) })
      const answer = await ask(keeper, '/settle', { body, key: stack.apiKey })
      expect(answer).toMatchObject({ status: 200, body: { success: false } })
    }
    await settleOne(keeper)
  })
  // The count includes the honest payment's transaction.
  expect((await nonceOf()) - nonce).toBeLessThanOrEqual(3 + 1)
})

/** Settles an honest payer's payment through the facilitator. */
async function settleOne(keeper: Keeper): Promise<void> {
  const [buyer] = await stack.buyers(1, 10_000n)
  const { body } = await signPayment(stack.served, buyer, { payTo: randomHex(20) })
  // Callers of this keeper wait two seconds. If the payment takes longer, present it again.
  await until('it is settled', async () => {
    const answer = await ask(keeper, '/settle', { body, key: stack.apiKey })
    return (answer.body as { success?: boolean }).success === true
  })
}

test('behavior: a keeper without a database limits the transactions for 75 lying wallets, and settles the honest payments within two transactions', async () => {
  const nonce = await nonceOf(5)
  await queueWith(liesWhenMined, 75, 5_000n)
  const honest = await queueWith(null, 6, 50_000n)
  let offset = 0
  const now = () => new Date(Date.now() + offset)
  const settler = await openIndependentSettler(stack, { now, checkpoint: lieInBlocks })
  await whileRecording(stack, async () => {
    for (let step = 0; step < 60; step++) await settler.step()
    await until('the honest ones are settled', () => stack.isSettled(honest))
  })
  expect(await settledWithin(honest, nonce, 5)).toBeLessThanOrEqual(2)
  for (let day = 0; day < 5; day++) {
    offset += 61_000
    for (let step = 0; step < 20; step++) await settler.step()
  }
  expect((await nonceOf(5)) - nonce).toBeLessThanOrEqual(1 + 12)
})

async function attempts(payments: QueuedPayment[]): Promise<number> {
  return Math.max(...(await positionsOf(stack.database, payments)).map((one) => one.attempts))
}

/** Queues another payment of a contract wallet, whose code decides which signatures are valid. */
async function queueAgain(payer: Address): Promise<QueuedPayment[]> {
  const [buyer] = await stack.buyers(1, 0n)
  const signer = { ...buyer, address: payer }
  return [await stack.queue({ buyer: signer, price: 5_000n, acceptedAt: hourAgo() })]
}
