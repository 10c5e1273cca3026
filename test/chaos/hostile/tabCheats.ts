import { setTimeout as wait } from 'node:timers/promises'
import { callGasLimit } from '@tollkeeper/chain/gas'
import { keccak256 } from '@tollkeeper/chain/keccak256'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { triggerCodes } from '@tollkeeper/sdk/protocol/batchSettlement'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { parseTabPayload, tabNonce } from '@tollkeeper/sdk/protocol/tab'
import { encodeSettleTabs } from '@tollkeeper/sdk/protocol/tabSettlement'
import { type Address, createWalletClient, type Hex, http } from 'viem'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { devAccount } from '../../../apps/devstack/chain/accounts.ts'
import { offerOf } from '../../support/attacks.ts'
import type { TestGateway } from '../../support/gateway.ts'
import { signTransfer } from '../../support/keeperStack.ts'
import type { Shop } from '../../support/shop.ts'
import { openTab } from '../../support/tabBuyer.ts'
import { randomHex, validFor } from '../../support/usdc.ts'
import { type Adversary, again, placeOf } from './act.ts'
import type { Market } from './scene.ts'

// Buyers on tabs who sign what our clients never sign: another payer's tab ID, a used nonce, lines that buy nothing,
// other terms.

/** Number of tabs whose IDs are presented by wallets without money at the same time. */
const sharedTabs = 4
/**
 * For each tab, the number of wallets without money, which send one request each. The wallet with money sends as many
 * requests at the same time.
 */
const atOnce = 6
/** Maximum number of lines of a state (docs/tabs.md). */
const maxLines = 128
/** Number of new payers who buy once. If the gateway lent each of them 32 times the price, they would use up the budget for new payers. */
const newcomersFirst = 110
const newcomersLater = 5

/** Opens a tab without a client at the scene's gateway. */
async function openAt(scene: Market, account: PrivateKeyAccount, shop: Shop) {
  const { stack, gatewayUrl } = scene
  const deployment = stack.chain.deployments[stack.chain.network]
  if (!deployment) throw new Error('nothing is deployed')
  const { rewardShare } = await challengeOf(scene, shop)
  const gateway = {
    app: { request: (path: string, init?: RequestInit) => fetch(new URL(path, gatewayUrl), init) },
    chain: stack.chain,
    served: { ...placeOf(scene), deployment, client: stack.rpc },
    settings: { issuer: gatewayUrl, platformWallet: stack.platformWallet, tabs: { rewardShare } },
  } as unknown as TestGateway
  const at = { providerId: shop.providerId, endpointId: shop.endpointIds[0] } as never
  const tab = openTab(gateway, account)
  return { ...tab, at, buy: (change?: Parameters<typeof tab.buy>[1]) => tab.buy(at, change) }
}

async function challengeOf({ gatewayUrl }: Market, shop: Shop): Promise<{ rewardShare: number }> {
  const response = await fetch(new URL('/challenge', gatewayUrl), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ providerId: shop.providerId, endpointId: shop.endpointIds[0] }),
  })
  const { tab } = (await response.json()) as { tab?: { rewardShare: number } }
  if (!tab) throw new Error('the gateway offers no tab')
  return tab
}

const emptyWallet = () => privateKeyToAccount(generatePrivateKey())

/**
 * Wallets without money that present the ID of a tab while its owner, a wallet with money, opens it. So some of their
 * requests wait for the credit step that the owner requested.
 */
const emptyTabs: Adversary = async (scene, draw) => {
  const shop = await scene.shop('0.03')
  const shareOne = async () => {
    const { account } = await scene.buyer()
    const rich = await openAt(scene, account, shop)
    const poor = await Promise.all(Array.from({ length: atOnce }, () => openAt(scene, emptyWallet(), shop)))
    const asked = await rich.challenge(rich.at)
    const bodies = []
    for (const one of poor) {
      bodies.push({ tab: one, body: await one.sign(one.at, { tabId: rich.tabId }, asked) })
      bodies.push({ tab: rich, body: await rich.sign(rich.at, {}, asked) })
    }
    const answers = await Promise.all(
      bodies.map(async ({ tab, body }) => ({ tab, status: (await tab.present(body)).status })),
    )
    const served = answers.filter(({ status }) => status === 200)
    const others = served.filter(({ tab }) => tab !== rich).length
    if (served.length > others) scene.acted.add('emptyTabs')
    if (others > 0) scene.won.push(`${others} empty wallets were served on another payer's tab`)
  }
  return (over) =>
    again({ scene, draw, over, everyMs: 4_000 }, () =>
      Promise.all(Array.from({ length: sharedTabs }, shareOne)),
    )
}

/** Buyers who open and close a tab with an ID that another payer has used, or whose nonce an ordinary payment has used. */
const poisonedTabs: Adversary = async (scene, draw) => {
  const shop = await scene.shop('0.05')
  /** Buys on a tab and closes it. Returns whether the purchase was served. */
  const buyThenClose = async (account: PrivateKeyAccount, tabId: string): Promise<boolean> => {
    const tab = await openAt(scene, account, shop)
    const answer = await tab.present(await tab.sign(tab.at, { tabId }))
    if (answer.status !== 200) return false
    const state = await tab.signState(0, { known: 0, tabId })
    await fetch(new URL(`/tabs/${tabId}/close`, scene.gatewayUrl), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ tab: state }),
    })
    return true
  }
  /** Makes an ordinary payment with the nonce of a tab that isn't open yet, and voids it. Returns whether it was accepted. */
  const spendNonce = async (account: PrivateKeyAccount, tabId: string): Promise<boolean> => {
    const { accepts } = await offerOf(shop.url)
    const [exact] = accepts
    if (exact?.scheme !== 'exact') throw new Error('the gateway offers no payment without a tab')
    const signed = await signTransfer(placeOf(scene), account, {
      to: exact.payTo as Address,
      value: BigInt(exact.amount),
      ...validFor(93_600),
      nonce: tabNonce(scene.gatewayUrl, tabId, keccak256),
    })
    const post = (path: string, body: object, key?: string) =>
      fetch(new URL(path, scene.gatewayUrl), {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...(key && { authorization: `Bearer ${key}` }) },
        body: JSON.stringify(body),
      })
    const { providerId, endpointIds, apiKey } = shop
    const asked = {
      providerId,
      endpointId: endpointIds[0],
      network: scene.stack.chain.network,
      x402Version: 1,
    }
    const answer = await post('/verify', { ...asked, payloads: [encodePayload(signed)] })
    const { paymentId } = (await answer.json()) as { paymentId?: string }
    if (paymentId) await post(`/payments/${paymentId}/void`, {}, apiKey)
    return paymentId !== undefined
  }
  return (over) =>
    again({ scene, draw, over, everyMs: 3_000 }, async () => {
      const [first, second] = [await scene.buyer(), await scene.buyer()]
      const tabId = `tab_${randomHex(16).slice(2)}`
      const [how, isPoisoned] =
        draw() < 0.5
          ? ['with the ID of another payer’s tab', await buyThenClose(first.account, tabId)]
          : ['with the nonce of a payment', await spendNonce(second.account, tabId)]
      if (!isPoisoned) throw new Error('the tab was not poisoned')
      scene.acted.add('poisonedTabs')
      if (await buyThenClose(second.account, tabId)) scene.won.push(`a tab was opened ${how}`)
    })
}

/** Buyers who settle their own tab with themselves as the platform. */
const ownPlatforms: Adversary = async (scene, draw) => {
  const { stack, token } = scene
  const shop = await scene.shop('0.2')
  const deployment = stack.chain.deployments[stack.chain.network]
  if (!deployment) throw new Error('nothing is deployed')
  const stranger = createWalletClient({ account: devAccount(13), transport: http(stack.chain.url) })
  return (over) =>
    again({ scene, draw, over, everyMs: 4_000 }, async () => {
      const { account } = await scene.buyer()
      const own = account.address.toLowerCase() as Address
      scene.liars.set(own, 'is the platform of its own tab')
      const tab = await openAt(scene, account, shop)
      const answer = await tab.buy()
      if (answer.status !== 200) throw new Error(`nothing was bought: ${answer.body.code}`)
      const signed = await tab.signState(0, { known: 0, terms: { platform: own } })
      const { payer, sequence, expiry, splits, amounts, signature } = parseTabPayload(signed)
      const { rewardShare } = await challengeOf(scene, shop)
      const { calldata } = encodeSettleTabs(
        {
          token,
          feeRecipient: own,
          rewardShare,
          batchId: randomHex(32),
          trigger: triggerCodes.submission,
          callGasLimit: callGasLimit(false),
        },
        [
          {
            payer,
            sequence,
            expiry,
            lines: splits.map((split, index) => ({ split, amount: amounts[index] as bigint })),
            signature,
            nonce: tabNonce(scene.gatewayUrl, tab.tabId, keccak256),
          },
        ],
      )
      const hash = await stranger.sendTransaction({
        to: deployment.tabSettlement,
        data: calldata as Hex,
        chain: null,
        gas: 500_000n,
      })
      const { status } = await stack.rpc.waitForTransactionReceipt({ hash })
      if (status !== 'success') throw new Error('the buyer’s tab was not settled')
      scene.acted.add('ownPlatforms')
      scene.ownTerms.add(answer.body.paymentId)
      await tab.close()
    })
}

/** Many new payers who each buy once, as honest ones do. None of them may find the budget for new payers used up. */
const newcomers: Adversary = async (scene, draw) => {
  const { stack } = scene
  const shop = await scene.shop('0.03')
  const buyOnce = async (count: number) => {
    const accounts = Array.from({ length: count }, emptyWallet)
    await stack.chain.mintUsdc(
      accounts.map(({ address }) => address),
      parseUsdc('2'),
    )
    const tabs = await Promise.all(accounts.map((account) => openAt(scene, account, shop)))
    const answers = await Promise.all(tabs.map((tab) => tab.buy()))
    if (draw() < 0.5) await Promise.all(tabs.map((tab) => tab.close()))
    if (answers.some(({ status }) => status === 200)) scene.acted.add('newcomers')
    const refused = answers.filter(({ body }) => body.code === 'tab_limit_exceeded').length
    if (refused > 0) scene.won.push(`${refused} new payers who wanted 0.03 USDC got no credit`)
  }
  let count = newcomersFirst
  return (over) =>
    again({ scene, draw, over, everyMs: 5_000 }, async () => {
      await buyOnce(count)
      count = newcomersLater
    })
}

/**
 * Buyers who sign states with the maximum number of lines. Only one line buys something; the others only cost gas in
 * the settlement.
 */
const longTabs: Adversary = async (scene, draw) => {
  const shop = await scene.shop('0.05')
  return (over) =>
    again({ scene, draw, over, everyMs: 4_000 }, async () => {
      const { account } = await scene.buyer()
      const tab = await openAt(scene, account, shop)
      for (let line = 1; line < maxLines; line++) {
        const split = encodeSplit({ provider: randomHex(20), providerShare: 19n, platformShare: 1n })
        tab.lines.push({ split, amount: 1n })
      }
      const { status } = await tab.buy()
      if (status < 500) scene.acted.add('longTabs')
      if (status === 200) scene.won.push(`a state with ${maxLines - 1} lines that buy nothing was served`)
      await wait(100, undefined, { signal: over }).catch(() => {})
    })
}

export const tabCheats = { emptyTabs, poisonedTabs, ownPlatforms, newcomers, longTabs }
