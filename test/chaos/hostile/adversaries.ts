import { setTimeout as wait } from 'node:timers/promises'
import { maxWebhooks } from '@tollkeeper/api/notifications/registry'
import { encodePayload, parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { splitPrice } from '@tollkeeper/sdk/protocol/tier'
import { type Address, createWalletClient, http, parseGwei } from 'viem'
import { devAccount } from '../../../apps/devstack/chain/accounts.ts'
import { cancelDirectly, randomHex, sendDirectly, signAuthorization, validFor } from '../../support/usdc.ts'
import { signPayment } from '../../support/x402.ts'
import { type Adversary, again, pick, placeOf, post } from './act.ts'
import { callers } from './callers.ts'
import { hooks } from './hooks.ts'
import { networkCheats } from './networkForgers.ts'
import { passCheats } from './passThieves.ts'
import { openReceiver, registerWebhook, signal } from './scene.ts'
import { spenders } from './spenders.ts'
import { tabbers } from './tabbers.ts'
import { tabCheats } from './tabCheats.ts'
import { type Lie, lyingWallets } from './wallets.ts'
import { writers } from './writers.ts'

/** Maximum duration of a fault in ms (a frozen host, expensive gas, a cut node), short enough that it occurs several times. */
const faultMs = 6_000
/** Maximum time in ms until work continues after connections fell silent (docs/postgres.md, "Limits of sessions"). */
const noticedMs = 15_000

/** Contract wallets that accept their signature in a simulation and reject it on chain. */
const liars: Adversary = async (scene, draw) => {
  const shop = await scene.shop('0.05')
  const fickle: Address[] = []
  const miner = createWalletClient({ account: devAccount(17), transport: http(scene.stack.chain.url) })
  return (over) =>
    Promise.all([
      again({ scene, draw, over, everyMs: 1_000 }, async () => {
        const lie = pick(draw, Object.keys(lyingWallets) as Lie[])
        const { account, client } = await scene.buyer(lyingWallets[lie])
        scene.liars.set(account.address.toLowerCase() as Address, lie)
        if (lie === 'storage') fickle.push(account.address)
        for (let i = 0; i < 3; i++) await client.request(shop.url).catch(() => {})
      }),
      again({ scene, draw, over, everyMs: 400 }, async () => {
        for (const to of fickle.slice(-5))
          await miner.sendTransaction({ to, chain: null, gas: 60_000n, maxPriorityFeePerGas: parseGwei('5') })
      }),
    ])
}

/** Buyers who are served, and then cancel one or both of their authorizations, or use the nonces for other transfers. */
const cancellers: Adversary = async (scene, draw) => {
  const { stack } = scene
  const served = { ...placeOf(scene), client: stack.rpc }
  const shop = await scene.shop('0.05')
  return (over) =>
    again({ scene, draw, over, everyMs: 2_500 }, async () => {
      const { account, client } = await scene.buyer()
      scene.liars.set(account.address.toLowerCase() as Address, 'cancels')
      const { payment } = await client.request(shop.url)
      const halves = pick(draw, [[0], [1], [0, 1]])
      for (const half of halves) {
        const signed = parsePayload(payment?.payloads[half] ?? '')
        if (draw() < 0.5) await cancelDirectly({ chain: stack.chain, served }, account, signed.nonce)
        else await sendDirectly(stack, await signAuthorization(served, account, { ...signed, value: 1n }))
      }
    })
}

/** A provider with the maximum number of webhooks, none of which answers, and purchases that trigger them. */
const tarpits: Adversary = async (scene, draw) => {
  const tarpit = await openReceiver(() => {}, { answers: false })
  const shop = await scene.shop('0.01')
  for (let i = 0; i < maxWebhooks; i++) await registerWebhook(scene, shop, `${tarpit.url}${i}`)
  const { client } = await scene.buyer()
  return async (over) => {
    await again({ scene, draw, over, everyMs: 1_000 }, () => client.request(shop.url))
    await tarpit.close()
  }
}

/** Strangers who submit hundreds of junk signatures, transfers of 0, and payments of half a cent every second. */
const submitters: Adversary = async (scene, draw) => {
  const { stack } = scene
  const at = placeOf(scene)
  const shop = await scene.shop('0.01')
  const { account } = await scene.buyer()
  const window = validFor(93_600)
  const transfer = (to: Address, value: bigint) =>
    signAuthorization(at, account, { from: account.address, to, value, nonce: randomHex(32), ...window })
  const submit = (over: AbortSignal, transfers: readonly string[], key?: string) =>
    post(pick(draw, scene.keepers).service.url, '/submit', {
      key,
      body: { network: stack.chain.network, transfers },
      signal: AbortSignal.any([over, AbortSignal.timeout(30_000)]),
    })
  const { providerAmount, feeAmount } = splitPrice(5_000n)
  return (over) =>
    again({ scene, draw, over, everyMs: 1_000 }, async () => {
      const kind = pick(draw, ['junk', 'nothing', 'keyless', 'keyless'] as const)
      if (kind === 'junk') {
        const one = await transfer(shop.address, 1n)
        const junk = Array.from({ length: 344 }, () => encodePayload({ ...one, nonce: randomHex(32) }))
        return submit(over, junk, shop.apiKey)
      }
      if (kind === 'nothing')
        return submit(over, [encodePayload(await transfer(shop.address, 0n))], shop.apiKey)
      const halves = [
        await transfer(shop.address, providerAmount),
        await transfer(stack.platformWallet, feeAmount),
      ]
      return submit(over, halves.map(encodePayload))
    })
}

/** A stranger with several API keys, which settles payments of one unit to itself and pays no fee. */
const freeriders: Adversary = async (scene, draw) => {
  const at = placeOf(scene)
  const keys = await Promise.all(Array.from({ length: 4 }, async () => (await scene.shop('0.01')).apiKey))
  const { account } = await scene.buyer()
  const settle = async (key: string, over: AbortSignal) => {
    const { body } = await signPayment(at, account, { payTo: account.address, value: 1n, validFor: 40 })
    const signal = AbortSignal.any([over, AbortSignal.timeout(30_000)])
    await post(pick(draw, scene.keepers).service.url, '/settle', { key, body, signal })
  }
  return (over) =>
    again({ scene, draw, over, everyMs: 1_000 }, () => Promise.all(keys.map((key) => settle(key, over))))
}

/** An honest buyer of expensive requests. The keeper settles each of them immediately, before other payments. */
const highValueBuyers: Adversary = async (scene, draw) => {
  const shop = await scene.shop('10')
  const { client } = await scene.buyer()
  return (over) => again({ scene, draw, over, everyMs: 2_000 }, () => client.request(shop.url))
}

/** Makes gas cost more than any keeper may offer, for a while. */
const gasSpikes: Adversary = async (scene, draw) => {
  const { chain } = scene
  const calm = async () => {
    await chain.setNextBlockBaseFeePerGas({ baseFeePerGas: 50_000n })
  }
  return async (over) => {
    await again({ scene, draw, over, everyMs: 3 * faultMs }, async () => {
      await wait(faultMs * draw(), undefined, { signal: over })
      const until = Date.now() + faultMs * (0.5 + draw() / 2)
      while (Date.now() < until && !over.aborted) {
        await chain.setNextBlockBaseFeePerGas({ baseFeePerGas: parseGwei('500') })
        await wait(200)
      }
      await calm()
    })
    await calm()
  }
}

/** Freezes a keeper's host at any instruction. The host continues later as if nothing had happened. */
const frozenHosts: Adversary = async (scene, draw) => {
  return (over) =>
    again({ scene, draw, over, everyMs: faultMs }, async () => {
      const { name, service } = pick(draw, scene.keepers)
      signal(service, 'SIGSTOP')
      scene.events.push(`${new Date().toISOString()} ${name} frozen`)
      await wait(faultMs, undefined, { signal: over }).catch(() => {})
      signal(service, 'SIGCONT')
    })
}

/** Makes all connections to the database fall silent at once, as in a failover without a TCP reset. New connections work. */
const silentDatabases: Adversary = async (scene, draw) => {
  const { hosts } = scene
  let silentAt = 0
  return async (over) => {
    await again({ scene, draw, over, everyMs: 2 * faultMs }, async () => {
      // End the previous connections now: in production, Postgres or PgBouncer would have noticed their loss by this
      // time. Otherwise this play would use up all sessions within ten minutes.
      for (const { postgres } of hosts) postgres.bury()
      const { name, postgres } = pick(draw, hosts)
      postgres.abandon()
      silentAt = Date.now()
      scene.events.push(`${new Date().toISOString()} the database connections of the ${name} are silent`)
    })
    await wait(silentAt + noticedMs - Date.now())
  }
}

/**
 * Breaks connections to Postgres one by one. Each break happens while another session starts, so a pool is replaced while its sessions are
 * starting.
 */
const cutSessions: Adversary = async (scene, draw) => {
  const { hosts } = scene
  return (over) =>
    again({ scene, draw, over, everyMs: faultMs / 2 }, async () => {
      const { name, postgres } = pick(draw, hosts)
      postgres.cutBesideStarts(1 + Math.floor(draw() * 8))
      scene.events.push(`sessions of the ${name} are cut`)
    })
}

/** Makes the network's first working RPC URL break off or hang, and come back. The next URL keeps answering. */
const faultyNodes: Adversary = async (scene, draw) => {
  const { firstNode } = scene
  return async (over) => {
    await again({ scene, draw, over, everyMs: faultMs / 2 }, async () => {
      if (draw() < 0.5) firstNode.cut()
      else firstNode.stall()
      await wait(faultMs * draw(), undefined, { signal: over }).catch(() => {})
      firstNode.mend()
    })
    firstNode.mend()
  }
}

export const adversaries = {
  ...spenders,
  ...callers,
  ...tabbers,
  ...tabCheats,
  ...passCheats,
  ...writers,
  ...hooks,
  ...networkCheats,
  liars,
  cancellers,
  tarpits,
  submitters,
  freeriders,
  highValueBuyers,
  gasSpikes,
  frozenHosts,
  silentDatabases,
  cutSessions,
  faultyNodes,
} satisfies Record<string, Adversary>

export type AdversaryName = keyof typeof adversaries
