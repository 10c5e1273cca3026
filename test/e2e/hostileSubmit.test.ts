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

// Strangers who want POST /submit to spend the keeper's gas, or its node's time, for nothing.

const stack = useKeeperStack()
/** The chain behind a proxy that counts what is asked of it. */
const counted = useChaosRpc(stack)

type Answer = { status: number; code: unknown; body: Record<string, unknown> }

// In the middle of a minute, so that none ends while its requests are counted.
const minute = 30_000 + 60_000 * Math.floor(Date.now() / 60_000)

/** @param minutes from now, when the clock stands still: requests of one minute are counted together, whichever keeper took them. */
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

describe('a key is no licence', () => {
  test('error: transfers of nothing; and without a fee for its gas, where nothing else is left for it', async () => {
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

  test('default: whom it pays is no matter, where the fee carries the gas: without a key', async () => {
    const { keeper, submit } = open({ settings: { ...stack.settings, gasPerFee: 10n, gasAllowance: 0n } })
    const pair = await signPair(stack, await stack.buyer(), { to: randomHex(20) })
    await whileRunning(keeper, async () => {
      expect((await submit(pair)).status).toBe(200)
      await until('it is paid', async () => (await stack.balanceOf(pair[0].to)) === pair[0].value)
    })
  })

  test('default: with the operator’s grant a half alone is settled, to whomever', async () => {
    const { keeper, submit } = open()
    const [half] = await signPair(stack, await stack.buyer(), { to: randomHex(20) })
    await whileRunning(keeper, async () => {
      expect((await submit([half], { apiKey: stack.grantedKey })).status).toBe(200)
      await until('it is paid', async () => (await stack.balanceOf(half.to)) === half.value)
    })
  })

  test('error: of a suspended provider nothing new, by its key or for its wallet; what was accepted settles', async () => {
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

  test('error: an address has its limit with a key as well, and a key from every address', async () => {
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

  test('error: 70 submissions of 344 worthless signatures cost the node nothing', async () => {
    const { submit } = open()
    const pairs = (await sign(172)).flat()
    const junk = pairs.map((one) => ({ ...one, signature: `0x${'11'.repeat(64)}1b` as Hex }))
    const asked = counted.rpc.calls.length
    for (let i = 0; i < 70; i++) expect((await submit(junk)).code).toBe('invalid_signature')
    // One forged among good ones.
    const [first] = pairs
    if (!first) throw new Error('no pair')
    const forged = pairs.map((one, index) => (index === 343 ? { ...one, signature: first.signature } : one))
    expect((await submit(forged)).body.failures).toEqual([
      { transfer: 343, code: 'invalid_signature', detail: expect.stringContaining('with an API key') },
    ])
    expect(counted.rpc.calls.length).toBe(asked)
  })

  test('error: good signatures without money cost ten calls, and each transfer hears why it is refused', async () => {
    const { submit } = open()
    const pairs = (await sign(170)).flat()
    const asked = counted.rpc.calls.length
    const { status, body } = await submit(pairs.slice(0, 300))
    expect([status, body.code, body.transfer]).toEqual([402, 'insufficient_balance', 0])
    expect(body.failures).toHaveLength(300)
    expect(counted.rpc.calls.length - asked).toBeLessThanOrEqual(10)
  })

  test('error: a key doesn’t make the node look at more wallets than one transaction could hold', async () => {
    const { submit } = open()
    const junk = (await sign(60)).flat().map((one) => ({ ...one, signature: `0x${'5a'.repeat(65)}` as Hex }))
    const asked = counted.rpc.calls.length
    expect((await submit(junk, { apiKey: stack.apiKey })).code).toBe('payload_too_large')
    expect(counted.rpc.calls.length).toBe(asked)
  })
})

describe('payers with code', () => {
  /** PUSH32 word, PUSH0, MSTORE, RETURN(0, 32): a wallet that answers the same to every question. */
  const answering = (word: Hex): Hex =>
    concatHex(['0x7f', padHex(word, { dir: 'right', size: 32 }), '0x5f5260205ff3'])
  const saysYes = answering('0x1626ba7e')
  const saysNo = answering('0xffffffff')

  async function signWithCode(): Promise<Pair> {
    const buyer = await stack.buyer()
    await testClient(stack).setCode({ address: buyer.address, bytecode: saysYes })
    return signPair(stack, buyer)
  }

  test('error: without a key they are refused, also where their own key signed; with one they settle', async () => {
    const { keeper, submit } = open()
    const pair = await signWithCode()
    expect((await submit(pair)).code).toBe('unauthorized')
    // Only its wallet could say that this is its signature.
    const asked = counted.rpc.calls.length
    const refused = await submit(pair.map((one) => ({ ...one, signature: `0x${'5a'.repeat(65)}` as Hex })))
    expect([refused.status, refused.code]).toEqual([402, 'invalid_signature'])
    expect(refused.body.detail).toContain('If the payer is a contract, send it with an API key')
    expect(counted.rpc.calls.length).toBe(asked)
    await whileRunning(keeper, async () => {
      expect((await submit(pair, { apiKey: stack.apiKey })).status).toBe(200)
    })
  })

  test('error: what reverted is remembered: asked for again it is refused, without a transaction', async () => {
    const pair = await signWithCode()
    const [{ from }] = pair
    const before = await countTransactions(stack)
    const { keeper, submit } = open({
      // It agrees to the simulation, and not to the transaction: no look at the chain can see that beforehand.
      checkpoint: async (name) => {
        if (name === 'before-broadcast') await testClient(stack).setCode({ address: from, bytecode: saysNo })
      },
    })
    await whileRunning(keeper, async () => {
      const { apiKey } = stack
      // The request looks at its transaction now and then: on a busy machine the revert is known before it has seen the broadcast.
      const first = await submit(pair, { apiKey })
      expect([200, 'settlement_pending']).toContain(first.status === 200 ? 200 : first.code)
      await until('the keeper knows that it reverted', async () => {
        const [batch] = await stack.database`select 1 from transaction where not succeeded`
        return batch !== undefined
      })
      await testClient(stack).setCode({ address: from, bytecode: saysYes })
      // A reorg may turn it yet, in other company, too.
      const other = await signPair(stack, await stack.buyer())
      for (const transfers of [pair, [...other, ...pair]])
        expect((await submit(transfers, { apiKey })).code).toBe('settlement_pending')
      await mineUntil(stack, 'that is final', async () => {
        return (await stack.database`select from batch where outcome = 'reverted'`).length === 1
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
