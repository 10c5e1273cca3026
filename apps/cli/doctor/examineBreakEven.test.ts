import { exactPicoUsd } from '@tollkeeper/chain/priceAdvice'
import { gasCostOfPayment } from '@tollkeeper/chain/typicalGas'
import { expect, test } from 'vitest'
import { openShop } from '../../../test/support/gateway.ts'
import { useGateway } from '../../../test/support/useGateway.ts'
import { readUnitPrices } from '../costs/prices.ts'
import { examineBreakEven } from './examineBreakEven.ts'
import type { ExaminedNetwork } from './networks.ts'

const gateway = useGateway()

/** Examines the gateway's chain as if it used real money and its gas token had this price. */
function examine(ethUsd: string, change: Partial<ExaminedNetwork> = {}) {
  const { network, client, deployment } = gateway.served
  const examined = { network: { ...network, testnet: false }, client, deployment, rpcUrls: [], ...change }
  return examineBreakEven({ ETH_USD: ethUsd }, gateway.database, [examined])
}

/** Returns the gas cost of a payment that settles alone, at this price of a gas token. */
async function costOf(ethUsd: string) {
  const prices = await readUnitPrices(gateway.served, { ETH_USD: ethUsd })
  return { gas_usd: exactPicoUsd(gasCostOfPayment('two_signatures', 1, prices)) }
}

test('warns about the lowest price whose fee is less than the gas cost, and gives advice', async () => {
  expect(await examine('1000000000')).toMatchObject({ status: 'ok' })
  await openShop(gateway.app, '0.05')
  const { url } = await openShop(gateway.app, '0.01')
  expect(await examine('0.000001')).toMatchObject({
    status: 'ok',
    found: 'every fee covers the gas of its payment',
  })
  const warning = await examine('1000000000')
  expect(warning).toMatchObject({
    status: 'warn',
    found: expect.stringContaining(
      `${url}: At 0.01 USDC on localhost, the fee of 0.0005 USDC is less than the gas`,
    ),
    advice: expect.stringContaining('tabs'),
  })
})

test('warns about a price of 0.01 USDC even if the fee of a lower price covers the gas, because the fee percentage falls at 0.01 USDC', async () => {
  const { gas_usd: cost } = await costOf('1000')
  // A gas cost between the two fees: the fee for 0.0099 USDC is nearly twice the fee for 0.01 USDC.
  const between = String(Math.floor((1_000 * 0.0007) / Number(cost)))
  await openShop(gateway.app, '0.0099')
  expect(await examine(between)).toMatchObject({
    found: expect.stringContaining('At 0.01 USDC on localhost'),
  })
})

test('passes on test networks, and is skipped without a node', async () => {
  expect(await examine('1000000000', { network: gateway.served.network })).toMatchObject({ status: 'ok' })
  const { network } = gateway.served
  const real = { network: { ...network, testnet: false }, deployment: undefined, rpcUrls: [] }
  expect(await examineBreakEven({}, gateway.database, [real])).toMatchObject({
    status: 'skip',
    found: expect.stringContaining('a node of localhost'),
  })
})
