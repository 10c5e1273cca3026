import { findEvidence } from '@tollkeeper/chain/evidence'
import { findMined } from '@tollkeeper/chain/receipts'
import { openServedNetworks, type ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createLogger } from '@tollkeeper/runtime/log'
import { maxTimeoutSeconds } from '@tollkeeper/sdk/protocol/challenge'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { type Address, concatHex, createPublicClient, createTestClient, type Hex, http, padHex } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { afterEach, describe, expect, test } from 'vitest'
import type { Check } from '../../apps/cli/doctor/check.ts'
import { examineChain } from '../../apps/cli/doctor/examineChain.ts'
import { judgePlan } from '../../apps/cli/doctor/examinePlan.ts'
import { call, fetchChallenge, sign } from '../support/gateway.ts'
import {
  type LimitedNode,
  type Refusal,
  type RefusalOf,
  rangeLimit,
  startLimitedNode,
} from '../support/limitedNode.ts'
import { randomHex, sendDirectly, signAuthorization, validFor } from '../support/usdc.ts'
import { useGateway, useShop } from '../support/useGateway.ts'

// Some nodes refuse calls that other nodes answer. Here, such nodes stand in front of a real chain.

const gateway = useGateway()
const shop = useShop(gateway)
const testClient = () => createTestClient({ mode: 'hardhat', transport: http(gateway.chain.url) })

const nodes: LimitedNode[] = []
afterEach(() => Promise.all(nodes.splice(0).map((node) => node.close())))

/** Opens the chain through a node that refuses some calls. */
async function serveThrough(refusalOf: RefusalOf): Promise<{ served: ServedNetwork; node: LimitedNode }> {
  const node = await startLimitedNode(gateway.chain.url)
  nodes.push(node)
  const { network, deployment } = gateway.served
  const [served] = await openServedNetworks([{ network, deployment, rpcUrls: [node.url] }])
  if (served === undefined) throw new Error('the chain is not served')
  node.refuse(refusalOf)
  return { served, node }
}

describe('a contract wallet', () => {
  /** PUSH32 word, PUSH0, MSTORE, RETURN(0, 32) */
  const answering = (word: Hex): Hex =>
    concatHex(['0x7f', padHex(word, { dir: 'right', size: 32 }), '0x5f5260205ff3'])
  const wallets = {
    agrees: answering('0x1626ba7e'),
    refuses: answering('0xffffffff'),
    reverts: '0x5f5ffd',
  } as const

  /** Returns what `/verify` answers to a wallet's payment if the node refuses some calls, and what is logged. */
  async function verify(wallet: keyof typeof wallets, refusalOf: RefusalOf) {
    const signer = privateKeyToAccount(generatePrivateKey())
    const from = privateKeyToAccount(generatePrivateKey()).address.toLowerCase() as Address
    await testClient().setCode({ address: from, bytecode: wallets[wallet] })
    await gateway.chain.mintUsdc([from], 1_000_000n)
    const challenge = await fetchChallenge(gateway.app, shop)
    const signature: Hex = `0x${'5a'.repeat(65)}`
    const payloads = await Promise.all(
      ([0, 1] as const).map(async (half) => {
        const fields = { ...validFor(maxTimeoutSeconds), from, signature }
        return encodePayload(await sign(gateway.served, signer, challenge, half, fields))
      }),
    )
    const { served } = await serveThrough(refusalOf)
    const lines: string[] = []
    const log = createLogger('test', 'warn', { write: (line) => void lines.push(line) })
    const app = gateway.withOptions({ networks: [served], log })
    const json = { macaroon: challenge.macaroon, payloads, ...shop }
    const { status, body } = await call(app, 'POST', '/verify', { json })
    return { status, code: body.code, lines }
  }

  const isWithOverride = ({ method, params }: { method: string; params?: unknown[] }) =>
    method === 'eth_call' && params?.[2] !== undefined

  test.each<Refusal>([
    { code: -32602, message: 'too many arguments, want at most 2' },
    { code: -32602, message: 'Invalid params: expected 2 params, got 3' },
    { http: 400, code: -32600, message: 'state override is not supported' },
  ])('behavior: omits state overrides for a node that doesn’t support them: $message', async (refusal) => {
    const refusalOf: RefusalOf = (call) => (isWithOverride(call) ? refusal : undefined)
    expect(await verify('agrees', refusalOf)).toMatchObject({ status: 200 })
    for (const wallet of ['refuses', 'reverts'] as const) {
      expect(await verify(wallet, refusalOf)).toMatchObject({ status: 402, code: 'invalid_signature' })
    }
  })

  test.each<Refusal>([
    { code: -32603, message: 'internal error' },
    { code: -32000, message: 'missing trie node 5f3a' },
    { http: 429, code: -32005, message: 'rate limit exceeded' },
    { code: -32016, message: 'over rate limit' },
  ])(
    'error: returns 503 and logs the node’s error, instead of reporting that the wallet rejects the signature: $message',
    async (refusal) => {
      // Refuses only the last call, which asks the wallet's contract itself and sets a gas limit.
      const found = await verify('agrees', ({ method, params }) => {
        const { to, gas } = (params?.[0] ?? {}) as { to?: string; gas?: Hex }
        return method === 'eth_call' && to !== gateway.served.token && gas !== undefined ? refusal : undefined
      })
      expect(found).toMatchObject({ status: 503, code: 'dependency_unavailable' })
      expect(found.lines.join()).toContain(refusal.message)
    },
  )
})

/** Sends a payment straight to USDC as a stranger, and searches for it. */
async function sendAndSearch(refusalOf: RefusalOf, afterwards = 0) {
  const buyer = await gateway.buyer(1_000_000n)
  const to = privateKeyToAccount(generatePrivateKey()).address
  const { chain, served: direct } = gateway
  const authorization = await signAuthorization(direct, buyer, {
    from: buyer.address.toLowerCase() as Address,
    to,
    value: 5n,
    nonce: randomHex(32),
    ...validFor(3_600),
  })
  const { timestamp } = await direct.client.getBlock()
  const hash = await sendDirectly(gateway, authorization)
  await direct.client.waitForTransactionReceipt({ hash })
  if (afterwards > 0) await testClient().mine({ blocks: afterwards })
  const { served, node } = await serveThrough(refusalOf)
  const find = () =>
    findEvidence(served, [{ from: authorization.from, nonce: authorization.nonce, since: timestamp - 5n }])
  return { hash, find, node, served, chain }
}

describe('a payment that a stranger settled', () => {
  test.each<[blocks: number, refusal: Refusal]>([
    [
      10,
      { http: 400, code: -32600, message: 'eth_getLogs: up to a 10 block range is supported on this plan' },
    ],
    [5, { http: 413, code: -32615, message: 'eth_getLogs is limited to a 5 range' }],
    [5, { http: 429, code: -32005, message: 'block range limit exceeded' }],
    [1_000, { code: -32602, message: 'range 2000 exceeds limit of 1000' }],
  ])('behavior: finds the payment if a node answers for at most %i blocks', async (blocks, refusal) => {
    const { hash, find, node } = await sendAndSearch(rangeLimit(blocks, refusal), 60)
    expect(await find()).toMatchObject([{ txHash: hash, state: 'used', value: 5n }])
    // The first search has learned the node's limit, so the node refuses at most one call of the second search.
    const refused = node.calls.filter(({ isRefused }) => isRefused).length
    expect(await find()).toHaveLength(1)
    expect(node.calls.filter(({ isRefused }) => isRefused).length).toBeLessThanOrEqual(refused + 1)
  })

  test('behavior: finds the payment with the requested range once a node’s rate limit is over', async () => {
    let left = 3
    const limited: RefusalOf = ({ method }) =>
      method === 'eth_getLogs' && left-- > 0
        ? { http: 429, code: -32005, message: 'rate limited', headers: { 'retry-after': '0' } }
        : undefined
    const { hash, find, node } = await sendAndSearch(limited)
    expect(await find()).toMatchObject([{ txHash: hash }])
    const asked = node.calls.filter(({ method }) => method === 'eth_getLogs').map(({ params }) => params)
    expect(asked).toEqual(Array.from({ length: 4 }, () => asked[0]))
  })
})

describe('a receipt ahead of its block', () => {
  test.each<Refusal>([
    { code: -32000, message: 'header not found' },
    { code: -32001, message: 'block is not available yet' },
    { code: -32000, message: 'unknown block' },
  ])('behavior: treats the transaction as not mined yet if the node answers: $message', async (refusal) => {
    let isAhead = false
    const { hash, find, served } = await sendAndSearch(({ method, params }) =>
      isAhead && method.startsWith('eth_getBlockBy') && params?.[0] !== 'latest' ? refusal : undefined,
    )
    isAhead = true
    expect(await findMined(served.clients, [hash])).toBeNull()
    isAhead = false
    expect(await findMined(served.clients, [hash])).toMatchObject({ hash })
    expect(await find()).toHaveLength(1)
  })

  test('behavior: treats the transaction as not mined yet if the block is unknown to the node or missing in the receipt', async () => {
    const { hash, served: direct } = await sendAndSearch(() => undefined)
    const receipt = await direct.client.request({ method: 'eth_getTransactionReceipt', params: [hash] })
    for (const early of [receipt, { ...receipt, blockHash: null, blockNumber: null }]) {
      const node = await startLimitedNode(({ method }) =>
        method === 'eth_getTransactionReceipt' ? early : null,
      )
      nodes.push(node)
      const client = createPublicClient({ transport: http(node.url) })
      expect(await findMined([client], [hash])).toBeNull()
    }
  })
})

describe('doctor', () => {
  async function examine(refusalOf: RefusalOf) {
    await testClient().mine({ blocks: 600 })
    const { node, served } = await serveThrough(refusalOf)
    const { network, deployment } = served
    const checks: Check[] = []
    for await (const check of examineChain({ network, deployment, rpcUrls: [node.url] }, {}))
      checks.push(check)
    return checks[0]
  }

  test('default: names the range for which the node answered', async () => {
    const check = await examine(() => undefined)
    expect(check).toMatchObject({
      status: 'ok',
      found: expect.stringMatching(/eth_getLogs over at least \d{3,5} blocks$/),
    })
  })

  test('behavior: if the node’s plan allows few blocks per call, reports how many calls are needed', async () => {
    const refusal = { http: 400, code: -32600, message: 'up to a 10 block range is supported on this plan' }
    const check = await examine(rangeLimit(10, refusal))
    expect(check).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/eth_getLogs over 10 blocks$/),
    })
    expect(check?.advice).toMatch(
      /^to read one day of the chain, the indexer needs \d+ calls; .* needs \d+\. Choose a plan that allows 500 blocks/,
    )
  })

  test('behavior: reports how many simultaneous calls the node rejects', async () => {
    let calls = 0
    const check = await examine(({ method }) =>
      method === 'eth_blockNumber' && ++calls > 20 ? { code: -32005, message: 'limit exceeded' } : undefined,
    )
    expect(check).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/[1-9]\d* of 25 concurrent calls rejected/),
    })
  })

  test('args: computes the number of calls from the block time', () => {
    const plan = { blocks: 10n, isLimited: true, refusedCalls: 0, blockSeconds: 2 }
    expect(judgePlan(plan).advice).toMatch(/needs 4320 calls; .* an hour ago, the keeper needs 180\./)
    expect(judgePlan({ ...plan, blocks: 500n })).toEqual({
      found: 'eth_getLogs over 500 blocks',
      advice: null,
    })
  })
})
