import { networks } from '@tollkeeper/sdk/protocol/networks'
import { createPublicClient, custom, decodeFunctionData, encodeFunctionResult, parseAbi } from 'viem'
import { expect, test } from 'vitest'
import { postingGasLimit } from './postingGas.ts'
import { estimateDataFee, estimateSettlementCost } from './settlementCost.ts'

// A substitute for an Arbitrum node, which responds as documented for its NodeInterface.

const abi = parseAbi([
  'function gasEstimateL1Component(address to, bool contractCreation, bytes data) view returns (uint64 gasEstimateForL1, uint256 baseFee, uint256 l1BaseFeeEstimate)',
])
const gasPerByte = 16n
const baseFee = 10_000_000n

function arbitrumNode() {
  const asked: string[] = []
  const client = createPublicClient({
    transport: custom({
      async request({ method, params }: { method: string; params: [{ to: string; data: `0x${string}` }] }) {
        asked.push(method)
        const [{ to, data }] = params
        expect([method, to]).toEqual(['eth_call', '0x00000000000000000000000000000000000000c8'])
        const { args } = decodeFunctionData({ abi, data })
        const gas = (BigInt(args[2].length - 2) / 2n) * gasPerByte
        return encodeFunctionResult({
          abi,
          functionName: 'gasEstimateL1Component',
          result: [gas, baseFee, 1n],
        })
      },
    }),
  })
  return { client, asked }
}

const contract = '0x1111111111111111111111111111111111111111'
const data = `0x${'ab'.repeat(1_000)}` as const

test('on Arbitrum, raises a gas limit by twice the gas that the node reports for posting the calldata', async () => {
  const { client } = arbitrumNode()
  expect(await postingGasLimit({ client, network: networks.arbitrum }, { to: contract, data })).toBe(32_000n)
})

test.each([networks.base, networks.polygon, networks.avalanche])(
  'adds nothing to a gas limit on $name',
  async (network) => {
    const { client, asked } = arbitrumNode()
    expect(await postingGasLimit({ client, network }, { to: contract, data })).toBe(0n)
    expect(asked).toEqual([])
  },
)

test('includes the cost of posting the calldata in the cost of a batch on Arbitrum', async () => {
  const { client } = arbitrumNode()
  const sized = {
    network: networks.arbitrum,
    contract,
    from: contract,
    shape: { pairs: 100, singles: 0, payees: 1, hasCode: false },
  } as const
  const wei = await estimateDataFee(client, sized)
  expect(wei).toBeGreaterThan(0n)
  expect(wei % (gasPerByte * baseFee)).toBe(0n)
  const price = { gasPrice: baseFee, usdPerToken: 3_000_000_000n }
  const cost = await estimateSettlementCost(client, { ...sized, ...price })
  const onPlain = await estimateSettlementCost(client, { ...sized, ...price, network: networks.ethereum })
  const ofData = Number((wei * price.usdPerToken) / 10n ** 18n)
  expect(Math.abs(Number(cost - onPlain) - ofData)).toBeLessThanOrEqual(1)
})
