import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { json } from 'node:stream/consumers'
import { setTimeout as wait } from 'node:timers/promises'
import { loopback } from '@tollkeeper/runtime/port'
import { networkVariable } from '@tollkeeper/runtime/variables'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import type { Payer } from '@tollkeeper/sdk/client/payer'
import { challengeMediaType } from '@tollkeeper/sdk/protocol/challenge'
import type { NetworkDefinition } from '@tollkeeper/sdk/protocol/networkDefinition'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { encodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import type { Address } from 'viem'
import { devPrivateKey } from '../../../apps/devstack/chain/accounts.ts'
import { killAll, runCommand } from '../../support/processes.ts'
import { type Adversary, again, pick } from './act.ts'
import type { Scene } from './scene.ts'

// Operators who start a process on the shared database with a network file from a stranger, and sellers whose 402 names
// a network or token that the buyer's network definition doesn't have. No process may start, nothing may be written,
// and nothing may be signed.

/** Address of a contract that imitates USDC. */
const fakeUsdc: Address = '0x000000000000000000000000000000000000fa4e'
/** The chain ID that a stranger's node reports for the scene's chain. */
const claimedChainId = 7_654_321
/** Maximum time in ms until a start is refused, on a busy machine. */
const startMs = 60_000

type Forgery = {
  name: string
  changes: Partial<NetworkDefinition>
  /** The token in `DEPLOYMENTS_FILE`. Default: the token in the network file. */
  deployed?: Address
  /** Whether the node is honest and reports the chain's true ID. */
  isHonestNode?: true
  message: RegExp
}

const forgeriesOf = ({ token }: Scene): Forgery[] => [
  {
    name: 'forged-usdc',
    changes: { usdc: fakeUsdc },
    message: new RegExp(`forged-usdc: .*USDC at ${fakeUsdc}.*NETWORKS_FILE`),
  },
  {
    name: 'forged-domain',
    changes: { eip712: { name: 'Fake USD', version: '2' } },
    message:
      /forged-domain: name\(\) of USDC at \S+ should be Fake USD, but on the chain it is .*NETWORKS_FILE/,
  },
  {
    name: 'forged-chain',
    changes: {},
    isHonestNode: true,
    message: /forged-chain: chain id should be 7654321, but on the chain it is \d+; check .*NETWORKS_FILE/,
  },
  {
    name: 'forged-base',
    changes: { chainId: 8453 },
    message: /forged-base\.chainId must be one that no other network has\. 8453 is taken by base/,
  },
  {
    name: 'base',
    changes: { chainId: 8453, usdc: fakeUsdc },
    message: /base\.name must be one that no other network has\. "base" is taken by base .*can't be replaced/,
  },
  {
    name: 'forged-deployment',
    changes: { usdc: fakeUsdc },
    deployed: token,
    message: /DEPLOYMENTS_FILE: expected forged-deployment with the USDC of NETWORKS_FILE/,
  },
]

async function listen(listener: RequestListener) {
  const server = createServer(listener)
  server.listen(0, loopback)
  await once(server, 'listening')
  return {
    url: `http://${loopback}:${(server.address() as AddressInfo).port}`,
    close() {
      server.closeAllConnections()
      server.close()
    },
  }
}

/** Opens a node of the scene's chain that reports a wrong chain ID. */
const openLyingNode = ({ stack }: Scene) =>
  listen(async (request, response) => {
    const asked = await json(request)
    const answer = async (call: unknown) => {
      const { id, method } = call as { id: number; method: string }
      if (method === 'eth_chainId') return { jsonrpc: '2.0', id, result: `0x${claimedChainId.toString(16)}` }
      const forwarded = await fetch(stack.chain.url, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(call),
      })
      return forwarded.json()
    }
    const answers = Array.isArray(asked) ? Promise.all(asked.map(answer)) : answer(asked)
    answers.then(
      (body) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body)),
      () => response.destroy(),
    )
  })

/** Starts gateways and keepers on the shared database with a lying network file, one at a time. */
const networkForgers: Adversary = async (scene, draw) => {
  const { stack, chain, database, token } = scene
  const folder = await mkdtemp(join(tmpdir(), 'hostile-networks-'))
  const lyingNode = await openLyingNode(scene)
  const code = await chain.getCode({ address: token })
  await chain.setCode({ address: fakeUsdc, bytecode: code ?? '0x' })
  const forgeries = forgeriesOf(scene)
  const { eip712 } = networkByName(stack.chain.network)
  const readNetworks = () => database`select chain_id, name, is_testnet from network order by chain_id`
  const tried = new Set<Forgery>()

  const start = async (program: 'api' | 'keeper', forgery: Forgery) => {
    const { name, changes, deployed, isHonestNode, message } = forgery
    const definition: NetworkDefinition = {
      chainId: claimedChainId,
      usdc: token,
      eip712,
      testnet: true,
      confirmations: 2,
      blockTimeMs: 500,
      ...changes,
    }
    const [networksFile, deploymentsFile, receiptKeyFile] = ['networks', 'deployments', 'receipt-key'].map(
      (file) => join(folder, `${file}.json`),
    ) as [string, string, string]
    const deployment = { ...stack.chain.deployments[stack.chain.network], usdc: deployed ?? definition.usdc }
    await writeFile(networksFile, JSON.stringify({ [name]: definition }))
    await writeFile(deploymentsFile, JSON.stringify({ [name]: deployment }))
    const before = JSON.stringify(await readNetworks())
    const command = runCommand([process.execPath, `${program}/main.ts`], {
      ...stack.env,
      NETWORKS: name,
      NETWORKS_FILE: networksFile,
      DEPLOYMENTS_FILE: deploymentsFile,
      [networkVariable('RPC_URL', name)]: isHonestNode ? stack.chain.url : lyingNode.url,
      MACAROON_SECRETS: `a:${'1'.repeat(64)}`,
      RECEIPT_KEY_FILE: receiptKeyFile,
      API_PORT: '0',
      KEEPER_PRIVATE_KEYS: devPrivateKey(16),
      KEEPER_PORT: '0',
    })
    const timer = new AbortController()
    const tooLong = wait(startMs, `no end after ${startMs} ms`, { signal: timer.signal }).catch(() => '')
    const ending = await Promise.race([command.exited, tooLong])
    timer.abort()
    await killAll(command)
    const what = `${program} with the file of ${name}`
    if (ending !== 1) scene.won.push(`${what} was not refused: ${ending}`)
    else if (!message.test(command.output()))
      scene.won.push(`${what} was refused for another reason: ${command.output().slice(-400)}`)
    const after = JSON.stringify(await readNetworks())
    if (after !== before) scene.won.push(`${what} wrote networks into the database: ${after}`)
    if (existsSync(receiptKeyFile)) scene.won.push(`${what} created a receipt key`)
    tried.add(forgery)
  }

  return async (over) => {
    await again({ scene, draw, over, everyMs: 2_000 }, async () => {
      const left = forgeries.filter((forgery) => !tried.has(forgery))
      await start(pick(draw, ['api', 'keeper'] as const), pick(draw, left.length > 0 ? left : forgeries))
      if (tried.size === forgeries.length) scene.acted.add('networkForgers')
    })
    lyingNode.close()
    await rm(folder, { recursive: true, force: true })
  }
}

type Offer = Record<string, unknown> & { extra: object }
const otherDomain = { name: 'Fake USD', version: '1' }

/** Changes that make a 402 misleading. Each key says what the changed 402 names. */
const misleads: Record<string, (offer: Offer) => Offer> = {
  'a fake USDC': (offer) => ({ ...offer, asset: fakeUsdc }),
  'another domain': (offer) => ({ ...offer, extra: { ...offer.extra, ...otherDomain } }),
  'a chain with real money': (offer) => ({
    ...offer,
    network: String(offer.network).startsWith('eip155:') ? 'eip155:8453' : 'base',
  }),
  'a chain that the buyer doesn’t know': (offer) => ({
    ...offer,
    network: String(offer.network).startsWith('eip155:') ? `eip155:${claimedChainId}` : 'forged-chain',
  }),
}

/** A seller whose 402 names another network or token than the buyer's network definition, in our format or in x402's. */
const misleadingSellers: Adversary = async (scene, draw) => {
  const { stack, token, gatewayUrl } = scene
  const { name: network, caip2, eip712 } = networkByName(stack.chain.network)
  const shop = await scene.shop('0.01')
  const { account } = await scene.buyer()
  /** Name and version of the domain of each signature. */
  const signed: string[] = []
  const payer: Payer = {
    address: account.address,
    signTypedData: (data) => {
      signed.push(`${data.domain?.name} ${data.domain?.version}`)
      return account.signTypedData(data)
    },
  }
  let mislead = (offer: Offer): Offer => offer
  const seller = await listen(async (request, response) => {
    const headers = { 'content-type': challengeMediaType }
    if (request.url?.startsWith('/x402')) {
      const offer = mislead({
        scheme: 'exact',
        network: caip2,
        asset: token,
        amount: '10000',
        payTo: shop.address,
        maxTimeoutSeconds: 60,
        extra: eip712,
      })
      const required = { x402Version: 2, resource: { url: `${seller.url}${request.url}` }, accepts: [offer] }
      return response.writeHead(402, { 'payment-required': encodePaymentHeader(required) }).end('{}')
    }
    const asked = await fetch(shop.url, { headers: { accept: challengeMediaType } }).catch(() => undefined)
    const text = (await asked?.text())?.replaceAll(new URL(shop.url).origin, seller.url)
    if (asked?.status !== 402 || text === undefined) return response.writeHead(503).end()
    const challenge = JSON.parse(text) as { accepts: Offer[] }
    const accepts = challenge.accepts.map(mislead)
    return response.writeHead(402, headers).end(JSON.stringify({ ...challenge, accepts }))
  })
  const client = createClient({
    gatewayUrl,
    network,
    account: payer,
    usdcAddress: token,
    otherSellers: true,
    tabs: false,
    limits: { perPayment: '20' },
    timeout: 20_000,
  })
  let requests = 0
  const buy = async (form: string) => {
    signed.length = 0
    // Each URL is a new purchase, so that no request presents the payment of the previous request again.
    const bought = client.request(`${seller.url}/${form}/${requests++}`)
    return bought.then(
      () => 'served',
      (error: { code?: unknown }) => String(error.code),
    )
  }
  // If the buyer never signed anything, the test would prove nothing. So check first that the buyer signs for an
  // honest 402.
  for (const form of ['challenge', 'x402']) {
    const code = await buy(form)
    if (signed.length === 0) throw new Error(`the buyer doesn't sign for an honest ${form}: ${code}`)
  }
  const tried = new Set<string>()
  return async (over) => {
    await again({ scene, draw, over, everyMs: 1_000 }, async () => {
      for (const [what, change] of Object.entries(misleads)) {
        const form = pick(draw, ['challenge', 'x402'])
        mislead = change
        const code = await buy(form)
        // An x402 seller may name any domain: the client ignores it, and signs with the domain of the token it is
        // configured with.
        const isOwn = (domain: string) =>
          form === 'x402' && what === 'another domain' && domain === `${eip712.name} ${eip712.version}`
        if (!signed.every(isOwn)) scene.won.push(`a buyer signed for ${what} in a 402 of format ${form}`)
        if (code === 'challenge_refused') tried.add(what)
      }
      if (tried.size === Object.keys(misleads).length) scene.acted.add('misleadingSellers')
    })
    seller.close()
  }
}

export const networkCheats = { networkForgers, misleadingSellers }
