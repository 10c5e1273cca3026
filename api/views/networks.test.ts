import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { call } from '../../test/support/gateway.ts'
import { useGateway } from '../../test/support/useGateway.ts'

const gateway = useGateway()
const eip712 = { name: 'USD Coin', version: '2' }

test('default: lists the served networks first, then those that are announced for later', async () => {
  const { status, body } = await call<{ networks: unknown[] }>(gateway.app, 'GET', '/networks')
  const later = networkNames.filter((name) => name !== 'localhost').toSorted()
  const [first, ...others] = body.networks as { network: string; status: string }[]
  expect([status, first]).toEqual([
    200,
    {
      network: 'localhost',
      chainId: 31337,
      testnet: true,
      asset: gateway.served.token,
      eip712,
      confirmations: 1,
      blockTimeMs: 2_000,
      explorerUrl: null,
      status: 'served',
    },
  ])
  expect(others.map(({ network }) => network).sort()).toEqual(later)
  expect(others).toEqual(
    expect.arrayContaining([
      {
        network: 'base',
        chainId: 8453,
        testnet: false,
        asset: '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913',
        eip712,
        confirmations: 10,
        blockTimeMs: 2_000,
        explorerUrl: 'https://basescan.org',
        status: 'later',
      },
      {
        network: 'polygon',
        chainId: 137,
        testnet: false,
        asset: '0x3c499c542cef5e3811e1192ce70d8cc03d5c3359',
        eip712,
        confirmations: 32,
        blockTimeMs: 2_000,
        explorerUrl: 'https://polygonscan.com',
        status: 'later',
      },
    ]),
  )
})
