import { setTimeout as wait } from 'node:timers/promises'
import { setSuspended } from '@tollkeeper/ledger/registry/suspendProvider'
import { splitterFactoryAbi } from '@tollkeeper/sdk/protocol/abi/splitterFactory'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { refundNonce } from '@tollkeeper/sdk/protocol/refund'
import { encodeSplit, splitterShares } from '@tollkeeper/sdk/protocol/splitter'
import { splitPrice } from '@tollkeeper/sdk/protocol/tier'
import { type Address, createWalletClient, http, parseGwei } from 'viem'
import { devAccount } from '../../../apps/devstack/chain/accounts.ts'
import { randomHex, readBalance, sendDirectly, signAuthorization } from '../../support/usdc.ts'
import { signPayment } from '../../support/x402.ts'
import { type Adversary, again, pick, placeOf, post } from './act.ts'
import { honestWallet } from './wallets.ts'

// More strangers who try to use our gas without paying for it.

const inTime = (over: AbortSignal) => AbortSignal.any([over, AbortSignal.timeout(30_000)])

/** An honest contract wallet that buys for half a cent. The fee is less than the gas that its code may burn. */
const selfPayers: Adversary = async (scene, draw) => {
  const shop = await scene.shop('0.005')
  const { client } = await scene.buyer(honestWallet)
  return (over) => again({ scene, draw, over, everyMs: 4_000 }, () => client.request(shop.url))
}

/** A provider that pays itself, and refunds each payment three times as soon as it has settled. */
const refunders: Adversary = async (scene, draw) => {
  const { stack, gatewayUrl } = scene
  const shop = await scene.shop('0.015')
  const { account, client } = await scene.buyer()
  const own = account.address.toLowerCase() as Address
  const of = (path: string) => new URL(`/providers/${shop.providerId}${path}`, gatewayUrl)
  const ask = (path: string, body: object) =>
    fetch(of(path), {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${shop.apiKey}` },
      body: JSON.stringify(body),
    })
  await ask('/wallets', { network: stack.chain.network, address: own })
  const refund = async (paymentId: string, number: number) => {
    const payload = await signAuthorization(placeOf(scene), account, {
      from: own,
      to: own,
      value: parseUsdc('0.005'),
      validAfter: 0n,
      validBefore: BigInt(Math.floor(Date.now() / 1000) + 86_400),
      nonce: refundNonce(gatewayUrl, paymentId, number),
    })
    return ask(`/payments/${paymentId}/refunds`, { payload: encodePayload(payload) })
  }
  const bought: string[] = []
  return (over) =>
    again({ scene, draw, over, everyMs: 2_000 }, async () => {
      const { paymentId } = await client.request(shop.url)
      if (paymentId) bought.push(paymentId)
      // The gateway rejects the refund until the payment has settled, so the provider asks again.
      for (const id of bought.slice(-8)) for (const number of [1, 2, 3]) await refund(id, number)
    })
}

/** Buyers who move all their money away before their payments settle. */
const movers: Adversary = async (scene, draw) => {
  const shop = await scene.shop('0.05')
  return (over) =>
    again({ scene, draw, over, everyMs: 3_000 }, async () => {
      const { account, client } = await scene.buyer()
      const from = account.address.toLowerCase() as Address
      scene.liars.set(from, 'moves its money')
      for (let i = 0; i < 4; i++) await client.request(shop.url)
      await wait(draw() * 3_000, undefined, { signal: over }).catch(() => {})
      const value = await readBalance(scene.stack.rpc, scene.token, from)
      const window = { validAfter: 0n, validBefore: 2n ** 40n }
      const away = { from, to: randomHex(20), value, nonce: randomHex(32), ...window }
      await sendDirectly(scene.stack, await signAuthorization(placeOf(scene), account, away))
    })
}

/** A stranger who empties a splitter before our batches can. */
const emptiers: Adversary = async (scene, draw) => {
  const { stack } = scene
  const price = '0.05'
  const shop = await scene.shop(price)
  const { client } = await scene.buyer(undefined, { split: 'onchain' })
  const { feeAmount } = splitPrice(parseUsdc(price))
  const platform = stack.platformWallet.toLowerCase() as Address
  const terms = {
    provider: shop.address.toLowerCase() as Address,
    platform,
    ...splitterShares(parseUsdc(price), feeAmount),
  }
  const deployment = stack.chain.deployments[stack.chain.network]
  if (!deployment) throw new Error('nothing is deployed')
  const stranger = createWalletClient({ account: devAccount(16), transport: http(stack.chain.url) })
  return (over) =>
    Promise.all([
      again({ scene, draw, over, everyMs: 300 }, () => client.request(shop.url)),
      again({ scene, draw, over, everyMs: 500 }, () =>
        stranger.writeContract({
          address: deployment.splitterFactory,
          abi: splitterFactoryAbi,
          functionName: 'sweep',
          args: [scene.token, platform, [encodeSplit(terms)]],
          chain: null,
          gas: 400_000n,
          maxPriorityFeePerGas: parseGwei('5'),
        }),
      ),
    ])
}

/** A provider that the operator has suspended, and that continues with its key, with another key, and without a key. */
const suspended: Adversary = async (scene, draw) => {
  const { stack, database } = scene
  const [shop, other] = [await scene.shop('0.01'), await scene.shop('0.01')]
  const { account } = await scene.buyer()
  const payee = shop.address.toLowerCase() as Address
  scene.suspended.add(payee)
  if (!(await setSuspended(database, shop.providerId, new Date()))) throw new Error('not suspended')
  return (over) =>
    again({ scene, draw, over, everyMs: 2_000 }, async () => {
      const { url } = pick(draw, scene.keepers).service
      const key = pick(draw, [shop.apiKey, other.apiKey])
      const one = await signPayment(placeOf(scene), account, { payTo: payee, value: 100_000n })
      await post(url, '/settle', { key, body: one.body, signal: inTime(over) })
      const { providerAmount: value, feeAmount } = splitPrice(100_000n)
      const half = { ...one.authorization, value, nonce: randomHex(32) }
      const fee = { ...half, to: stack.platformWallet, value: feeAmount, nonce: randomHex(32) }
      const halves = await Promise.all(
        [half, fee].map((each) => signAuthorization(placeOf(scene), account, each)),
      )
      const body = { network: stack.chain.network, transfers: halves.map(encodePayload) }
      await post(url, '/submit', { body, signal: inTime(over) })
    })
}

export const spenders = { selfPayers, refunders, movers, emptiers, suspended }
