import { setTimeout as wait } from 'node:timers/promises'
import { callGasLimit } from '@tollkeeper/chain/gas'
import { keccak256 } from '@tollkeeper/chain/keccak256'
import type { SavedTab } from '@tollkeeper/sdk/client/tabStore'
import { triggerCodes } from '@tollkeeper/sdk/protocol/batchSettlement'
import { parseTabPayload, tabNonce } from '@tollkeeper/sdk/protocol/tab'
import { encodeSettleTabs } from '@tollkeeper/sdk/protocol/tabSettlement'
import { type Address, createWalletClient, type Hex, http } from 'viem'
import { devAccount } from '../../../apps/devstack/chain/accounts.ts'
import {
  cancelDirectly,
  randomHex,
  readBalance,
  sendDirectly,
  signAuthorization,
} from '../../support/usdc.ts'
import { type Adversary, again, placeOf } from './act.ts'
import type { Buyer, Market } from './scene.ts'

// Buyers on tabs who don't intend to pay: each wallet buys a few times, and then makes its signature worthless.

/** Buys on a tab up to four times, or less often if the tab's credit is used up. */
async function buyOnTab({ client }: Buyer, url: string): Promise<void> {
  for (let i = 0; i < 4; i++) await client.request(url).catch(() => {})
}

async function moveAll(scene: Market, { account }: Buyer): Promise<void> {
  const from = account.address.toLowerCase() as Address
  const value = await readBalance(scene.stack.rpc, scene.token, from)
  const window = { validAfter: 0n, validBefore: 2n ** 40n }
  const away = { from, to: randomHex(20), value, nonce: randomHex(32), ...window }
  await sendDirectly(scene.stack, await signAuthorization(placeOf(scene), account, away))
}

/** Opens a buyer with tabs, and records how it will cheat. */
async function liar(
  scene: Market,
  lie: string,
  stores: NonNullable<Parameters<Market['buyer']>[1]>['stores'] = {},
) {
  const buyer = await scene.buyer(undefined, { tabs: true, stores })
  scene.liars.set(buyer.account.address.toLowerCase() as Address, lie)
  return buyer
}

/** Buyers who cancel their tab's nonce after they were served. */
const tabCancellers: Adversary = async (scene, draw) => {
  const { stack } = scene
  const shop = await scene.shop('0.05')
  const served = { ...placeOf(scene), client: stack.rpc }
  return (over) =>
    again({ scene, draw, over, everyMs: 3_000 }, async () => {
      const buyer = await liar(scene, 'cancels its tab')
      await buyOnTab(buyer, shop.url)
      for (const { id, gateway } of await buyer.client.tabs())
        await cancelDirectly({ chain: stack.chain, served }, buyer.account, tabNonce(gateway, id, keccak256))
    })
}

/** Buyers who move all their money away, before or after their tab is closed. */
const tabMovers: Adversary = async (scene, draw) => {
  const shop = await scene.shop('0.05')
  return (over) =>
    again({ scene, draw, over, everyMs: 3_000 }, async () => {
      const buyer = await liar(scene, 'moves the money of its tab')
      await buyOnTab(buyer, shop.url)
      if (draw() < 0.5) await buyer.client.close()
      await wait(draw() * 1_000, undefined, { signal: over }).catch(() => {})
      await moveAll(scene, buyer)
    })
}

/** Buyers with many wallets. Each wallet settles the minimum amount, and then uses up the credit that this settlement earns. */
const tabFarmers: Adversary = async (scene, draw) => {
  const [own, shop] = [await scene.shop('0.005'), await scene.shop('0.2')]
  return (over) =>
    again({ scene, draw, over, everyMs: 3_000 }, async () => {
      const buyer = await liar(scene, 'farms')
      await buyer.client.request(own.url)
      await buyer.client.close()
      await wait(4_000, undefined, { signal: over }).catch(() => {})
      await buyOnTab(buyer, shop.url)
      await moveAll(scene, buyer)
    })
}

/** Buyers who let a stranger settle the first state of their tab on chain, which makes the newest state worthless. */
const oldStates: Adversary = async (scene, draw) => {
  const { stack, token } = scene
  const shop = await scene.shop('0.05')
  const deployment = stack.chain.deployments[stack.chain.network]
  if (!deployment) throw new Error('nothing is deployed')
  const stranger = createWalletClient({ account: devAccount(14), transport: http(stack.chain.url) })
  return (over) =>
    again({ scene, draw, over, everyMs: 3_000 }, async () => {
      const kept: SavedTab[] = []
      const store = {
        load: async () => [],
        save: async (tab: SavedTab) => void kept.push(tab),
        remove: async () => {},
      }
      const buyer = await liar(scene, 'settles an old state of its tab', { tabs: store })
      const { payment } = await buyer.client.request(shop.url)
      await buyOnTab(buyer, shop.url)
      const [saved] = kept
      if (!payment?.tab || !saved) throw new Error('nothing was put on a tab')
      if (draw() < 0.5) await buyer.client.close()
      const { tabId, payer, sequence, expiry, splits, amounts, signature } = parseTabPayload(payment.tab)
      const lines = splits.map((split, index) => ({ split, amount: amounts[index] as bigint }))
      const { calldata } = encodeSettleTabs(
        {
          token,
          feeRecipient: saved.platform,
          rewardShare: saved.rewardShare,
          batchId: randomHex(32),
          trigger: triggerCodes.submission,
          callGasLimit: callGasLimit(false),
        },
        [{ payer, sequence, expiry, lines, signature, nonce: tabNonce(saved.issuer, tabId, keccak256) }],
      )
      const hash = await stranger.sendTransaction({
        to: deployment.tabSettlement,
        data: calldata as Hex,
        chain: null,
        gas: 500_000n,
      })
      // A keeper may have settled the newest state first.
      const { status } = await stack.rpc.waitForTransactionReceipt({ hash })
      if (status === 'success') scene.acted.add('oldStates')
    })
}

export const tabbers = { tabCancellers, tabMovers, tabFarmers, oldStates }
