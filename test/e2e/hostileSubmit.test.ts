import type { KeeperOptions } from '@tollkeeper/keeper/keeper'
import { findKeyOwner } from '@tollkeeper/ledger/registry/apiKeys'
import { setSuspended } from '@tollkeeper/ledger/registry/suspendProvider'
import { encodePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { concatHex, type Hex, padHex } from 'viem'
import { describe, expect, test } from 'vitest'
import { mineUntil, testClient, useChaosRpc, whileRunning } from '../support/keeperScenes.ts'
import { signTransfer, useKeeperStack } from '../support/keeperStack.ts'
import { countTransactions, type Pair, signPair } from '../support/submit.ts'
import { until } from '../support/until.ts'
import { randomHex } from '../support/usdc.ts'

// Strangers who use POST /submit to waste the keeper's gas or its node's time.

const stack = useKeeperStack()
/** The chain behind a proxy that counts the calls. */
const counted = useChaosRpc(stack)

type Answer = { status: number; code: unknown; body: Record<string, unknown> }

// The middle of a minute, so that no minute ends while its requests are counted.
const minute = 30_000 + 60_000 * Math.floor(Date.now() / 60_000)

/**
 * Opens a keeper. All keepers share the counts of requests per minute. With `minutes`, the keeper's clock stands still in the middle of the
 * minute that is this many minutes from now.
 */
function open(overrides: Partial<KeeperOptions> = {}, minutes = 0) {
  const keeper = stack.keeper({
    networks: [counted.served],
    trustedProxies: 1,
    now: () => new Date(minutes === 0 ? Date.now() : minute + minutes * 60_000),
    submitLimits: { perCaller: 1_000 },
    ...overrides,
  })
  const submit = async (
    transfers: SignedAuthorization[],
    { apiKey, from = '192.0.2.1' }: { apiKey?: string; from?: string } = {},
  ): Promise<Answer> => {
    const response = await keeper.app.request('/submit', {
      method: 'POST',
      headers: { 'x-forwarded-for': from, ...(apiKey && { authorization: `Bearer ${apiKey}` }) },
      body: JSON.stringify({ network: 'localhost', transfers: transfers.map(encodePayload) }),
    })
    const body = (await response.json()) as Record<string, unknown>
    return { status: response.status, code: body.code, body }
  }
  return { keeper, submit }
}

async function countSubmissions(): Promise<number> {
  const [row] = await stack.database<[{ count: number }]>`
    select count(*)::int as count from payment where source = 'submission'`
  return row.count
}

describe('limits that apply even with an API key', () => {
  test('error: rejects zero-value transfers, and transfers whose fee doesn’t cover their gas if no allowance is left', async () => {
    const { submit } = open({ settings: { ...stack.settings, gasAllowance: 0n } })
    const before = await countSubmissions()
    const buyer = await stack.buyer()
    const window = { validAfter: 0n, validBefore: 2n ** 39n }
    const nothing = await Promise.all(
      Array.from({ length: 250 }, () =>
        signTransfer(stack.served, buyer, { to: stack.payee, value: 0n, ...window, nonce: randomHex(32) }),
      ),
    )
    const [provider] = await signPair(stack, buyer)
    const { apiKey, grantedKey } = stack
    expect((await submit(nothing, { apiKey })).code).toBe('amount_too_low')
    expect((await submit(nothing, { apiKey: grantedKey })).code).toBe('amount_too_low')
    expect((await submit([provider], { apiKey })).code).toBe('gas_not_covered')
    expect((await submit([provider])).code).toBe('gas_not_covered')
    expect(await countSubmissions()).toBe(before)
  })

  test('default: without a key, settles a payment to any recipient if its fee covers the gas', async () => {
    const { keeper, submit } = open({ settings: { ...stack.settings, gasPerFee: 10n, gasAllowance: 0n } })
    const pair = await signPair(stack, await stack.buyer(), { to: randomHex(20) })
    await whileRunning(keeper, async () => {
      expect((await submit(pair)).status).toBe(200)
      await until('it is paid', async () => (await stack.balanceOf(pair[0].to)) === pair[0].value)
    })
  })

  test('default: with the operator’s grant, settles a single authorization to any recipient', async () => {
    const { keeper, submit } = open()
    const [half] = await signPair(stack, await stack.buyer(), { to: randomHex(20) })
    await whileRunning(keeper, async () => {
      expect((await submit([half], { apiKey: stack.grantedKey })).status).toBe(200)
      await until('it is paid', async () => (await stack.balanceOf(half.to)) === half.value)
    })
  })

  test('error: rejects new payments that use a suspended provider’s key or pay its wallet, and settles payments that were accepted before the suspension', async () => {
    const { keeper, submit } = open()
    const { apiKey, database } = stack
    const providerId = (await findKeyOwner(database, apiKey)) ?? ''
    const accepted = await stack.queue({ buyer: await stack.buyer(), price: 50_000n })
    const [own, foreign] = [
      await signPair(stack, await stack.buyer()),
      await signPair(stack, await stack.buyer(), { to: randomHex(20) }),
    ]
    const before = await countSubmissions()
    expect(await setSuspended(database, providerId, new Date())).toBe(true)
    expect((await submit(foreign, { apiKey })).code).toBe('provider_disabled')
    const refused = { status: 409, code: 'provider_disabled', body: { transfer: 0 } }
    expect(await submit(own)).toMatchObject(refused)
    expect(await countSubmissions()).toBe(before)
    await whileRunning(keeper, async () => {
      expect((await submit([accepted.provider, accepted.fee])).status).toBe(200)
      expect((await submit(foreign)).status).toBe(200)
      expect(await setSuspended(database, providerId, null)).toBe(true)
      expect((await submit(own, { apiKey })).status).toBe(200)
    })
  })

  test('error: limits the requests from one address, even with a key, and the requests with one key across all addresses', async () => {
    const { submit } = open({ submitLimits: { perCaller: 2 } }, 10)
    const pair = await signPair(stack, await stack.buyer(), { value: 0n })
    const { apiKey } = stack
    expect((await submit(pair)).status).toBe(402)
    expect((await submit(pair, { apiKey })).status).toBe(402)
    expect((await submit(pair, { apiKey })).status).toBe(429)
    expect((await submit(pair)).status).toBe(429)
    expect((await submit(pair, { apiKey: 'wrong', from: '192.0.2.2' })).status).toBe(401)
    expect((await submit(pair, { apiKey, from: '192.0.2.3' })).status).toBe(402)
    expect((await submit(pair, { apiKey, from: '192.0.2.4' })).status).toBe(429)
    expect((await submit(pair, { from: '192.0.2.4' })).status).toBe(402)
  })
})

describe('junk', () => {
  const sign = async (count: number): Promise<Pair[]> => {
    const buyers = await stack.buyers(count, 0n)
    return Promise.all(buyers.map((buyer) => signPair(stack, buyer)))
  }

  test('error: rejects 70 submissions of 344 invalid signatures without calling the node', async () => {
    const { submit } = open()
    const pairs = (await sign(172)).flat()
    const junk = pairs.map((one) => ({ ...one, signature: `0x${'11'.repeat(64)}1b` as Hex }))
    const asked = counted.rpc.calls.length
    for (let i = 0; i < 70; i++) expect((await submit(junk)).code).toBe('invalid_signature')
    // One signature is forged, and the others are valid.
    const [first] = pairs
    if (!first) throw new Error('no pair')
    const forged = pairs.map((one, index) => (index === 343 ? { ...one, signature: first.signature } : one))
    expect((await submit(forged)).body.failures).toEqual([
      { transfer: 343, code: 'invalid_signature', detail: expect.stringContaining('with an API key') },
    ])
    expect(counted.rpc.calls.length).toBe(asked)
  })

  test('error: makes only ten calls to the node for valid signatures of empty wallets, and returns the reason for each transfer', async () => {
    const { submit } = open()
    const pairs = (await sign(170)).flat()
    const asked = counted.rpc.calls.length
    const { status, body } = await submit(pairs.slice(0, 300))
    expect([status, body.code, body.transfer]).toEqual([402, 'insufficient_balance', 0])
    expect(body.failures).toHaveLength(300)
    expect(counted.rpc.calls.length - asked).toBeLessThanOrEqual(10)
  })

  test('error: if the wallets of a submission don’t fit into one transaction, rejects the submission without calling the node, even with a key', async () => {
    const { submit } = open()
    const junk = (await sign(60)).flat().map((one) => ({ ...one, signature: `0x${'5a'.repeat(65)}` as Hex }))
    const asked = counted.rpc.calls.length
    expect((await submit(junk, { apiKey: stack.apiKey })).code).toBe('payload_too_large')
    expect(counted.rpc.calls.length).toBe(asked)
  })
})

describe('contract wallets', () => {
  /** Returns the code of a wallet that answers every call with the same word: PUSH32 word, PUSH0, MSTORE, RETURN(0, 32). */
  const answering = (word: Hex): Hex =>
    concatHex(['0x7f', padHex(word, { dir: 'right', size: 32 }), '0x5f5260205ff3'])
  const saysYes = answering('0x1626ba7e')
  const saysNo = answering('0xffffffff')

  async function signWithCode(): Promise<Pair> {
    const buyer = await stack.buyer()
    await testClient(stack).setCode({ address: buyer.address, bytecode: saysYes })
    return signPair(stack, buyer)
  }

  test('error: rejects a contract wallet’s payment without an API key, even if the wallet’s own key signed the payment; settles the payment with an API key', async () => {
    const { keeper, submit } = open()
    const pair = await signWithCode()
    expect((await submit(pair)).code).toBe('unauthorized')
    // Only the contract wallet could confirm that this is its signature.
    const asked = counted.rpc.calls.length
    const refused = await submit(pair.map((one) => ({ ...one, signature: `0x${'5a'.repeat(65)}` as Hex })))
    expect([refused.status, refused.code]).toEqual([402, 'invalid_signature'])
    expect(refused.body.detail).toContain('If the payer is a contract, send it with an API key')
    expect(counted.rpc.calls.length).toBe(asked)
    await whileRunning(keeper, async () => {
      expect((await submit(pair, { apiKey: stack.apiKey })).status).toBe(200)
    })
  })

  test('error: rejects a submission that has already reverted, and sends no second transaction', async () => {
    const pair = await signWithCode()
    const [{ from }] = pair
    const before = await countTransactions(stack)
    const { keeper, submit } = open({
      // The wallet accepts its signature in the simulation but not in the transaction. No read of the chain can predict that.
      checkpoint: async (name) => {
        if (name === 'before-broadcast') await testClient(stack).setCode({ address: from, bytecode: saysNo })
      },
    })
    await whileRunning(keeper, async () => {
      const { apiKey } = stack
      // The request polls its transaction at intervals. On a busy machine, it may see the revert before the broadcast.
      const first = await submit(pair, { apiKey })
      expect([200, 'settlement_pending']).toContain(first.status === 200 ? 200 : first.code)
      await until('the keeper knows that it reverted', async () => {
        const [batch] = await stack.database`select 1 from transaction where not succeeded`
        return batch !== undefined
      })
      await testClient(stack).setCode({ address: from, bytecode: saysYes })
      // A reorg may still change the result, so the answer is pending, even if the transfers are sent together with others.
      const other = await signPair(stack, await stack.buyer())
      for (const transfers of [pair, [...other, ...pair]])
        expect((await submit(transfers, { apiKey })).code).toBe('settlement_pending')
      await mineUntil(stack, 'the revert is final', async () => {
        return (await stack.database`select from batch where result = 'reverted'`).length === 1
      })
      for (const transfers of [pair, pair.toReversed(), pair]) {
        const again = await submit(transfers as Pair, { apiKey })
        expect([again.status, again.code]).toEqual([422, 'settlement_failed'])
      }
      const mixed = await submit([...other, ...pair], { apiKey })
      expect(mixed.body.failures).toMatchObject([{ transfer: 2 }, { transfer: 3 }])
      expect((await submit(other, { apiKey })).status).toBe(200)
    })
    expect(await countTransactions(stack)).toBe(before + 2)
  })
})
