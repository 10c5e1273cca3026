import hardhatViem from '@nomicfoundation/hardhat-viem'
import { tabBatchGasLimit, tabReserves } from '@tollkeeper/chain/gas'
import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { splitterFactoryAbi } from '@tollkeeper/sdk/protocol/abi/splitterFactory'
import { tabSettlementAbi } from '@tollkeeper/sdk/protocol/abi/tabSettlement'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import {
  type Batch,
  decodeOutcomes,
  decodeSettle,
  encodeSettle,
  encodeSettleAuthorizations,
  triggerCodes,
} from '@tollkeeper/sdk/protocol/batchSettlement'
import { eip712Domain, receiveWithAuthorizationTypes } from '@tollkeeper/sdk/protocol/eip3009'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { encodeSplit, splitterOf } from '@tollkeeper/sdk/protocol/splitter'
import { platformPart, type TabLine, tabAuthorization } from '@tollkeeper/sdk/protocol/tab'
import {
  decodeSettleTabs,
  decodeTabsSettled,
  encodeSettleTabs,
  type SignedTab,
  type TabBatch,
} from '@tollkeeper/sdk/protocol/tabSettlement'
import { createHardhatRuntimeEnvironment } from 'hardhat/hre'
import {
  type Abi,
  type Address,
  type BaseError,
  ContractFunctionRevertedError,
  custom,
  decodeFunctionResult,
  type Hex,
  parseEventLogs,
} from 'viem'
import { type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { contracts } from '../../apps/devstack/chain/contracts.ts'
import { prepareChain } from '../../apps/devstack/chain/prepareChain.ts'
import { randomHex, signAuthorization, validFor } from '../../test/support/usdc.ts'

// Checks what the Solidity tests can't: that the published TypeScript encodes calls that the deployed code accepts, and
// decodes their results. A network in this process takes half a second to start, and a millisecond for each
// transaction.

const network = networks.base
const token = network.usdc as Address
const { batchSettlement, splitterFactory, tabSettlement } = contracts
const platform = randomHex(20) as Address

async function openNetwork() {
  const hre = await createHardhatRuntimeEnvironment({
    plugins: [hardhatViem],
    networks: { base: { type: 'edr-simulated', chainType: 'op', chainId: network.chainId } },
  })
  const connection = await hre.network.create('base')
  const chain = await prepareChain({ transport: custom(connection.provider), network: network.name })
  const client = await connection.viem.getPublicClient()
  const wallet = await connection.viem.getWalletClient(devAccount(5).address)
  return { connection, chain, client, wallet }
}

let opened: Awaited<ReturnType<typeof openNetwork>>
beforeAll(async () => {
  opened = await openNetwork()
})
afterAll(() => opened?.connection.close())

const batch: Batch = {
  token,
  feeRecipient: platform,
  batchId: `0x${'7'.repeat(64)}`,
  trigger: triggerCodes.count,
  callGasLimit: 150_000n,
}

async function newBuyer(usdc: bigint): Promise<PrivateKeyAccount> {
  const account = privateKeyToAccount(randomHex(32))
  if (usdc > 0n) await opened.chain.mintUsdc([account.address], usdc)
  return account
}

function authorize(
  payer: PrivateKeyAccount,
  to: Address,
  value: bigint,
  window = validFor(3_600),
): Promise<SignedAuthorization> {
  const from = payer.address.toLowerCase() as Address
  return signAuthorization({ network, token }, payer, { from, to, value, ...window, nonce: randomHex(32) })
}

async function pairOf(payer: PrivateKeyAccount, payee: Address) {
  const window = validFor(3_600)
  return {
    authorization: await authorize(payer, payee, 47_500n, window),
    fee: await authorize(payer, platform, 2_500n, window),
  }
}

const balanceOf = (owner: Address) =>
  opened.client.readContract({ address: token, abi: usdcAbi, functionName: 'balanceOf', args: [owner] })

/** Simulates a call, then sends it. */
async function send(data: Hex, to = batchSettlement.address, gas = 2_000_000n) {
  const { client, wallet } = opened
  const { data: answer = '0x' } = await client.call({ to, data, account: wallet.account, gas })
  // With less gas the call would also succeed, but wouldn't try the rest of the batch.
  const hash = await wallet.sendTransaction({ to, data, gas })
  const { status, logs } = await client.waitForTransactionReceipt({ hash })
  expect(status).toBe('success')
  return { answer, logs, input: (await client.getTransaction({ hash })).input }
}

/** Returns the name and the lower-case values of the error with which `settle` reverts. */
async function errorOf(address: Address, abi: Abi, args: readonly unknown[]) {
  const error = await opened.client
    .simulateContract({ address, abi, functionName: 'settle', args })
    .catch((thrown: unknown) => thrown)
  const reverted = (error as BaseError).walk((one) => one instanceof ContractFunctionRevertedError)
  const { errorName, args: got } = (reverted as ContractFunctionRevertedError).data ?? {}
  return [errorName, got?.map((value) => (typeof value === 'string' ? value.toLowerCase() : value))]
}

test('default: the deployed code equals the committed code, at the addresses that the SDK exports', async () => {
  for (const { address, runtimeCode } of Object.values(contracts)) {
    expect(await opened.client.getCode({ address })).toBe(runtimeCode)
  }
})

describe('settle', () => {
  test('default: settles what the SDK encodes, and the SDK decodes events, outcomes and calldata', async () => {
    const payee = randomHex(20) as Address
    const [rich, poor] = [await newBuyer(50_000n), await newBuyer(0n)]
    const items = [await pairOf(rich, payee), await pairOf(poor, payee)]
    const { answer, logs, input } = await send(encodeSettle(batch, items).calldata)

    const outcomes = decodeFunctionResult({ abi: batchSettlementAbi, functionName: 'settle', data: answer })
    expect(decodeOutcomes(outcomes)).toEqual([
      { provider: 'settled', fee: 'settled' },
      { provider: 'failed', fee: 'skipped' },
    ])
    expect(parseEventLogs({ abi: batchSettlementAbi, logs })).toMatchObject([
      {
        eventName: 'AuthorizationFailed',
        args: { batchId: batch.batchId, nonce: items[1]?.authorization.nonce, index: 1n },
      },
      {
        eventName: 'BatchSettled',
        args: { trigger: 1, authorizations: 2n, providerTotal: 47_500n, feeTotal: 2_500n, outcomes },
      },
    ])
    expect(decodeSettle(input)).toEqual({ batch, items })
    expect([await balanceOf(payee), await balanceOf(rich.address)]).toEqual([47_500n, 0n])
  })

  test('error: reverts with each of the contract’s errors and their values', async () => {
    const payer = await newBuyer(0n)
    const item = await pairOf(payer, randomHex(20) as Address)
    const { payees, payments } = encodeSettle(batch, [item])
    const [payment] = payments
    if (payment === undefined) throw new Error('expected one packed payment')
    const elsewhere = { ...payment, head: payment.head | (3n << 80n) }
    const unsigned = { ...payment, vs: `0x${'0'.repeat(64)}` as const, r: `0x${'0'.repeat(63)}5` as const }
    for (const [args, name, values] of [
      [[{ ...batch, token: platform }, payees, payments, []], 'InvalidToken', [platform]],
      [[batch, payees, [elsewhere], []], 'InvalidPayee', [3n]],
      [[batch, payees, [unsigned], []], 'InvalidSignatureIndex', [5n]],
      [[batch, payees, payments, []], 'NothingSettled', ['0x34']],
    ] as const) {
      expect(await errorOf(batchSettlement.address, batchSettlementAbi, args)).toEqual([name, values])
    }
  })
})

test('default: settleAuthorizations pays a splitter with one signature and sweeps it in the same transaction', async () => {
  const payee = randomHex(20) as Address
  const parts = { payTo: payee, feePayTo: platform, amount: 47_500n, feeAmount: 2_500n }
  const splitter = splitterOf(parts, splitterFactory.address)
  if (splitter === undefined) throw new Error('expected a splitter with shares 19 and 1')
  const paid = await authorize(await newBuyer(50_000n), splitter.address, 50_000n)
  const before = await balanceOf(platform)
  const sweep = {
    factory: splitterFactory.address,
    gasLimit: 300_000n,
    splits: [encodeSplit(splitter)],
  }
  const { logs, input } = await send(encodeSettleAuthorizations(batch, [paid], sweep).calldata)
  expect(parseEventLogs({ abi: batchSettlementAbi, logs })).toMatchObject([
    { eventName: 'BatchSettled', args: { authorizations: 1n, providerTotal: 50_000n, feeTotal: 0n } },
  ])
  // The factory's only event is SweepFailed.
  expect(parseEventLogs({ abi: splitterFactoryAbi, logs })).toEqual([])
  expect(decodeSettle(input)).toEqual({ batch, items: [{ authorization: paid }], sweep })
  expect([await balanceOf(payee), (await balanceOf(platform)) - before]).toEqual([47_500n, 2_500n])
})

describe('tabs', () => {
  const tabBatch: TabBatch = { ...batch, ...tabReserves, rewardShare: 1_000 }
  const terms = {
    issuer: 'https://gateway.example',
    chainId: network.chainId,
    contract: tabSettlement.address,
    platform,
  }
  async function signTab(payer: PrivateKeyAccount, lines: TabLine[], expiresIn = 3_600): Promise<SignedTab> {
    const state = {
      tabId: `tab_${randomHex(16).slice(2)}`,
      payer: payer.address.toLowerCase() as Address,
      sequence: 3,
      expiry: Math.floor(Date.now() / 1_000) + expiresIn,
      lines,
    }
    const { primaryType, ...message } = tabAuthorization({ ...terms, rewardShare: 1_000 }, state)
    const signature = await payer.signTypedData({
      domain: eip712Domain(network, token),
      types: receiveWithAuthorizationTypes,
      primaryType,
      message,
    })
    const { tabId: _, ...signed } = state
    return { ...signed, nonce: message.nonce, signature }
  }

  /** Returns lines for new providers, whose shares differ. */
  const newLines = (count: number): TabLine[] =>
    Array.from({ length: count }, (_, index) => ({
      split: encodeSplit({
        provider: randomHex(20) as Address,
        providerShare: index % 2 === 0 ? 19n : 9n,
        platformShare: 1n,
      }),
      amount: 10_001n + BigInt(index),
    }))

  test("default: our batches use the contract's minimum reserves", async () => {
    const names = { tabGas: 'MIN_TAB_GAS', lineGas: 'MIN_LINE_GAS', payoutGas: 'MIN_PAYOUT_GAS' } as const
    for (const [field, functionName] of Object.entries(names) as [
      keyof typeof names,
      (typeof names)['tabGas'],
    ][]) {
      const least = await opened.client.readContract({
        address: tabSettlement.address,
        abi: tabSettlementAbi,
        functionName,
      })
      expect(tabReserves[field]).toBe(least)
    }
  })

  test('default: settles what the SDK encodes within the modeled gas limit, and the SDK decodes events, outcomes and calldata', async () => {
    const lines = newLines(5)
    const value = lines.reduce((sum, { amount }) => sum + amount, 0n)
    const [rich, poor, late, other] = [
      await newBuyer(value),
      await newBuyer(0n),
      await newBuyer(value),
      await newBuyer(value),
    ]
    const tabs = [
      await signTab(rich, lines),
      await signTab(poor, lines),
      await signTab(late, lines, -60),
      await signTab(other, [...lines].reverse()),
    ]
    const { calldata, splits } = encodeSettleTabs(tabBatch, tabs)
    const gas = tabBatchGasLimit(
      { hasCode: false, tabs: 4, lines: 20, splits: splits.length },
      Buffer.from(calldata.slice(2), 'hex'),
    )
    const platformBefore = await balanceOf(platform)
    const { answer, logs, input } = await send(calldata, tabSettlement.address, gas)

    const outcomes = decodeFunctionResult({ abi: tabSettlementAbi, functionName: 'settle', data: answer })
    expect(decodeOutcomes(outcomes).map(({ provider }) => provider)).toEqual([
      'settled',
      'failed',
      'expired',
      'settled',
    ])
    const feeTotal = 2n * lines.reduce((sum, { split, amount }) => sum + platformPart(split, amount), 0n)
    const events = parseEventLogs({ abi: tabSettlementAbi, logs })
    expect(events).toMatchObject([
      { eventName: 'AuthorizationFailed', args: { nonce: tabs[1]?.nonce, index: 1n } },
      { eventName: 'TabsSettled', args: { batchId: batch.batchId, rewardShare: 1_000, splits } },
      {
        eventName: 'BatchSettled',
        args: { trigger: 1, authorizations: 2n, providerTotal: 2n * value - feeTotal, feeTotal, outcomes },
      },
    ])
    const [, settled] = events
    if (settled?.eventName !== 'TabsSettled') throw new Error('expected TabsSettled as the second event')
    expect(decodeTabsSettled(settled.args)).toEqual(
      [tabs[0], tabs[3]].map((tab) => ({ platform, rewardShare: 1_000, sequence: 3, lines: tab?.lines })),
    )
    expect(decodeSettleTabs(input)).toEqual({ batch: tabBatch, tabs })
    // Both contracts log the same BatchSettled event, so the index reads it with BatchSettlement's ABI.
    expect(parseEventLogs({ abi: batchSettlementAbi, logs }).map(({ eventName }) => eventName)).toEqual([
      'AuthorizationFailed',
      'BatchSettled',
    ])

    for (const { split, amount } of lines) {
      const provider = `0x${(split >> 96n).toString(16).padStart(40, '0')}` as const
      expect(await balanceOf(provider)).toBe(2n * (amount - platformPart(split, amount)))
    }
    const reward = feeTotal / 10n
    expect((await balanceOf(platform)) - platformBefore).toBe(feeTotal - reward)
    expect([await balanceOf(rich.address), await balanceOf(tabSettlement.address)]).toEqual([0n, 0n])
  })

  test('error: reverts with each of the contract’s errors and their values', async () => {
    const { splits, tabs, lines } = encodeSettleTabs(tabBatch, [
      await signTab(await newBuyer(0n), newLines(1)),
    ])
    const unsigned = tabs.map((tab) => ({ ...tab, vs: `0x${'0'.repeat(64)}`, r: `0x${'0'.repeat(63)}5` }))
    for (const [args, name, values] of [
      [[{ ...tabBatch, token: platform }, splits, tabs, lines, []], 'InvalidToken', [platform]],
      [[{ ...tabBatch, rewardShare: 10_001 }, splits, tabs, lines, []], 'InvalidRewardShare', [10_001n]],
      [[tabBatch, [], tabs, lines, []], 'InvalidSplit', [0n]],
      [[tabBatch, splits, tabs, `${lines}00`, []], 'InvalidLines', [9n]],
      [[tabBatch, splits, unsigned, lines, []], 'InvalidSignatureIndex', [5n]],
      [[tabBatch, splits, tabs, lines, []], 'NothingSettled', ['0x30']],
    ] as const) {
      expect(await errorOf(tabSettlement.address, tabSettlementAbi, args)).toEqual([name, values])
    }
  })
})
