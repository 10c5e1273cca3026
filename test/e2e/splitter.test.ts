import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { splitterFactoryAbi } from '@tollkeeper/sdk/protocol/abi/splitterFactory'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import {
  decodeOutcomes,
  encodeSettleAuthorizations,
  triggerCodes,
} from '@tollkeeper/sdk/protocol/batchSettlement'
import type { Deployment } from '@tollkeeper/sdk/protocol/deployments'
import { eip712Domain, transferWithAuthorizationTypes } from '@tollkeeper/sdk/protocol/eip3009'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { encodeSplit, splitterAddress, splitterShares } from '@tollkeeper/sdk/protocol/splitter'
import fc from 'fast-check'
import {
  type Address,
  createPublicClient,
  createWalletClient,
  type Hex,
  http,
  keccak256,
  parseEventLogs,
  stringToHex,
} from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { type LocalChain, startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'

let chain: LocalChain
let deployment: Deployment

beforeAll(async () => {
  chain = await startLocalChain({ blockTimeMs: 0 })
  deployment = chain.deployments.localhost as Deployment
})

afterAll(() => chain.close())

const clientOf = () => createPublicClient({ transport: http(chain.url, { batch: true }), pollingInterval: 5 })

test('behavior: computes the same address off chain as the factory', async () => {
  const client = clientOf()
  const factory = deployment.splitterFactory
  const address = fc
    .uint8Array({ minLength: 20, maxLength: 20 })
    .map((bytes): Address => `0x${Buffer.from(bytes).toString('hex')}`)
  const share = fc.bigInt({ min: 0n, max: 2n ** 48n - 1n })
  const terms = fc.record({
    provider: address,
    platform: address,
    providerShare: share,
    platformShare: share,
  })
  await fc.assert(
    fc.asyncProperty(terms, async (one) => {
      const onChain = await client.readContract({
        address: factory,
        abi: splitterFactoryAbi,
        functionName: 'splitterOf',
        args: [encodeSplit(one), one.platform],
      })
      expect(splitterAddress({ ...one, factory })).toBe(onChain.toLowerCase())
    }),
  )
})

test('default: one signature pays provider and platform in the settlement transaction', async () => {
  const client = clientOf()
  const buyer = privateKeyToAccount(keccak256(stringToHex('buyer')))
  const [provider, platform] = ['provider', 'platform'].map((seed) =>
    privateKeyToAccount(keccak256(stringToHex(seed))).address.toLowerCase(),
  ) as [Address, Address]
  const { usdc, splitterFactory: factory } = deployment
  await chain.mintUsdc([buyer.address], 50_000n)

  const shares = splitterShares(50_000n, 2_500n)
  const message = {
    from: buyer.address.toLowerCase() as Address,
    to: splitterAddress({ provider, platform, factory, ...shares }),
    value: 50_000n,
    validAfter: 0n,
    validBefore: (await client.getBlock()).timestamp + 3_600n,
    nonce: keccak256(stringToHex('nonce')),
  }
  const signature = await buyer.signTypedData({
    domain: eip712Domain(networks.localhost, usdc),
    types: transferWithAuthorizationTypes,
    primaryType: 'TransferWithAuthorization',
    message,
  })
  const { calldata } = encodeSettleAuthorizations(
    {
      token: usdc,
      feeRecipient: platform,
      batchId: keccak256(stringToHex('batch')),
      trigger: triggerCodes.submission,
      callGasLimit: 150_000n,
    },
    [{ ...message, signature }],
    { factory, gasLimit: 300_000n, splits: [encodeSplit({ provider, ...shares })] },
  )
  const wallet = createWalletClient({ account: devAccount(1), transport: http(chain.url) })
  const hash = await wallet.sendTransaction({ chain: null, to: deployment.batchSettlement, data: calldata })
  const { logs } = await client.waitForTransactionReceipt({ hash })

  const [settled] = parseEventLogs({ abi: batchSettlementAbi, eventName: 'BatchSettled', logs })
  expect(decodeOutcomes(settled?.args.outcomes as Hex)).toEqual([{ provider: 'settled', fee: 'not_tried' }])
  const moved = parseEventLogs({ abi: usdcAbi, eventName: 'Transfer', logs })
  expect(moved.map(({ args }) => [args.from.toLowerCase(), args.to.toLowerCase(), args.value])).toEqual([
    [message.from, message.to, 50_000n],
    [message.to, platform, 2_500n],
    [message.to, provider, 47_500n],
  ])
})
