import { tmpdir } from 'node:os'
import { readPayout } from '@tollkeeper/api/payments/records/payments'
import { estimateBatchGas } from '@tollkeeper/chain/gas'
import type { CheckpointName } from '@tollkeeper/keeper/settings/checkpoints'
import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { splitterFactoryAbi } from '@tollkeeper/sdk/protocol/abi/splitterFactory'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { decodeOutcomes, decodeSettle } from '@tollkeeper/sdk/protocol/batchSettlement'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { createWalletClient, type Hex, http, parseEventLogs } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { describe, expect, onTestFinished, test } from 'vitest'
import { devAccount, devPrivateKey } from '../../apps/devstack/chain/accounts.ts'
import { runCli } from '../support/cli.ts'
import { openIndependentSettler } from '../support/independentSettler.ts'
import {
  hourAgo,
  isSettledOnChain,
  mine,
  mineUntil,
  settleAll,
  startRecording,
  testClient,
  untilIndexed,
  whileRecording,
  whileRunning,
} from '../support/keeperScenes.ts'
import { platformWallet, type SplitPayment, signTransfer, useKeeperStack } from '../support/keeperStack.ts'
import { positionOf } from '../support/paymentPosition.ts'
import { startSigner } from '../support/signer.ts'
import { until } from '../support/until.ts'
import { cancelDirectly, randomHex, sendDirectly, setBlacklisted, validFor } from '../support/usdc.ts'

// Payments with one signature: each moves its price to a splitter.

const stack = useKeeperStack({ rebroadcastAfterMs: 300, replaceAfterMs: 1_500 })

type Wanted = { price?: bigint; payee?: Hex; platform?: Hex }

/** Queues a due payment with one signature for each of several new buyers. */
async function queueSplits<const W extends readonly Wanted[]>(
  wanted: W,
): Promise<{ -readonly [index in keyof W]: SplitPayment }> {
  const prices = wanted.map(({ price = 50_000n }) => price)
  const most = prices.reduce((a, b) => (a > b ? a : b))
  const buyers = await stack.buyers(wanted.length, most)
  const queued = buyers.map((buyer, index) =>
    stack.queueSplit({ buyer, price: 50_000n, acceptedAt: hourAgo(), ...wanted[index] }),
  )
  return (await Promise.all(queued)) as { -readonly [index in keyof W]: SplitPayment }
}

async function settle(payments: { paymentId: string }[]): Promise<Hex[]> {
  await settleAll(stack, payments)
  const hashes = new Set((await Promise.all(payments.map(stack.halves))).flat().map(({ txHash }) => txHash))
  return [...hashes] as Hex[]
}

test('default: settles payments to their splitters in one batch, within the gas that the model predicts', async () => {
  const payments = await queueSplits([
    ...Array.from({ length: 6 }, () => ({})),
    ...Array.from({ length: 6 }, () => ({ payee: randomHex(20) })),
    { price: 5_000n },
  ])
  const [hash, ...others] = await settle(payments)
  expect(others).toEqual([])
  const { input } = await stack.served.client.getTransaction({ hash: hash as Hex })
  const { items } = decodeSettle(input)
  expect(items.map(({ authorization }) => authorization.to).toSorted()).toEqual(
    payments.map(({ splitter }) => splitter).toSorted(),
  )
  const { gasUsed } = await stack.served.client.getTransactionReceipt({ hash: hash as Hex })
  expect(gasUsed).toBeLessThan(estimateBatchGas({ pairs: 0, singles: 13, payees: 8, hasCode: false }))
})

test('behavior: settles payments with two signatures in a separate batch, through the contract’s function for pairs', async () => {
  const [buyer] = await stack.buyers(1, 50_000n)
  const pair = await stack.queue({ buyer, price: 50_000n, acceptedAt: hourAgo() })
  const [split] = await queueSplits([{}])
  const before = await stack.balanceOf(split.splitter)
  expect(await settle([pair, split])).toHaveLength(2)
  expect(await stack.balanceOf(pair.provider.to)).toBeGreaterThanOrEqual(47_500n)
  expect(await stack.balanceOf(split.splitter)).toBe(before + 50_000n)
})

test('behavior: a payment that fails, was cancelled or was settled by a stranger doesn’t block other payments', async () => {
  const [poor, canceller, front] = await stack.buyers(3, 50_000n)
  const [good] = await queueSplits([{}])
  const due = { price: 50_000n, acceptedAt: hourAgo() }
  const wrong = await stack.queueSplit({
    ...due,
    buyer: poor,
    sign: (one) => ({ ...one, signature: good.authorization.signature }),
  })
  const cancelled = await stack.queueSplit({ ...due, buyer: canceller })
  const raced = await stack.queueSplit({ ...due, buyer: front })
  await cancelDirectly(stack, canceller, cancelled.authorization.nonce)
  const stranger = await sendDirectly(stack, raced.authorization)
  await stack.served.client.waitForTransactionReceipt({ hash: stranger })

  await whileRunning(stack.keeper(), async () => {
    await until('the good ones are settled', () => stack.isSettled([good, raced]))
    await until('the wrong signature is counted', async () => (await attemptsOf(wrong)) === 1)
    await until('the cancelled one is seen', async () => (await stateOf(cancelled)) === 'cancelled')
  })
  expect(await stack.halves(raced)).toMatchObject([{ txHash: stranger }])
  expect(await stack.balanceOf(wrong.authorization.from)).toBe(50_000n)
})

test('behavior: pays the gas of POST /submit from the platform’s share in a splitter, or from the allowance if that share is too small', async () => {
  const [buyer] = await stack.buyers(1, 200_000n)
  const due = { buyer, price: 50_000n, payee: randomHex(20), acceptedAt: hourAgo() }
  const [fair, cheap] = [await stack.queueSplit(due), await stack.queueSplit({ ...due, feeAmount: 50n })]
  await settle([fair, cheap])
  // 140,000 units of gas cost 1,000 base units.
  const { baseFeePerGas } = await stack.served.client.getBlock()
  const gasTokenUsd = (1_000n * 10n ** 18n) / (140_000n * (baseFeePerGas ?? 1n))
  const keeper = stack.keeper({
    settings: { ...stack.settings, gasPerFee: 10n, gasAllowance: 0n, gasTokenUsd },
  })
  const submit = async (to: Hex, value: bigint) => {
    const window = validFor(3_600)
    const transfer = await signTransfer(stack.served, buyer, { to, value, ...window, nonce: randomHex(32) })
    const response = await keeper.app.request('/submit', {
      method: 'POST',
      body: JSON.stringify({ network: 'localhost', transfers: [encodePayload(transfer)] }),
    })
    return [response.status, ((await response.json()) as { code?: string }).code]
  }
  await whileRunning(keeper, async () => {
    expect(await submit(cheap.splitter, 50_000n)).toEqual([422, 'gas_not_covered'])
    expect(await submit(fair.splitter, 4_999n)).toEqual([422, 'gas_not_covered'])
    expect(await submit(fair.splitter, 50_000n)).toEqual([200, undefined])
  })
  expect(await stack.balanceOf(fair.splitter)).toBe(100_000n)
  expect(await stack.balanceOf(cheap.splitter)).toBe(50_000n)
})

/** Returns the amount that waits in the splitters of payments. */
async function waitingIn(payments: SplitPayment[]): Promise<bigint> {
  const splitters = [...new Set(payments.map(({ splitter }) => splitter))]
  const balances = await Promise.all(splitters.map(stack.balanceOf))
  return balances.reduce((sum, balance) => sum + balance, 0n)
}

/** Sweeps the splitters from a stranger's account. */
async function sweepBy(account: number, payments: SplitPayment[]): Promise<Hex> {
  const wallet = createWalletClient({ account: devAccount(account), transport: http(stack.chain.url) })
  const hash = await wallet.writeContract({
    address: stack.served.deployment.splitterFactory,
    abi: splitterFactoryAbi,
    functionName: 'sweep',
    args: [stack.served.token, platformWallet, payments.map(({ terms }) => encodeSplit(terms))],
    chain: null,
  })
  await stack.served.client.waitForTransactionReceipt({ hash })
  return hash
}

describe('sweeps', () => {
  const newPayee = () => randomHex(20)

  test('default: pays out ten payments of a provider in the batch that settles them, but leaves fewer than ten in the splitter', async () => {
    const [many, few] = [newPayee(), newPayee()]
    const payments = await queueSplits([
      ...Array.from({ length: 10 }, () => ({ payee: many })),
      ...Array.from({ length: 2 }, () => ({ payee: few })),
    ])
    const platform = await stack.balanceOf(platformWallet)
    const [hash] = await settle(payments)
    expect(await stack.balanceOf(many)).toBe(475_000n)
    expect(await stack.balanceOf(few)).toBe(0n)
    expect(await stack.balanceOf(platformWallet)).toBe(platform + 25_000n)
    const { gasUsed } = await stack.served.client.getTransactionReceipt({ hash: hash as Hex })
    expect(gasUsed).toBeLessThan(
      estimateBatchGas({ pairs: 0, singles: 12, payees: 2, hasCode: false, sweeps: 1 }),
    )
  })

  test('behavior: pays out a splitter with its tenth payment if nine payments already wait in it, for two providers with different shares', async () => {
    const [one, two] = [newPayee(), newPayee()]
    const nine = (payee: Hex, price: bigint) => Array.from({ length: 9 }, () => ({ payee, price }))
    const before = await queueSplits([...nine(one, 50_000n), ...nine(two, 5_000n)])
    await settle(before)
    expect(await waitingIn(before)).toBe(9n * 55_000n)
    await untilIndexed(stack)
    const after = await queueSplits([
      { payee: one, price: 50_000n },
      { payee: two, price: 5_000n },
    ])
    await settle(after)
    expect(await waitingIn([...before, ...after])).toBe(0n)
    expect(await stack.balanceOf(one)).toBe(10n * 47_500n)
    expect(await stack.balanceOf(two)).toBe(10n * 4_500n)
  })

  test('behavior: pays out immediately if the provider’s payments trigger the batch or one of them is of high value', async () => {
    const [large, highest] = [newPayee(), newPayee()]
    const payments = await queueSplits([
      ...Array.from({ length: 3 }, () => ({ payee: large, price: 500_000n })),
      { payee: highest, price: 12_000_000n },
    ])
    await settle(payments)
    expect(await waitingIn(payments)).toBe(0n)
  })

  test('behavior: sets a sufficient gas limit for a sweep to a provider and a platform that hold no USDC yet', async () => {
    const [payee, platform] = [newPayee(), newPayee()]
    const payments = await queueSplits(
      Array.from({ length: 3 }, () => ({ payee, platform, price: 500_000n })),
    )
    await settle(payments)
    expect(await stack.balanceOf(payee)).toBe(1_425_000n)
    expect(await stack.balanceOf(platform)).toBe(75_000n)
  })

  test('behavior: sweeps a splitter in the next batch once it has waited for a day, unless a stranger swept it', async () => {
    const payments = await queueSplits([{ payee: newPayee() }, { payee: newPayee() }])
    const [stale, swept] = payments
    await settle(payments)
    await sweepBy(18, [swept])
    await whileRecording(stack, () =>
      until(
        'the payout is recorded',
        async () => (await readPayout(stack.database, swept.paymentId)) !== null,
      ),
    )
    const [other] = await queueSplits([{ payee: newPayee() }])
    const tomorrow = () => new Date(Date.now() + 24 * 3_600_000 + 60_000)
    await settleAll(stack, [other], { now: tomorrow })
    expect(await waitingIn([stale])).toBe(0n)
    expect(await stack.balanceOf(stale.terms.provider)).toBe(47_500n)
    const [half] = await stack.halves(other)
    const { logs } = await stack.served.client.getTransactionReceipt({ hash: half?.txHash as Hex })
    expect(parseEventLogs({ abi: splitterFactoryAbi, eventName: 'SweepFailed', logs })).toEqual([])
    expect(await waitingIn([other])).toBe(50_000n)
  })

  test('behavior: does not report a failed sweep for a splitter that a stranger emptied just before the batch', async () => {
    const payee = newPayee()
    const waiting = await queueSplits(Array.from({ length: 9 }, () => ({ payee })))
    await settle(waiting)
    await untilIndexed(stack)
    const old = waiting[0] as SplitPayment
    const payments = await queueSplits([{ payee: newPayee() }])
    const tomorrow = () => new Date(Date.now() + 24 * 3_600_000 + 60_000)
    let isOver = false
    const checkpoint = async (name: CheckpointName) => {
      if (name !== 'after-simulation' || isOver) return
      isOver = true
      await sweepBy(18, [old])
    }
    await settleAll(stack, payments, { now: tomorrow, checkpoint })
    expect(isOver).toBe(true)
    expect(await failedSweeps(old)).toBe(0)
    expect(await stack.balanceOf(payee)).toBe(9n * 47_500n)
  })

  test('behavior: two odd prices share a splitter, and `tollkeeper sweep` pays out that splitter and the splitter of the price given by --price', async () => {
    const payee = newPayee()
    const odd = await queueSplits([50_001n, 50_019n].map((price) => ({ payee, price })))
    await settle(odd)
    const dear = await queueSplits([{ payee, price: 1_000_000n }])
    await settle(dear)
    const payments = [...odd, ...dear]
    expect(new Set(payments.map(({ splitter }) => splitter)).size).toBe(2)
    const run = (env: Record<string, string>, ...flags: string[]) =>
      runCli(['sweep', '--network', 'localhost', '--rpc', stack.chain.url, ...flags], {
        cwd: tmpdir(),
        env: { DEPLOYMENTS_FILE: stack.deploymentsFile, ...env },
      })
    const wallets = ['--wallet', payee, '--platform', platformWallet, '--price', '1']
    const key = { WALLET_PRIVATE_KEY: devPrivateKey(18) }

    const asked = await run(key, ...wallets)
    expect([asked.status, asked.stderr]).toEqual([2, expect.stringContaining('not_confirmed')])
    expect(asked.stdout).toContain('0.095019')
    for (const [code, ...flags] of [
      ['no_wallet', ...wallets],
      ['invalid_flags', '--wallet', payee],
    ]) {
      const { status, stderr } = await run({}, ...flags)
      expect([status, stderr]).toEqual([2, expect.stringContaining(code as string)])
    }
    expect(await stack.balanceOf(payee)).toBe(0n)

    const sent = await run(key, ...wallets, '--yes')
    expect([sent.status, sent.stderr]).toEqual([0, ''])
    expect(sent.stdout).toMatch(/sent 0x[0-9a-f]{64}\n2 of 2 paid out/)
    // The odd prices add up to 100,020, and their fee is 5%, rounded down. The price of 1.00 has a fee of 3% plus 0.05.
    expect(await stack.balanceOf(payee)).toBe(100_020n - 5_001n + 920_000n)
    expect(await waitingIn(payments)).toBe(0n)
    expect((await run(key, ...wallets, '--yes')).stderr).toBe(
      'The splitters hold no USDC, so there is nothing to pay out\n',
    )
    const none = JSON.parse((await run(key, ...wallets, '--yes', '--json')).stdout)
    expect(none).toEqual({ splitters: [], transactions: [], failed: [] })

    // Sweep from a wallet whose key is in a remote signer. A keeper's wallet is rejected, because the keeper needs its nonces.
    const signer = await startSigner({ keys: [devPrivateKey(18)], chainId: 31_337 })
    onTestFinished(signer.kill)
    const from = devAccount(18).address
    const later = await queueSplits([{ payee }])
    await settle(later)
    const remote = { KEEPER_SIGNER_URL: signer.url, DATABASE_URL: stack.databaseUrl }
    const flags = ['--database', '--wallet', payee, '--from', from, '--yes']
    const taken = await run({ ...remote, KEEPER_SIGNER_ADDRESSES: from }, ...flags)
    expect([taken.status, taken.stderr]).toEqual([2, expect.stringContaining('is a wallet of the keeper')])
    signer.set({ changes: { to: payee } })
    expect((await run(remote, ...flags)).status).not.toBe(0)
    expect(await waitingIn(later)).not.toBe(0n)
    signer.set({})
    const own = await run(remote, ...flags)
    expect([own.status, own.stderr]).toEqual([0, ''])
    expect(await waitingIn(later)).toBe(0n)
  })

  test('behavior: reopens only what a reorg drops: the payout, or the settlement and the payout', async () => {
    const recording = startRecording(stack)
    onTestFinished(() => recording.stop())
    const payments = await queueSplits([{ payee: newPayee() }, { payee: newPayee() }])
    const [payment] = payments
    const paidOut = async () => (await readPayout(stack.database, payment.paymentId))?.transactionHash ?? null
    const unsettled = await testClient(stack).snapshot()
    await settle(payments)
    await untilIndexed(stack)
    expect(await paidOut()).toBe(null)
    const settled = await testClient(stack).snapshot()
    const hash = await sweepBy(18, [payment])
    await until('the payout is recorded', async () => (await paidOut()) === hash)

    await testClient(stack).revert({ id: settled })
    await mine(stack, 2)
    await until('the payout is undone', async () => (await paidOut()) === null)
    await until('the payment is still settled', () => stack.isSettled([payment]))
    const again = await sweepBy(17, [payment])
    await until('it is paid out again', async () => (await paidOut()) === again)

    await testClient(stack).revert({ id: unsettled })
    await mine(stack, 8)
    await until('the payout is undone', async () => (await paidOut()) === null)
    await whileRunning(stack.keeper(), () =>
      until('they are settled again', () => isSettledOnChain(stack, payments)),
    )
    expect(await paidOut()).toBe(null)
    expect(await waitingIn([payment])).toBe(50_000n)
  })

  test('behavior: if a provider can’t be paid, pays the other providers and retries the failed payout only later', async () => {
    const [blocked, good] = [newPayee(), newPayee()]
    const ten = (payee: Hex) => Array.from({ length: 10 }, () => ({ payee }))
    const first = await queueSplits([...ten(blocked), ...ten(good)])
    await setBlacklisted(stack.chain, blocked, true)
    await whileRunning(stack.keeper(), async () => {
      await until('all are settled', () => stack.isSettled(first))
      await until('the failure is recorded', async () => (await failedSweeps(first[0] as SplitPayment)) === 1)
    })
    expect(await stack.balanceOf(good)).toBe(475_000n)
    expect(await stack.balanceOf(blocked)).toBe(0n)
    await setBlacklisted(stack.chain, blocked, false)
    await untilIndexed(stack)

    const second = await queueSplits([{ payee: blocked }])
    await settle(second)
    expect(await stack.balanceOf(blocked)).toBe(0n)
    const third = await queueSplits([{ payee: blocked }])
    const later = () => new Date(Date.now() + 3_700_000)
    await settleAll(stack, third, { now: later })
    expect(await stack.balanceOf(blocked)).toBe(12n * 47_500n)
  })
})

test('behavior: if a backlog fills a batch, the batch sweeps waiting splitters and still settles more than 200 payments', async () => {
  const [stale] = await queueSplits([{ payee: randomHex(20) }])
  await settle([stale])
  await untilIndexed(stack)
  const [buyer] = await stack.buyers(1, 300n * 50_000n)
  const payee = randomHex(20)
  const backlog = await Promise.all(
    Array.from({ length: 300 }, () =>
      stack.queueSplit({ buyer, payee, price: 50_000n, acceptedAt: hourAgo() }),
    ),
  )
  const tomorrow = () => new Date(Date.now() + 24 * 3_600_000 + 60_000)
  await settleAll(stack, backlog, { now: tomorrow })
  const hashes = (await Promise.all(backlog.map(stack.halves))).map(([half]) => half?.txHash as Hex)
  const first = hashes[0] as Hex
  const { logs } = await stack.served.client.getTransactionReceipt({ hash: first })
  const paid = parseEventLogs({ abi: usdcAbi, eventName: 'Transfer', logs })
  expect(paid.filter(({ args }) => args.to.toLowerCase() === stale.terms.provider)).toHaveLength(1)
  expect(hashes.filter((hash) => hash === first).length).toBeGreaterThan(200)
  expect(new Set(hashes).size).toBe(2)
})

test('behavior: if all queued payments have two signatures, the keeper sweeps the waiting splitters in a batch that settles a single authorization', async () => {
  const waiting = await queueSplits([{ payee: randomHex(20) }, { payee: randomHex(20) }])
  await settle(waiting)
  await untilIndexed(stack)
  const [buyer] = await stack.buyers(1, 60n * 50_000n)
  const queuePairs = (count: number) =>
    Promise.all(
      Array.from({ length: count }, () => stack.queue({ buyer, price: 50_000n, acceptedAt: hourAgo() })),
    )
  const pairs = await queuePairs(30)
  const tomorrow = () => new Date(Date.now() + 24 * 3_600_000 + 60_000)
  await whileRunning(stack.keeper({ now: tomorrow }), async () => {
    await until('the splitters are empty', async () => (await waitingIn(waiting)) === 0n)
    pairs.push(...(await queuePairs(30)))
    await mineUntil(stack, 'all pairs are settled, fees included', () => stack.isSettled(pairs))
  })
  for (const { terms } of waiting) expect(await stack.balanceOf(terms.provider)).toBe(47_500n)
  const hashes = (await Promise.all(pairs.map(stack.halves))).map((halves) =>
    halves.map(({ txHash }) => txHash),
  )
  // One provider's authorization settled together with the sweep, and the fee of the same payment in another batch.
  expect(hashes.filter(([provider, fee]) => provider !== fee)).toHaveLength(1)
})

describe('a payer who fails after the simulation of the batch', () => {
  const attacks = {
    'moves the balance away': async (buyer: PrivateKeyAccount) => {
      const window = validFor(3_600)
      const value = await stack.balanceOf(buyer.address)
      const all = { to: randomHex(20), value, ...window, nonce: randomHex(32) }
      const hash = await sendDirectly(stack, await signTransfer(stack.served, buyer, all))
      await stack.served.client.waitForTransactionReceipt({ hash })
    },
    // Code that never ends: a JUMPDEST and a jump to it.
    'delegates to code that burns all gas': async ({ address }: PrivateKeyAccount) => {
      await testClient(stack).setCode({ address, bytecode: '0x5b600056' })
    },
  }

  test.each(Object.entries(attacks))(
    'behavior: if the payer %s, tries only one of that payer’s payments, and settles the honest payments',
    async (_, attack) => {
      const [buyer] = await stack.buyers(1, 100n * 50_000n)
      const [honest, bad] = await Promise.all([
        queueSplits([{}, {}, {}, {}, {}]),
        Promise.all(
          Array.from({ length: 100 }, () =>
            stack.queueSplit({ buyer, price: 50_000n, acceptedAt: hourAgo() }),
          ),
        ),
      ])
      let isOver = false
      const checkpoint = async (name: CheckpointName) => {
        if (name !== 'after-simulation' || isOver) return
        isOver = true
        await attack(buyer)
      }
      const badIds = bad.map(({ paymentId }) => paymentId)
      await whileRunning(stack.keeper({ checkpoint }), async () => {
        await until('the honest ones are settled', () => stack.isSettled(honest))
        await until('the others have results', async () => {
          const open = await stack.database`
            select from queue q join batch_item i on i.payment_id = q.payment_id and i.batch_id = q.batch_id
            where q.payment_id = any(${badIds}) and i.provider_outcome is null`
          return open.length === 0
        })
      })
      const hashes = (await Promise.all(honest.map(stack.halves))).map(([half]) => half?.txHash as Hex)
      expect(new Set(hashes).size).toBe(1)
      const { logs, gasUsed } = await stack.served.client.getTransactionReceipt({ hash: hashes[0] as Hex })
      const [settled] = parseEventLogs({ abi: batchSettlementAbi, eventName: 'BatchSettled', logs })
      const outcomes = decodeOutcomes(settled?.args.outcomes as Hex).map(({ provider }) => provider)
      const count = (wanted: string) => outcomes.filter((one) => one === wanted).length
      expect([count('settled'), count('failed'), count('skipped')]).toEqual([5, 1, 99])
      // The limit is the gas of five payments, of one failed attempt that burns its maximum, and of the calldata of a hundred payments.
      expect(gasUsed).toBeLessThan(
        estimateBatchGas({ pairs: 0, singles: 5, payees: 2, hasCode: false }) + 150_000n + 100n * 4_000n,
      )
      // No attempt is counted for payments that the contract skipped in this batch.
      const rows = await stack.database<{ digit: number; attempts: number }[]>`
      select i.provider_outcome as digit, count(f.*)::int as attempts from batch_item i
      join batch b on b.id = i.batch_id
      left join settlement_failure f on f.payment_id = i.payment_id and f.batch_id = b.id
      where i.payment_id = any(${badIds}) and b.batch_id = ${settled?.args.batchId ?? null}
      group by 1`
      expect(rows.toSorted((a, b) => a.digit - b.digit)).toEqual([
        { digit: 3, attempts: 1 },
        { digit: 4, attempts: 0 },
      ])
    },
  )
})

test('behavior: fails a payment to a blacklisted splitter with the code `account_blacklisted`, without delaying other payments', async () => {
  const [blocked, old, good] = [randomHex(20), randomHex(20), randomHex(20)]
  const waiting = await queueSplits([{ payee: blocked }, { payee: old }])
  const [{ splitter }] = waiting
  await settle(waiting)
  await untilIndexed(stack)
  await setBlacklisted(stack.chain, splitter, true)
  const [refused, paid] = (await queueSplits([{ payee: blocked }, { payee: good }])) as [
    SplitPayment,
    SplitPayment,
  ]
  // A day later, any batch sweeps the splitters whose money has waited for a day.
  const tomorrow = (minutes: number) => () => new Date(Date.now() + (24 * 60 + minutes) * 60_000)
  await whileRunning(stack.keeper({ now: tomorrow(1) }), async () => {
    await until('the good one is settled', () => stack.isSettled([paid]))
    await until('the refused one is counted', async () => (await attemptsOf(refused)) === 1)
    await until('the failed sweep is recorded', async () => (await failedSweeps(refused)) === 1)
  })
  expect(await failureOf(refused)).toBe('account_blacklisted')
  expect(await stack.balanceOf(refused.authorization.from)).toBe(50_000n)
  expect(await stack.balanceOf(old)).toBe(47_500n)
  expect(await stack.balanceOf(splitter)).toBe(50_000n)

  await setBlacklisted(stack.chain, splitter, false)
  await untilIndexed(stack)
  await settleAll(stack, [refused], { now: tomorrow(70) })
  expect(await stack.balanceOf(blocked)).toBe(2n * 47_500n)
})

test('behavior: a keeper without a database settles payments to splitters, recognizes their fees, and pays out what it settles', async () => {
  const payee = randomHex(20)
  const payments = await queueSplits(Array.from({ length: 10 }, () => ({ payee })))
  const [buyer] = await stack.buyers(1, 50_000n)
  const pair = await stack.queue({ buyer, price: 50_000n, acceptedAt: hourAgo() })
  await untilIndexed(stack)
  const settler = await openIndependentSettler(stack, { gasPerFee: 1_000_000n })
  await whileRecording(stack, () =>
    until('all are settled', async () => {
      await settler.step()
      return stack.isSettled([...payments, pair])
    }),
  )
  expect(await stack.balanceOf(payee)).toBe(475_000n)
})

async function failedSweeps({ splitter }: SplitPayment): Promise<number | undefined> {
  const [row] = await stack.database<{ failed: number }[]>`
    select failed_sweeps as failed from splitter where address = ${splitter}`
  return row?.failed
}

async function failureOf(payment: SplitPayment): Promise<string | null> {
  return (await positionOf(stack.database, payment)).failureCode
}

async function attemptsOf(payment: SplitPayment): Promise<number> {
  return (await positionOf(stack.database, payment)).attempts
}

async function stateOf(payment: SplitPayment): Promise<string | undefined> {
  return (await stack.halves(payment))[0]?.state
}
