import { estimateTabBatchGas } from '@tollkeeper/chain/gas'
import { gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { createPayerCode } from '@tollkeeper/chain/payerCode'
import { createBudget } from '@tollkeeper/keeper/independent/budget'
import { fetchPending } from '@tollkeeper/keeper/independent/pendingQueue'
import { createSettler } from '@tollkeeper/keeper/independent/settler'
import type { CheckpointName } from '@tollkeeper/keeper/settings/checkpoints'
import { createMetrics } from '@tollkeeper/keeper/settings/metrics'
import { readExposures } from '@tollkeeper/ledger/acceptance/exposure'
import { requeuePayment } from '@tollkeeper/ledger/results/requeue'
import { voidPayment } from '@tollkeeper/ledger/results/voids'
import { createLogger } from '@tollkeeper/runtime/log'
import { serve } from '@tollkeeper/runtime/serve'
import { outcomes } from '@tollkeeper/sdk/protocol/batchSettlement'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { encodeSplit, splitterAddress } from '@tollkeeper/sdk/protocol/splitter'
import { toWord } from '@tollkeeper/sdk/protocol/tab'
import { decodeSettleTabs } from '@tollkeeper/sdk/protocol/tabSettlement'
import { Hono } from 'hono'
import type { Address, Hex } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createStackGateway } from '../support/keeperGateway.ts'
import {
  expectUnharmed,
  hourAgo,
  isSettledOnChain,
  mine,
  mineUntil,
  queueDue,
  settleAll,
  startRecording,
  testClient,
  untilIndexed,
  whileRecording,
  whileRunning,
} from '../support/keeperScenes.ts'
import { platformWallet, signTransfer, useKeeperStack, walletAccount } from '../support/keeperStack.ts'
import { failAll, failPayments, positionOf, positionsOf } from '../support/paymentPosition.ts'
import {
  type ClosedPayment,
  closeTab,
  movedOf,
  type SignedState,
  settleStates,
  signOlder,
  signUnder,
} from '../support/tabs.ts'
import { until } from '../support/until.ts'
import { cancelDirectly, randomHex, sendDirectly, setBlacklisted, validFor } from '../support/usdc.ts'

// Each tab is one payment with many lines, which TabSettlement pulls once and pays out.

const stack = useKeeperStack({ rebroadcastAfterMs: 300, replaceAfterMs: 1_500 })

/** The code of an ERC-1271 wallet that accepts every signature. */
const alwaysYes = '0x631626ba7e60e01b60005260206000f3'

async function transactionsOf(payments: readonly { paymentId: string }[]): Promise<Hex[]> {
  const halves = (await Promise.all(payments.map(stack.halves))).flat()
  return [...new Set(halves.map(({ txHash }) => txHash))] as Hex[]
}

test('default: settles tabs of several payers in one batch, and pays each provider, the platform and the reward', async () => {
  const payees = [randomHex(20), randomHex(20), randomHex(20)]
  const buyers = await stack.buyers(4, 3_000_000n)
  const platform = await stack.balanceOf(platformWallet)
  const keeper = walletAccount(0).address.toLowerCase() as Address
  const before = await stack.balanceOf(keeper)
  const tabs = await Promise.all(
    buyers.map((buyer) => {
      const lines = payees.map((payee) => ({ payee, amount: 1_000_000n }))
      return closeTab(stack, { buyer, lines, closedAt: hourAgo() })
    }),
  )
  await settleAll(stack, tabs)
  const [hash, ...others] = await transactionsOf(tabs)
  expect(others).toEqual([])
  for (const payee of payees) expect(await stack.balanceOf(payee)).toBe(4n * 950_000n)
  // The fee is 5% of twelve lines. A tenth of the fee is the reward of the settling keeper; the platform gets the rest.
  expect(await stack.balanceOf(platformWallet)).toBe(platform + 540_000n)
  expect(await stack.balanceOf(keeper)).toBe(before + 60_000n)
  expect(await stack.balanceOf(stack.served.deployment.tabSettlement)).toBe(0n)
  for (const tab of tabs) expect(await movedOf(stack, tab)).toEqual([null, null, null])

  const { gasUsed } = await stack.served.client.getTransactionReceipt({ hash: hash as Hex })
  const shape = { tabs: 4, lines: 12, splits: 3, hasCode: false }
  expect(gasUsed).toBeLessThan(estimateTabBatchGas(shape))
  const { input } = await stack.served.client.getTransaction({ hash: hash as Hex })
  const listed = decodeSettleTabs(input).tabs.map(({ payer }) => payer)
  expect(listed).toEqual(listed.toSorted())
})

test('behavior: settles the other tabs if one tab is invalid, and settles a contract wallet’s tab in a separate batch', async () => {
  const [good, poor, forger, contract] = await stack.buyers(4, 1_000_000n)
  const line = { payee: randomHex(20), amount: 400_000n }
  const due = { lines: [line], closedAt: hourAgo() }
  const settling = [
    await closeTab(stack, { ...due, buyer: good }),
    await closeTab(stack, { ...due, buyer: contract }),
  ]
  await testClient(stack).setCode({ address: contract.address, bytecode: alwaysYes })
  const short = await closeTab(stack, { ...due, buyer: poor, lines: [{ ...line, amount: 1_000_001n }] })
  const { signature } = settling[0]?.state.authorization ?? {}
  const forged = await closeTab(stack, {
    ...due,
    buyer: forger,
    sign: (state) => ({ ...state, authorization: { ...state.authorization, signature: signature ?? '0x' } }),
  })
  await whileRunning(stack.keeper(), async () => {
    await until('the good ones are settled', () => stack.isSettled(settling))
    await until('the bad ones are counted', async () => {
      const standings = await positionsOf(stack.database, [short, forged])
      return standings.every(({ attempts }) => attempts === 1)
    })
  })
  expect((await positionOf(stack.database, short)).failureCode).toBe('insufficient_balance')
  expect((await positionOf(stack.database, forged)).failureCode).toBe('invalid_signature')
  expect(await transactionsOf(settling)).toHaveLength(2)
  expect(await stack.balanceOf(line.payee)).toBe(760_000n)
})

test('behavior: settles tabs with different rewards in separate batches', async () => {
  const buyers = await stack.buyers(3, 100_000n)
  const tabs = await Promise.all(
    buyers.map((buyer, index) =>
      closeTab(stack, {
        buyer,
        rewardShare: index === 0 ? 0 : 2_000,
        closedAt: hourAgo(),
        lines: [{ amount: 100_000n }],
      }),
    ),
  )
  await settleAll(stack, tabs)
  expect(await transactionsOf(tabs)).toHaveLength(2)
})

test.each([
  ['tabs', 20_000n],
  ['single payments', 400_000n],
])(
  'behavior: if tabs and single payments are due together, settles %s first because they are worth more',
  async (dearer, price) => {
    const buyers = await stack.buyers(3, 100_000n)
    const [singles, tabs] = await Promise.all([
      queueDue(stack, 3, price),
      Promise.all(
        buyers.map((buyer) => closeTab(stack, { buyer, lines: [{ amount: 100_000n }], closedAt: hourAgo() })),
      ),
    ])
    await settleAll(stack, [...singles, ...tabs])
    const blockOf = async (payments: Parameters<typeof transactionsOf>[0]) => {
      const [hash, ...others] = await transactionsOf(payments)
      expect(others).toEqual([])
      return (await stack.served.client.getTransactionReceipt({ hash: hash as Hex })).blockNumber
    }
    const [ofSingles, ofTabs] = await Promise.all([singles, tabs].map(blockOf))
    expect((ofTabs as bigint) < (ofSingles as bigint) ? 'tabs' : 'single payments').toBe(dearer)
    await expectUnharmed(stack, singles)
  },
)

test('behavior: counts a batch of tabs in each provider’s revenue and in the keeper’s settlements', async () => {
  const [buyer, other] = await stack.buyers(2, 1_000_000n)
  const [both, one] = [randomHex(20), randomHex(20)]
  const keeper = walletAccount(0).address.toLowerCase()
  const day = async () => {
    const [row] = await stack.database<{ payments: number; total: bigint }[]>`
      select sum(payments)::int as payments, sum(total) as total from keeper_day where keeper = ${keeper}`
    return { payments: row?.payments ?? 0, total: BigInt(row?.total ?? 0n) }
  }
  const before = await day()
  const line = (payee: Hex) => ({ payee, amount: 100_000n })
  const tabs = [
    await closeTab(stack, { buyer, lines: [line(both), line(one)], closedAt: hourAgo() }),
    await closeTab(stack, { buyer: other, lines: [line(both)], closedAt: hourAgo() }),
  ]
  await settleAll(stack, tabs)
  const [hash] = await transactionsOf(tabs)
  const read = () => stack.database<
    { sequence: number | null; recipient: Hex; paymentCount: number; total: bigint }[]
  >`
    select b.sequence, r.recipient, r.payment_count as "paymentCount", r.total
    from settled_batch b join batch_recipient r on r.batch_id = b.id where b.tx_hash = ${hash ?? null}
    order by r.total desc`
  await whileRecording(stack, () =>
    until('the index numbers it', async () => (await read()).every(({ sequence }) => sequence !== null)),
  )
  expect((await read()).map(({ sequence: _, ...row }) => row)).toEqual([
    { recipient: both, paymentCount: 2, total: 190_000n },
    { recipient: one, paymentCount: 1, total: 95_000n },
    { recipient: platformWallet, paymentCount: 2, total: 13_500n },
    { recipient: keeper, paymentCount: 2, total: 1_500n },
  ])
  const [batch] = await stack.database`
    select payment_count, provider_total, fee_total from settled_batch where tx_hash = ${hash ?? null}`
  expect(batch).toEqual({ payment_count: 2, provider_total: 285_000n, fee_total: 15_000n })
  const after = await day()
  expect([after.payments - before.payments, after.total - before.total]).toEqual([2, 300_000n])
  // The index has the same values as the record.
  const [indexed] = await stack.database`
    select payment_count, provider_total, fee_total, authorizations from indexer.batch where tx_hash = ${hash ?? null}`
  expect(indexed).toEqual({
    payment_count: 2,
    provider_total: 285_000n,
    fee_total: 15_000n,
    authorizations: 2,
  })
  expect(
    await stack.database`select from splitter where address = ${stack.served.deployment.tabSettlement}`,
  ).toEqual([])
})

async function debtOf({ buyer }: ClosedPayment): Promise<bigint> {
  const payer = buyer.address.toLowerCase() as Address
  const exposures = await readExposures(stack.database, stack.served, {
    payers: [payer],
    block: 0n,
    now: Math.floor(Date.now() / 1000),
    withHistory: true,
  })
  return BigInt(exposures.get(payer)?.debt ?? -1n)
}

const whileKeeping = (task: () => Promise<void>) => whileRunning(stack.keeper(), task)

/** Returns the splitter that pays only one account. */
const refugeOf = (account: Address) =>
  splitterAddress({
    provider: account,
    platform: account,
    providerShare: 1n,
    platformShare: 0n,
    factory: stack.served.deployment.splitterFactory,
  })

describe('a provider to whom the token refuses transfers', () => {
  const closeFor = (buyer: PrivateKeyAccount, payee: Address) =>
    closeTab(stack, { buyer, lines: [{ payee, amount: 100_000n }], closedAt: hourAgo() })

  test('behavior: if the provider’s splitter is blacklisted as well, pays into a splitter for that splitter, without delaying other tabs', async () => {
    const [one, other] = await stack.buyers(2, 100_000n)
    const [payee, honest] = [randomHex(20), randomHex(20)]
    const refuge = refugeOf(payee)
    for (const account of [payee, refuge]) await setBlacklisted(stack.chain, account, true)
    await settleAll(stack, [await closeFor(one, payee), await closeFor(other, honest)])
    expect(await stack.balanceOf(refugeOf(refuge))).toBe(95_000n)
    expect(await stack.balanceOf(honest)).toBe(95_000n)
  })

  test('behavior: leaves out a tab if its provider can’t be paid in any way, and settles the other tabs', async () => {
    const [one, other] = await stack.buyers(2, 100_000n)
    const [payee, honest] = [randomHex(20), randomHex(20)]
    const refused = [payee, refugeOf(payee), refugeOf(refugeOf(payee))]
    for (const account of refused) await setBlacklisted(stack.chain, account, true)
    const [tab, good] = [await closeFor(one, payee), await closeFor(other, honest)]
    await whileKeeping(async () => {
      await until('the other is settled', () => stack.isSettled([good]))
      await until('it is counted', async () => (await positionOf(stack.database, tab)).attempts === 1)
    })
    expect((await positionOf(stack.database, tab)).failureCode).toBe('account_blacklisted')
    expect(await debtOf(tab)).toBe(0n)
    await failAll(stack.database)
  })
})

describe('the settled state is not the tab’s last state', () => {
  const fork = async (task: () => Promise<void>) => {
    const snapshot = await testClient(stack).snapshot()
    await task()
    await testClient(stack).revert({ id: snapshot })
    await mine(stack, 3)
  }

  test('behavior: if a stranger settles an older state, records the settled amounts, and the missing amounts as the buyer’s debt, until a reorg drops the settlement', async () => {
    const [buyer] = await stack.buyers(1, 1_000_000n)
    const [first, second, third] = [randomHex(20), randomHex(20), randomHex(20)]
    const tab = await closeTab(stack, {
      buyer,
      lines: [
        { payee: first, amount: 300_000n },
        { payee: second, amount: 200_000n },
        { payee: third, amount: 100_000n },
      ],
      closedAt: hourAgo(),
    })
    await untilIndexed(stack)
    const recording = startRecording(stack)
    onTestFinished(() => recording.stop())
    await fork(async () => {
      // The older state had two lines, and its second line was higher than the final charge.
      await settleStates(stack, [await signOlder(stack, tab, [100_000n, 250_000n])])
      await whileRunning(stack.keeper(), () =>
        until('it is recorded', async () => (await stack.halves(tab))[0]?.state === 'foreign_use'),
      )
      expect(await movedOf(stack, tab)).toEqual([100_000n, 250_000n, 0n])
      expect(await debtOf(tab)).toBe(300_000n)
      expect(await stack.balanceOf(first)).toBe(95_000n)
    })
    await until('it is undone', async () => (await stack.halves(tab))[0]?.state === 'open')
    expect(await movedOf(stack, tab)).toEqual([null, null, null])
    expect(await debtOf(tab)).toBe(0n)
    await settleAll(stack, [tab])
    expect(await movedOf(stack, tab)).toEqual([null, null, null])
    expect(await stack.balanceOf(first)).toBe(285_000n)
  })

  test.each([
    ['receipt', whileKeeping],
    ['index', (task: () => Promise<void>) => whileRecording(stack, task)],
  ] as const)(
    'behavior: if a settled state names the buyer as the platform, records from the %s that the providers are paid and the fee is owed',
    async (_, record) => {
      const [buyer] = await stack.buyers(1, 300_000n)
      const payee = randomHex(20)
      const tab = await closeTab(stack, { buyer, lines: [{ payee, amount: 300_000n }], closedAt: hourAgo() })
      const own = buyer.address.toLowerCase() as Address
      const before = await stack.balanceOf(platformWallet)
      await record(async () => {
        await settleStates(stack, [await signUnder(stack, tab, { platform: own })])
        await until('it is recorded', async () => (await stack.halves(tab))[0]?.state === 'foreign_use')
      })
      expect(await movedOf(stack, tab)).toEqual([300_000n])
      expect([await stack.balanceOf(payee), await stack.balanceOf(platformWallet)]).toEqual([
        285_000n,
        before,
      ])
      expect(await debtOf(tab)).toBe(15_000n)
    },
  )

  test('behavior: of two states of a tab in a batch, only the first moves money; the tab counts as settled if the first state pays every line in full', async () => {
    const buyers = await stack.buyers(2, 1_000_000n)
    const [short, full] = (await Promise.all(
      buyers.map((buyer) => closeTab(stack, { buyer, lines: [{ amount: 300_000n }], closedAt: hourAgo() })),
    )) as [ClosedPayment, ClosedPayment]
    const [older, more] = [
      await signOlder(stack, short, [200_000n]),
      await signOlder(stack, full, [400_000n]),
    ]
    await settleStates(stack, [older, short.state, more, full.state])
    await whileRunning(stack.keeper(), async () => {
      await until('one is settled', () => stack.isSettled([full]))
      await until(
        'the other is recorded',
        async () => (await stack.halves(short))[0]?.state === 'foreign_use',
      )
    })
    expect(await movedOf(stack, short)).toEqual([200_000n])
    expect(await movedOf(stack, full)).toEqual([400_000n])
    expect(await debtOf(full)).toBe(0n)
  })

  test('behavior: a direct transfer to the contract with the tab’s nonce doesn’t settle the tab, whatever its value', async () => {
    const [buyer] = await stack.buyers(1, 300_000n)
    const tab = await closeTab(stack, { buyer, lines: [{ amount: 300_000n }], closedAt: hourAgo() })
    const { to, value, nonce } = tab.state.authorization
    await sendDirectly(
      stack,
      await signTransfer(stack.served, buyer, { to, value, nonce, ...validFor(3_600) }),
    )
    await whileRunning(stack.keeper(), () =>
      until('it is recorded', async () => (await stack.halves(tab))[0]?.state === 'foreign_use'),
    )
    expect(await movedOf(stack, tab)).toEqual([0n])
    expect(await debtOf(tab)).toBe(300_000n)
  })

  test('behavior: the index and the receipt record a settled state in the same form', async () => {
    const [buyer] = await stack.buyers(1, 300_000n)
    const payee = randomHex(20)
    const tab = await closeTab(stack, { buyer, lines: [{ payee, amount: 200_000n }], closedAt: hourAgo() })
    const older = await signOlder(stack, tab, [150_000n])
    await whileRecording(stack, async () => {
      await settleStates(stack, [older])
      await until('it is recorded', async () => (await stack.halves(tab))[0]?.state === 'foreign_use')
    })
    const [event] =
      await stack.database`select source from authorization_event where payment_id = ${tab.paymentId}`
    expect(event).toEqual({ source: 'index' })
    expect(await movedOf(stack, tab)).toEqual([150_000n])
  })

  test('behavior: if the payer cancels the tab’s nonce, records the tab’s whole amount as the payer’s debt', async () => {
    const [buyer] = await stack.buyers(1, 300_000n)
    const tab = await closeTab(stack, { buyer, lines: [{ amount: 300_000n }], closedAt: hourAgo() })
    await cancelDirectly(stack, buyer, tab.state.authorization.nonce)
    await whileRunning(stack.keeper(), () =>
      until('it is recorded', async () => (await stack.halves(tab))[0]?.state === 'cancelled'),
    )
    expect(await movedOf(stack, tab)).toEqual([null])
    expect(await debtOf(tab)).toBe(300_000n)
  })
})

test('behavior: settles a tab again after a reorg drops its settlement', async () => {
  const [buyer] = await stack.buyers(1, 300_000n)
  const payee = randomHex(20)
  const tab = await closeTab(stack, { buyer, lines: [{ payee, amount: 300_000n }], closedAt: hourAgo() })
  await untilIndexed(stack)
  const snapshot = await testClient(stack).snapshot()
  await whileRunning(stack.keeper(), async () => {
    await until('it is settled', () => stack.isSettled([tab]))
    const [before] = await transactionsOf([tab])
    expect(before).toBeDefined()
    await testClient(stack).revert({ id: snapshot })
    await mine(stack, 4)
    await until('it is settled again', () => isSettledOnChain(stack, [tab]))
  })
  expect(await stack.balanceOf(payee)).toBe(285_000n)
})

describe('without the operator’s keeper', () => {
  /** Creates a stranger's keeper, which has no database. */
  function createStranger(index: number, gatewayUrl: string) {
    const account = walletAccount(index)
    const now = () => new Date()
    const address = account.address.toLowerCase() as Address
    const settler = createSettler({
      served: stack.served,
      wallet: {
        address,
        sign: (transaction) => account.signTransaction({ ...transaction, type: 'eip1559' }),
      },
      // Each stranger earns 100,000 base units on tabs. A stranger's budget is half of its earnings, so that payments which earn nothing can't use
      // up the earnings.
      settings: {
        ...stack.settings,
        ...gasLimitsOf(stack.served.network, { gasPerFee: 1n, dailyBudget: 50_000n }),
        gasTokenUsd: 3_000_000_000n,
      },
      budget: createBudget(now),
      payersWithCode: createPayerCode(stack.served.client, now),
      readPending: () => fetchPending(gatewayUrl, stack.served, 0, now()),
      now,
      randomBytes32: () => randomHex(32),
      log: createLogger('test', (process.env.LOG_LEVEL ?? 'silent') as 'silent'),
      metrics: createMetrics(),
    })
    return { address, settler }
  }

  test('behavior: two strangers can settle everything that is due, and earn a profit', async () => {
    await failAll(stack.database)
    const options = { host: '127.0.0.1', port: 0, portVariable: 'API_PORT' } as const
    const server = await serve(createStackGateway(stack), options)
    onTestFinished(() => server.close())
    const strangers = [5, 6].map((index) => createStranger(index, `http://127.0.0.1:${server.port}`))
    const wealth = async () => {
      // One native token counts as 3,000 USD.
      const held = strangers.map(async ({ address }) => {
        const wei = await stack.served.client.getBalance({ address })
        return (await stack.balanceOf(address)) + (wei * 3_000_000_000n) / 10n ** 18n
      })
      return Promise.all(held)
    }
    const payees = Array.from({ length: 5 }, () => randomHex(20))
    // 40 payers owe 0.20 USDC to each of five providers. The platform gets 5%, and a tenth of that is the
    // reward.
    const closeSome = async (count: number) => {
      const buyers = await stack.buyers(count, 1_000_000n)
      const lines = payees.map((payee) => ({ payee, amount: 200_000n }))
      return Promise.all(buyers.map((buyer) => closeTab(stack, { buyer, lines, closedAt: hourAgo() })))
    }
    const before = await wealth()
    const all: { paymentId: string }[] = []
    await whileRecording(stack, async () => {
      for (const { settler } of strangers) {
        // The base fee of Base on a quiet day.
        await testClient(stack).setNextBlockBaseFeePerGas({ baseFeePerGas: 5_000_000n })
        await mine(stack, 1)
        const [tabs, singles] = await Promise.all([closeSome(20), queueDue(stack, 5)])
        const some = [...tabs, ...singles]
        all.push(...some)
        await until('this keeper settles its share', async () => {
          await settler.step()
          return stack.isSettled(some)
        })
      }
      await Promise.all(strangers.map(({ settler }) => settler.step()))
    })
    expect(await stack.isSettled(all)).toBe(true)
    for (const payee of payees) expect(await stack.balanceOf(payee)).toBe(40n * 190_000n)
    const after = await wealth()
    for (const [index, { settler }] of strangers.entries()) {
      const { earned, spent, payments } = settler.report()
      expect(payments).toBe(25)
      // The reward for 20 tabs of 1 USDC: a tenth of 5%.
      expect(earned).toBe(100_000n)
      expect(spent).toBeGreaterThan(0n)
      expect(spent).toBeLessThan(earned)
      expect(after[index]).toBeGreaterThan(before[index] as bigint)
    }
  })

  test('behavior: if a gateway lists two states of a tab or unsigned lines, settles only the newest signed state', async () => {
    await failAll(stack.database)
    const buyers = await stack.buyers(2, 3_000_000n)
    const [one, other] = (await Promise.all(
      buyers.map((buyer) => closeTab(stack, { buyer, lines: [{ amount: 3_000_000n }], closedAt: hourAgo() })),
    )) as [ClosedPayment, ClosedPayment]
    const older = await signOlder(stack, one, [1_000_000n])
    const thief = randomHex(20)
    const publish = ({ authorization, ...state }: SignedState, split = state.lines[0]?.split ?? 0n) => ({
      payload: encodePayload({ ...authorization, validBefore: BigInt(state.expiry) }),
      sequence: state.sequence,
      rewardShare: state.rewardShare,
      lines: state.lines.map(({ amount }) => [toWord(split), `${amount}`]),
    })
    const stolen = encodeSplit({ provider: thief, providerShare: 19n, platformShare: 1n })
    const { batchSettlement, tabSettlement } = stack.served.deployment
    const lying = new Hono().get('/settlements/pending', (c) =>
      c.json({
        batchSettlement,
        tabSettlement,
        token: stack.served.token,
        batches: [
          {
            feeRecipient: platformWallet,
            trigger: 'time',
            payments: [],
            splitters: [],
            tabs: [publish(older), publish(one.state), publish(other.state, stolen)],
          },
        ],
      }),
    )
    const server = await serve(lying, { host: '127.0.0.1', port: 0, portVariable: 'API_PORT' })
    onTestFinished(() => server.close())
    const { settler } = createStranger(7, `http://127.0.0.1:${server.port}`)
    await whileRecording(stack, () =>
      until('the newest is settled', async () => {
        await settler.step()
        return stack.isSettled([one])
      }),
    )
    expect(await movedOf(stack, one)).toEqual([null])
    expect(await stack.balanceOf(other.buyer.address)).toBe(3_000_000n)
    expect(await stack.balanceOf(thief)).toBe(0n)
  })
})

test('behavior: a provider can’t void a tab, and the operator can queue a failed tab again', async () => {
  const [buyer] = await stack.buyers(1, 300_000n)
  const tab = await closeTab(stack, { buyer, lines: [{ amount: 300_000n }] })
  const [own] = await stack.database<{ id: string }[]>`
    select provider_id as id from tab_sale where payment_id = ${tab.paymentId}`
  const by = { paymentId: tab.paymentId, providerId: own?.id ?? '', now: new Date() }
  expect(await voidPayment(stack.database, by)).toBe('forbidden')
  await failPayments(stack.database, [tab.paymentId])
  expect(await requeuePayment(stack.database, by)).toBe('forbidden')
  expect(await requeuePayment(stack.database, { ...by, providerId: undefined })).toBe('requeued')
  const tomorrow = () => new Date(Date.now() + 3_600_000)
  await settleAll(stack, [tab], { now: tomorrow })
})

test('behavior: if a tab expires while its transaction is in flight, the transaction skips the tab, and the keeper fails the tab as expired', async () => {
  const buyers = await stack.buyers(2, 300_000n)
  const [late, good] = (await Promise.all(
    [180, 93_600].map((validFor, index) =>
      closeTab(stack, {
        buyer: buyers[index] as PrivateKeyAccount,
        validFor,
        closedAt: hourAgo(),
        lines: [{ amount: 300_000n }],
      }),
    ),
  )) as [ClosedPayment, ClosedPayment]
  let isOver = false
  const checkpoint = async (name: CheckpointName) => {
    if (name !== 'after-simulation' || isOver) return
    isOver = true
    await testClient(stack).setNextBlockTimestamp({ timestamp: BigInt(late.state.expiry) })
  }
  await whileRunning(stack.keeper({ checkpoint }), async () => {
    await until('the other is settled', () => stack.isSettled([good]))
    await mineUntil(
      stack,
      'it has failed',
      async () => (await positionOf(stack.database, late)).kind === 'failed',
    )
  })
  expect((await positionOf(stack.database, late)).failureCode).toBe('authorization_expired')
  const [item] = await stack.database`
    select provider_outcome as digit from batch_item where payment_id = ${late.paymentId}`
  expect(item).toEqual({ digit: outcomes.indexOf('expired') })
  expect(await stack.balanceOf(late.buyer.address)).toBe(300_000n)
})

test('behavior: if an older state settled a tab, the providers’ sums include only the amount that moved', async () => {
  const [buyer] = await stack.buyers(1, 1_000_000n)
  const tab = await closeTab(stack, {
    buyer,
    lines: [{ amount: 300_000n }, { payee: randomHex(20), amount: 100_000n }],
    closedAt: hourAgo(),
    validFor: 3_600,
  })
  await settleStates(stack, [await signOlder(stack, tab, [300_000n])])
  await whileRunning(stack.keeper(), async () => {
    await mineUntil(
      stack,
      'it has failed',
      async () => (await positionOf(stack.database, tab)).kind === 'failed',
    )
    // Until the tab expires, a reorg could make it payable again.
    await testClient(stack).setNextBlockTimestamp({ timestamp: BigInt(tab.state.expiry) + 1n })
    await mineUntil(stack, 'it is final', async () => (await positionOf(stack.database, tab)).isFinal)
  })
  expect(await positionOf(stack.database, tab)).toMatchObject({
    kind: 'failed',
    failureCode: 'authorization_used',
  })
  expect(await debtOf(tab)).toBe(100_000n)
  const payer = buyer.address.toLowerCase()
  const [sums] = await stack.database`
    select payments, gross, settled_net from payer_revenue where payer = ${payer} and period = 'all'`
  // Only the sales of the registered provider are counted. The wallet of the other line isn't registered.
  expect(sums).toEqual({ payments: 1, gross: 300_000n, settled_net: 285_000n })
})
