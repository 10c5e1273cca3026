import { splitterFactoryAbi } from '@tollkeeper/sdk/protocol/abi/splitterFactory'
import { encodeSplit, splitterAddress, splitterShares } from '@tollkeeper/sdk/protocol/splitter'
import { type Address, encodeFunctionData } from 'viem'
import type { Bench, BySize } from './gasBench.ts'

const payments = 100
/** Distinct splitters among the recipients of a batch. */
const splitterCounts = [1, 5, 20, 100] as const
/** Number of payments in a splitter at which the splitter is swept. Until then, the splitter keeps its money. */
const worthSweeping = 10
const gasLimit = 9_000_000n

/** Measures the gas of a hundred payments with one signature to splitters that are swept in the same transaction. */
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
      // Count each sweep as an authorization, because its two Transfers are as many logs as an authorization has.
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
      // Each splitter is swept in every tenth batch. This batch sweeps one tenth of them, the previous batch swept another tenth, and the
      // others already hold some money.
      if (due < count) await bench.mint([...splitters.slice(0, due), ...splitters.slice(2 * due, count)])
      splitter[count] = await bench.isolated(() => gasOf(due))
    })
  }

  const two = buyers.map((buyer, i) => bench.pay(buyer, providers[i % 5] as Address, `two ${i}`))
  const gas = (await bench.isolated(() => bench.gasOf(bench.settle(two), 2 * payments))) / payments
  const oneSignatureBelowTwoPct = Math.round((1 - (splitter[5] ?? Number.NaN) / gas) * 10_000) / 100
  return {
    /**
     * Gas per payment of whole transactions with 100 payments, by the number of splitters, which were deployed, paid and swept before. The
     * transaction sweeps each splitter that got at least five payments in this batch. Of 100 splitters, which get one payment per batch, it
     * sweeps the ten that hold ten payments by now.
     */
    splitter,
    /** The same figures for transactions that sweep every splitter. */
    splitterAllSwept,
    /** The same figures for transactions that deploy and sweep every splitter. */
    splitterFirstTime,
    /** Percentage by which a payment with one signature is cheaper than a payment with two, with five splitters or providers. */
    oneSignatureBelowTwoPct,
  }
}
