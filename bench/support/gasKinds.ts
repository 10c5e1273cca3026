import { splitterFactoryAbi } from '@tollkeeper/sdk/protocol/abi/splitterFactory'
import { triggerCodes } from '@tollkeeper/sdk/protocol/batchSettlement'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { encodeSplit, splitterAddress, splitterShares } from '@tollkeeper/sdk/protocol/splitter'
import { encodeSettleTabs, type SignedTab } from '@tollkeeper/sdk/protocol/tabSettlement'
import { encodeFunctionData, keccak256, stringToHex } from 'viem'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { createTabSigner } from '../data/signPayments.ts'
import { type Bench, largest } from './gasBench.ts'

/** Functions that measure the gas of whole transactions with `count` payments of different buyers to one provider, including calldata. */
export type KindMeter = {
  twoSignatures: (count: number) => Promise<number>
  /** @param isSwept whether the transaction also pays out the splitter. */
  oneSignature: (count: number, isSwept: boolean) => Promise<number>
  tabs: (count: number) => Promise<number>
  /** Measures a transaction with one transfer by one authorization, as x402's reference facilitator settles. */
  transfer: () => Promise<number>
}

const rewardShare = 1_000
const tabShares = { providerShare: 19n, platformShare: 1n }

/** Prepares a chain on which every recipient has held USDC before, so that no figure contains the additional gas of a recipient's first USDC. */
export async function createKindMeter(bench: Bench): Promise<KindMeter> {
  const { buyers, provider, platform, usdc, tabSettlement, splitterFactory: factory } = bench
  const shares = splitterShares(bench.price, bench.fee)
  const split = encodeSplit({ provider, ...shares })
  const splitter = splitterAddress({ provider, platform, factory, ...shares })
  await bench.mint([splitter, devAccount(1).address])
  const data = encodeFunctionData({
    abi: splitterFactoryAbi,
    functionName: 'sweep',
    args: [usdc, platform, [split]],
  })
  await bench.gasOf({ to: factory, data }, 1)

  const sign = createTabSigner(usdc)
  const { chainId } = networks.localhost
  const terms = { issuer: 'https://gateway.example', chainId, contract: tabSettlement, platform, rewardShare }
  const expiry = Math.floor(Date.now() / 1000) + 93_600
  const lines = [{ split: encodeSplit({ provider, ...tabShares }), amount: bench.price }]
  const tabOf = (index: number): SignedTab => {
    const buyer = buyers[index % buyers.length] as (typeof buyers)[number]
    const tabId = `tab_${keccak256(stringToHex(`cost ${index}`)).slice(2, 34)}`
    const state = { tabId, payer: buyer.address, sequence: 1, expiry, lines }
    return { ...state, ...sign(buyer, terms, state) }
  }
  const tabBatch = {
    token: usdc,
    feeRecipient: platform,
    rewardShare,
    batchId: keccak256(stringToHex('costs')),
    trigger: triggerCodes.count,
    callGasLimit: 150_000n,
  }
  const some = <T>(count: number, make: (index: number) => T) => {
    if (count > largest) throw new Error(`a batch of ${count}: there are ${largest} buyers`)
    return Array.from({ length: count }, (_, index) => make(index))
  }
  const buyerAt = (index: number) => buyers[index] as (typeof buyers)[number]

  return {
    twoSignatures: (count) =>
      bench.isolated(() => {
        const payments = some(count, (index) => bench.pay(buyerAt(index), provider, `two ${index}`))
        return bench.gasOf(bench.settle(payments), 2 * count)
      }),
    oneSignature: (count, isSwept) =>
      bench.isolated(async () => {
        // The splitter already holds money from an earlier batch.
        await bench.mint([splitter])
        const payments = some(count, (index) => bench.payOne(buyerAt(index), splitter, `one ${index}`))
        const sweep = { factory, gasLimit: 9_000_000n, splits: isSwept ? [split] : [] }
        return bench.gasOf(bench.settleOnes(payments, sweep), count + Number(isSwept))
      }),
    tabs: (count) =>
      bench.isolated(() => {
        const { calldata } = encodeSettleTabs(tabBatch, some(count, tabOf))
        // Three Transfers are added: to the provider, to the platform and to the settling wallet. They count as 3/2 authorizations, because an
        // authorization has two logs.
        return bench.gasOf({ to: tabSettlement, data: calldata }, count + 3 / 2)
      }),
    transfer: () =>
      bench.isolated(async () => {
        const [call] = bench.transfers([bench.pay(buyerAt(0), provider, 'alone')])
        if (call === undefined) throw new Error('no transfer')
        return bench.gasOf(call, 1)
      }),
  }
}
