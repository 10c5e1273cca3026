import { triggerCodes } from '@tollkeeper/sdk/protocol/batchSettlement'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { encodeSettleTabs, type SignedTab } from '@tollkeeper/sdk/protocol/tabSettlement'
import { keccak256, stringToHex } from 'viem'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { createTabSigner } from '../data/signPayments.ts'
import { createBench } from './gasBench.ts'

const payers = 100
const price = 123n
const shares = { providerShare: 19n, platformShare: 1n }
const rewardShare = 1_000
/** Shapes of tabs: number of providers x number of requests to each provider. */
const shapes = ['1x10', '1x50', '5x10', '20x10', '20x50']

/**
 * Measures the gas per request of whole transactions that settle the tabs of a hundred payers, by shape. All recipients have held USDC
 * before.
 */
export async function measureTabGas(): Promise<Record<string, number>> {
  await using chain = await startLocalChain({ blockTimeMs: 0 })
  const bench = await createBench(chain)
  const { usdc, tabSettlement, platform } = bench
  const sign = createTabSigner(usdc)
  const providers = Array.from({ length: 20 }, (_, i) => bench.addressOf(`tab's provider ${i}`))
  await bench.mint([...providers, devAccount(1).address])
  const { chainId } = networks.localhost
  const terms = {
    issuer: 'https://gateway.example',
    chainId,
    contract: tabSettlement,
    platform,
    rewardShare,
  }
  const expiry = Math.floor(Date.now() / 1000) + 93_600

  function signTabs(count: number, requests: number): SignedTab[] {
    const lines = providers.slice(0, count).map((provider) => {
      return { split: encodeSplit({ provider, ...shares }), amount: BigInt(requests) * price }
    })
    return bench.buyers.slice(0, payers).map((buyer, index) => {
      const tabId = `tab_${keccak256(stringToHex(`tab ${index}`)).slice(2, 34)}`
      const state = { tabId, payer: buyer.address, sequence: count * requests, expiry, lines }
      return { ...state, ...sign(buyer, terms, state) }
    })
  }

  const batch = {
    token: usdc,
    feeRecipient: platform,
    rewardShare,
    batchId: keccak256(stringToHex('tabs')),
    trigger: triggerCodes.count,
    callGasLimit: 150_000n,
  }
  const gas: Record<string, number> = {}
  for (const shape of shapes) {
    const [count = 0, requests = 0] = shape.split('x').map(Number)
    const { calldata } = encodeSettleTabs(batch, signTabs(count, requests))
    // There is also one Transfer to each provider, one to the platform and one to the settling wallet. Two logs count as one authorization.
    const settled = payers + (count + 2) / 2
    const whole = await bench.isolated(() => bench.gasOf({ to: tabSettlement, data: calldata }, settled))
    gas[shape] = Math.round(whole / (payers * count * requests))
  }
  return gas
}
