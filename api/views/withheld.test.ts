import { keccak256 } from '@tollkeeper/chain/keccak256'
import { splitterAddress } from '@tollkeeper/sdk/protocol/splitter'
import type { Address } from 'viem'
import { expect, test } from 'vitest'
import { call, openShop, type Shop } from '../../test/support/gateway.ts'
import { randomHex, setBlacklisted } from '../../test/support/usdc.ts'
import { useGateway } from '../../test/support/useGateway.ts'

// The wallets are blacklisted by Circle's own contract, as it is on Base.

const gateway = useGateway()

/** Seeds a splitter of a shop's wallet as the ledger stores it after a payment to the splitter, and puts money into it. */
async function fillSplitter(shop: Shop, platformShare: bigint, amount: bigint): Promise<Address> {
  const { network, token, deployment } = gateway.served
  const shares = { providerShare: 10_000n - platformShare, platformShare }
  const terms = { provider: shop.wallet, platform: gateway.settings.platformWallet, ...shares }
  const address = splitterAddress({ ...terms, factory: deployment.splitterFactory }, keccak256)
  await gateway.database`
    insert into splitter (chain_id, token, address, provider, platform, provider_share, platform_share)
    values (${network.chainId}, ${token}, ${address}, ${terms.provider}, ${terms.platform}, ${shares.providerShare},
      ${platformShare})`
  if (amount > 0n) await gateway.chain.mintUsdc([address], amount)
  return address
}

async function withheldOf(shop: Shop) {
  const path = `/providers/${shop.providerId}/queue`
  const { status, body } = await call<{ wallets: { withheld: unknown }[] }>(gateway.app, 'GET', path, {
    key: shop.key,
  })
  expect(status).toBe(200)
  return body.wallets.map(({ withheld }) => withheld)
}

/** Moves the clock, because an answer is cached for a minute. */
const minutesLater = (minutes: number) => gateway.setNow(Date.now() + minutes * 61_000)

test('default: shows what is withheld from a blacklisted wallet, in which splitters and why, until it can be paid again', async () => {
  const shop = await openShop(gateway.app)
  // A splitter rounds the platform's part down: of 1,001 units at 5%, 50 are the platform's.
  const splitter = await fillSplitter(shop, 500n, 1_001n)
  await fillSplitter(shop, 200n, 0n)
  expect(await withheldOf(shop)).toEqual([null])

  await setBlacklisted(gateway.chain, shop.wallet, true)
  minutesLater(1)
  const one = { splitter, waiting_usdc: '0.000951' }
  expect(await withheldOf(shop)).toEqual([
    { reason: 'payee_blacklisted', waiting_usdc: '0.000951', splitters: [one] },
  ])

  // If TabSettlement can't pay a wallet, it pays the splitter that pays only this wallet.
  const factory = gateway.served.deployment.splitterFactory
  const own = { provider: shop.wallet, platform: shop.wallet, providerShare: 1n, platformShare: 0n }
  const refuge = splitterAddress({ ...own, factory }, keccak256)
  await gateway.chain.mintUsdc([refuge], 2_000_000n)
  const other = { splitter: refuge, waiting_usdc: '2.000000' }
  minutesLater(2)
  expect(await withheldOf(shop)).toEqual([
    { reason: 'payee_blacklisted', waiting_usdc: '2.000951', splitters: [one, other] },
  ])

  await setBlacklisted(gateway.chain, shop.wallet, false)
  minutesLater(3)
  expect(await withheldOf(shop)).toEqual([null])
})

test('behavior: a blacklisted wallet with nothing withheld is listed as well', async () => {
  const shop = await openShop(gateway.app)
  await setBlacklisted(gateway.chain, shop.wallet, true)
  // Another provider's splitter must not be shown.
  await fillSplitter({ ...shop, wallet: randomHex(20) }, 500n, 1_000n)
  minutesLater(1)
  expect(await withheldOf(shop)).toEqual([
    { reason: 'payee_blacklisted', waiting_usdc: '0.000000', splitters: [] },
  ])
})
