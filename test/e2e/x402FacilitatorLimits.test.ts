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

// The facilitator of the x402 standard as sellers' middlewares ask it, on a real chain, Postgres and Ponder: the gas, callers, and crowds.

const { stack, keeper, pay } = useFacilitator()
let key: string
beforeAll(() => {
  key = stack.apiKey
})

describe('the gas', () => {
  test('behavior: a key’s is its provider’s grant, or else what all share; what is given is never overdrawn', async () => {
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
        expect(JSON.stringify(refused.body)).toContain('covers its gas')
      }
    }
    const before = await drawn()
    const providerId = (await findKeyOwner(stack.database, key)) ?? ''
    await setGasGrant(stack.database, providerId, 1_000_000_000n)
    expect((await ask(poor, '/verify', { body, key })).body.isValid).toBe(true)
    const reserved = await drawn()
    expect(reserved.comm).toBe(before.comm)
    expect(reserved.prov).toBeGreaterThan(before.prov ?? 0n)
    // What was verified is settled, and gives back what it didn't cost.
    expect((await ask(keeper, '/settle', { body, key })).body.success).toBe(true)
    expect((await drawn()).prov).toBeLessThan(reserved.prov ?? 0n)
    await setGasGrant(stack.database, providerId, 0n)
  })

  test('behavior: without an API key only plain accounts pay, where that is open', async () => {
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
  test('behavior: of a suspended provider nothing new is taken, and what was verified before settles', async () => {
    const providerId = (await findKeyOwner(stack.database, key)) ?? ''
    const [verified, later] = [await pay(await stack.buyer()), await pay(await stack.buyer())]
    expect((await ask(keeper, '/verify', { body: verified.body, key })).body.isValid).toBe(true)
    expect(await setSuspended(stack.database, providerId, new Date())).toBe(true)
    // What a keeper knows of a caller is a second old at most; another one asks for the first time.
    const other = stack.keeper()
    for (const path of ['/verify', '/settle'] as const) {
      const { body } = await ask(other, path, { body: later.body, key })
      expect(JSON.stringify(body)).toContain('this provider is disabled')
    }
    // A new key of its owner's doesn't help for its wallet.
    const toWallet = await pay(await stack.buyer(), { payTo: stack.payee })
    const { body: refused } = await ask(other, '/verify', { body: toWallet.body, key: stack.grantedKey })
    expect(JSON.stringify(refused)).toContain('this provider is disabled')
    expect((await ask(other, '/settle', { body: verified.body, key })).body.success).toBe(true)
    expect(await setSuspended(stack.database, providerId, null)).toBe(true)
    const again = stack.keeper()
    expect((await ask(again, '/verify', { body: later.body, key })).body.isValid).toBe(true)
  })

  test('behavior: keys of nobody, and requests without one, are counted by address; a seller is not held up', async () => {
    const open = stack.keeper({
      facilitator: { isOpen: true },
    })
    const { body } = await pay(await stack.buyer())
    const guess = () => ask(open, '/verify', { body, key: `tk_${randomHex(16).slice(2)}_${'a'.repeat(43)}` })
    // A minute may end in between, once.
    const statuses: number[] = []
    while (!statuses.includes(429) && statuses.length <= 1_200) {
      const answers = await Promise.all(Array.from({ length: 100 }, guess))
      statuses.push(...answers.map(({ status }) => status))
    }
    expect(new Set(statuses)).toEqual(new Set([401, 429]))
    // Known by now, so that nothing needs to be looked up.
    expect((await ask(keeper, '/verify', { body, key })).body.isValid).toBe(true)
    expect((await ask(keeper, '/settle', { body, key })).body.success).toBe(true)
  })
})

describe('a crowd', () => {
  test('behavior: beside 320 open settlements of one key, two honest ones go out with the next batch', async () => {
    await keeper.stop()
    const buyers = await stack.buyers(322, 10_000n)
    // Earlier tests verified what nobody settles: that would lapse while this one counts.
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
    // Over its limit it is told so.
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
