import { readCaller, releaseReservations } from '@tollkeeper/ledger/acceptance/facilitations'
import { findKeyOwner, setGasGrant } from '@tollkeeper/ledger/registry/apiKeys'
import { setSuspended } from '@tollkeeper/ledger/registry/suspendProvider'
import { createTestClient, http } from 'viem'
import { beforeAll, describe, expect, test } from 'vitest'
import { facilitator, useFacilitator } from '../support/facilitator.ts'
import { raiseBaseFee } from '../support/keeperScenes.ts'
import { until } from '../support/until.ts'
import { randomHex } from '../support/usdc.ts'
import { ask } from '../support/x402.ts'

// The facilitator of the x402 standard as sellers' middlewares use it, on a real chain, Postgres and Ponder:
// gas allowances, limits for callers, and many simultaneous settlements.

const { stack, keeper, pay } = useFacilitator()
let key: string
beforeAll(() => {
  key = stack.apiKey
})

describe('gas', () => {
  test('behavior: charges the gas of a key’s payments to the provider’s grant, or else to the shared allowance, and overdraws neither of them', async () => {
    const drawn = async () =>
      Object.fromEntries(
        (await stack.database<{ drawer: string; drawn: bigint }[]>`select drawer, drawn from gas_draw`).map(
          (row) => [row.drawer.slice(0, 4), row.drawn],
        ),
      )
    await raiseBaseFee(stack)
    const poor = stack.keeper({
      settings: { ...stack.settings, gasAllowance: 0n },
      facilitator: { isOpen: true },
    })
    const { body } = await pay(await stack.buyer())
    for (const path of ['/verify', '/settle'] as const) {
      for (const by of [{}, { key }]) {
        const refused = await ask(poor, path, { body, ...by })
        expect(refused.status).toBe(200)
        expect(JSON.stringify(refused.body)).toContain(`unexpected_${path.slice(1)}_error`)
        expect(JSON.stringify(refused.body)).toContain('covers the gas')
      }
    }
    const before = await drawn()
    const providerId = (await findKeyOwner(stack.database, key)) ?? ''
    await setGasGrant(stack.database, providerId, 1_000_000_000n)
    expect((await ask(poor, '/verify', { body, key })).body.isValid).toBe(true)
    const reserved = await drawn()
    expect(reserved.comm).toBe(before.comm)
    expect(reserved.prov).toBeGreaterThan(before.prov ?? 0n)
    // The verified payment settles, and the unused part of its gas reservation is released.
    expect((await ask(keeper, '/settle', { body, key })).body.success).toBe(true)
    expect((await drawn()).prov).toBeLessThan(reserved.prov ?? 0n)
    await setGasGrant(stack.database, providerId, 0n)
  })

  test('behavior: an open facilitator accepts only plain accounts without an API key', async () => {
    const open = stack.keeper({
      facilitator: { isOpen: true },
    })
    const buyer = await stack.buyer()
    const { body } = await pay(buyer)
    expect((await ask(open, '/settle', { body })).body.success).toBe(true)
    const wallet = await stack.buyer()
    const delegated = await pay(wallet)
    const node = createTestClient({ mode: 'hardhat', transport: http(stack.chain.url) })
    await node.setCode({ address: wallet.address, bytecode: '0x00' })
    expect((await ask(open, '/verify', { body: delegated.body })).body.invalidReason).toBe(
      'invalid_exact_evm_payload_signature',
    )
  })
})

describe('callers', () => {
  test('behavior: accepts no new payments for a suspended provider, and settles payments that were verified before', async () => {
    const providerId = (await findKeyOwner(stack.database, key)) ?? ''
    const [verified, later] = [await pay(await stack.buyer()), await pay(await stack.buyer())]
    expect((await ask(keeper, '/verify', { body: verified.body, key })).body.isValid).toBe(true)
    expect(await setSuspended(stack.database, providerId, new Date())).toBe(true)
    // A keeper caches its data about a caller for at most a second, so ask another keeper, which has no cache.
    const other = stack.keeper()
    for (const path of ['/verify', '/settle'] as const) {
      const { body } = await ask(other, path, { body: later.body, key })
      expect(JSON.stringify(body)).toContain('this provider is disabled')
    }
    // Another key doesn't help to pay the suspended provider's wallet.
    const toWallet = await pay(await stack.buyer(), { payTo: stack.payee })
    const { body: refused } = await ask(other, '/verify', { body: toWallet.body, key: stack.grantedKey })
    expect(JSON.stringify(refused)).toContain('this provider is disabled')
    expect((await ask(other, '/settle', { body: verified.body, key })).body.success).toBe(true)
    expect(await setSuspended(stack.database, providerId, null)).toBe(true)
    const again = stack.keeper()
    expect((await ask(again, '/verify', { body: later.body, key })).body.isValid).toBe(true)
  })

  test('behavior: limits requests without a known key by address, and doesn’t delay a seller with a known key', async () => {
    const open = stack.keeper({
      facilitator: { isOpen: true },
    })
    const { body } = await pay(await stack.buyer())
    const guess = () => ask(open, '/verify', { body, key: `tk_${randomHex(16).slice(2)}_${'a'.repeat(43)}` })
    // A minute may end between these requests, which restarts the count.
    const statuses: number[] = []
    while (!statuses.includes(429) && statuses.length <= 1_200) {
      const answers = await Promise.all(Array.from({ length: 100 }, guess))
      statuses.push(...answers.map(({ status }) => status))
    }
    expect(new Set(statuses)).toEqual(new Set([401, 429]))
    // The keeper has cached this key, so it needs no lookup.
    expect((await ask(keeper, '/verify', { body, key })).body.isValid).toBe(true)
    expect((await ask(keeper, '/settle', { body, key })).body.success).toBe(true)
  })
})

describe('a crowd', () => {
  test('behavior: settles two honest payments in the next batch despite 320 open settlements of one key', async () => {
    await keeper.stop()
    const buyers = await stack.buyers(322, 10_000n)
    // Earlier tests left verified payments, which would otherwise expire while this test counts.
    await releaseReservations(stack.database, new Date(Date.now() + 3_600_000))
    const { open } = await readCaller(stack.database, (await findKeyOwner(stack.database, key)) ?? '')
    const maxOpen = open + 320
    const crowd = stack.keeper({ facilitator: { ...facilitator, maxOpen } })
    const payments = await Promise.all(buyers.map((buyer) => pay(buyer)))
    const isDue = (count: number) =>
      until(`${count} wait`, async () => {
        const [row] = await stack.database<[{ due: number }]>`
          select count(*)::int as due from queue where stage = 'waiting' and due_at is not null`
        return row.due === count
      })
    const settling = payments.slice(0, 320).map(({ body }) => ask(crowd, '/settle', { body, key }))
    await isDue(320)
    // Above its limit, the key is rejected.
    const refused = await ask(crowd, '/verify', { body: (await pay(await stack.buyer())).body, key })
    expect(refused.body).toMatchObject({
      isValid: false,
      invalidReason: 'unexpected_verify_error',
      invalidMessage: expect.stringContaining(`${maxOpen} payments open: try again`),
    })
    const honest = payments.slice(320)
    settling.push(...honest.map(({ body }) => ask(crowd, '/settle', { body, key: stack.grantedKey })))
    await isDue(322)
    const [{ last }] = await stack.database<
      [{ last: bigint }]
    >`select coalesce(max(id), 0) as last from batch`
    keeper.start()
    for (const { body } of await Promise.all(settling)) expect(body).toMatchObject({ success: true })
    const nonces = honest.map(({ authorization }) => authorization.nonce)
    const rows = await stack.database<{ place: number }[]>`
      select (select count(*)::int from batch earlier where earlier.id > ${last} and earlier.id <= i.batch_id) as place
      from batch_item i join signed_authorization using (payment_id) where nonce = any(${nonces}::text[])`
    expect(rows).toEqual([{ place: 1 }, { place: 1 }])
  })
})
