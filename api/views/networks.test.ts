import { type Network, networkNames, networks } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { call } from '../../test/support/gateway.ts'
import { useGateway } from '../../test/support/useGateway.ts'

const gateway = useGateway()

const factsOf = ({ name, chainId, testnet, eip712, confirmations, blockTimeMs, explorerUrl }: Network) => ({
  network: name,
  chainId,
  testnet,
  eip712,
  confirmations,
  blockTimeMs,
  explorerUrl: explorerUrl ?? null,
})

test('default: lists the served networks first, then those that are announced for later', async () => {
  const { status, body } = await call<{ networks: unknown[] }>(gateway.app, 'GET', '/networks')
  const { base, polygon } = networks
  const later = networkNames.filter((name) => name !== 'localhost').toSorted()
  const [first, ...others] = body.networks as { network: string; status: string }[]
  expect([status, first]).toEqual([
    200,
    { ...factsOf(networks.localhost), asset: gateway.served.token, status: 'served' },
  ])
  expect(others.map(({ network }) => network).sort()).toEqual(later)
  expect(others).toEqual(
    expect.arrayContaining([
      { ...factsOf(base), asset: base.usdc, status: 'later' },
      { ...factsOf(polygon), asset: polygon.usdc, status: 'later' },
    ]),
  )
})
