import { splitterFactoryAbi } from '@tollkeeper/sdk/protocol/abi/splitterFactory'
import { encodeSplit, splitterAddress, splitterShares } from '@tollkeeper/sdk/protocol/splitter'
import { type Address, encodeFunctionData } from 'viem'
import type { Bench, BySize } from './gasBench.ts'

const payments = 100
/** Distinct splitters among the recipients of a batch. */
const splitterCounts = [1, 5, 20, 100] as const
/** A splitter is worth sweeping from this many payments on. Below, what waits in it stays for a later batch. */
const worthSweeping = 10
const gasLimit = 9_000_000n

/** What a hundred payments of one signature cost, to splitters that are swept in the same transaction. */
export async function measureSplitters(bench: Bench) {
  const { platform, splitterFactory: factory } = bench
  const [splitter, splitterAllSwept, splitterFirstTime]: [BySize, BySize, BySize] = [{}, {}, {}]
  const shares = splitterShares(bench.price, bench.fee)
  const providers = Array.from({ length: 100 }, (_, i) => bench.addressOf(`splitter's provider ${i}`))
  await bench.mint(providers)
  const splits = providers.map((provider) => encodeSplit({ provider, ...shares }))
  const splitters = providers.map((provider) => splitterAddress({ provider, platform, factory, ...shares }))
  const buyers = bench.buyers.slice(0, payments)

  for (const count of splitterCounts) {
    const batch = buyers.map((buyer, i) => bench.payOne(buyer, splitters[i % count] as Address, `one ${i}`))
    const gasOf = async (swept: number) => {
      const call = bench.settleOnes(batch, { factory, gasLimit, splits: splits.slice(0, swept) })
      // Each sweep moves two parts, as many Transfers as an authorization has logs.
      return Math.round((await bench.gasOf(call, payments + swept)) / payments)
    }
    splitterFirstTime[count] = await bench.isolated(() => gasOf(count))
    await bench.isolated(async () => {
      await bench.mint(splitters.slice(0, count))
      const data = encodeFunctionData({
        abi: splitterFactoryAbi,
        functionName: 'sweep',
        args: [bench.usdc, platform, splits.slice(0, count)],
      })
      await bench.gasOf({ to: factory, data }, count)
      splitterAllSwept[count] = await bench.isolated(() => gasOf(count))
      const due = payments / count >= 5 ? count : payments / worthSweeping
      // Each is swept in every tenth batch: a tenth now, a tenth was in the batch before, in the others something waits.
      if (due < count) await bench.mint([...splitters.slice(0, due), ...splitters.slice(2 * due, count)])
      splitter[count] = await bench.isolated(() => gasOf(due))
    })
  }

  const two = buyers.map((buyer, i) => bench.pay(buyer, providers[i % 5] as Address, `two ${i}`))
  const gas = (await bench.isolated(() => bench.gasOf(bench.settle(two), 2 * payments))) / payments
  const oneSignatureBelowTwoPct = Math.round((1 - (splitter[5] ?? Number.NaN) / gas) * 10_000) / 100
  return {
    /**
     * Gas a payment of whole transactions with 100 payments, by the number of splitters: deployed, paid and swept before.
     * Swept: all that got five payments or more in this batch; of a hundred splitters the ten that ten payments reached by now.
     */
    splitter,
    /** The same where every splitter is swept. */
    splitterAllSwept,
    /** The same where none of them is deployed, and all are swept. */
    splitterFirstTime,
    /** How much less a payment of one signature costs than one of two, with five splitters or providers. */
    oneSignatureBelowTwoPct,
  }
}
