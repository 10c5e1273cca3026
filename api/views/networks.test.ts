import { networks } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { call } from '../../test/support/gateway.ts'
import { useGateway } from '../../test/support/useGateway.ts'

const gateway = useGateway()

test('default: the served networks first, then those that are announced for later', async () => {
  const { status, body } = await call<{ networks: unknown[] }>(gateway.app, 'GET', '/networks')
  const { base, polygon } = networks
  const later = ['base', 'base-sepolia', 'ethereum', 'ethereum-sepolia', 'polygon', 'polygon-amoy'] as const
  const [first, ...others] = body.networks as { network: string; status: string }[]
  expect([status, first]).toEqual([
    200,
    { network: 'localhost', chainId: 31_337, testnet: true, asset: gateway.served.token, status: 'served' },
  ])
  expect(others.map(({ network }) => network).sort()).toEqual([...later])
  expect(others).toEqual(
    expect.arrayContaining([
      { network: 'base', chainId: 8453, testnet: false, asset: base.usdc, status: 'later' },
      { network: 'polygon', chainId: 137, testnet: false, asset: polygon.usdc, status: 'later' },
    ]),
  )
})
