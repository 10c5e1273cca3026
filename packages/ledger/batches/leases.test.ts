import { setTimeout as wait } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { until } from '../../../test/support/until.ts'
import {
  acquireLease,
  isOutOfGasMoney,
  LeaseLost,
  pauseWallet,
  releaseLease,
  requireLease,
} from './leases.ts'

const sql = await useDatabase()

const acquire = (digit: string, holder: string, ttlMs = 60_000) =>
  acquireLease(sql, { chainId: 31_337, address: `0x${digit.repeat(40)}`, holder, ttlMs })

test('default: a lease has one holder at a time, who may renew it', async () => {
  const first = await acquire('1', 'a')
  expect(first).toMatchObject({ holder: 'a', fence: 1n })
  expect(await acquire('1', 'b')).toBeNull()
  expect(await acquire('1', 'a')).toMatchObject({ fence: 1n })
})

test('behavior: a lease that is not renewed ends, and its former holder’s writes are rejected', async () => {
  const old = await acquire('2', 'a', 1)
  if (!old) throw new Error('no lease')
  await wait(5)
  const next = await acquire('2', 'b')
  expect(next).toMatchObject({ holder: 'b', fence: 2n })
  await expect(requireLease(sql, old)).rejects.toThrow(LeaseLost)
  if (next) await requireLease(sql, next)
})

test('behavior: a released lease can be acquired immediately', async () => {
  const lease = await acquire('3', 'a')
  if (!lease) throw new Error('no lease')
  await releaseLease(sql, lease)
  await expect(requireLease(sql, lease)).rejects.toThrow(LeaseLost)
  expect(await acquire('3', 'b')).toMatchObject({ fence: 2n })
})

test('behavior: a takeover of a wallet waits for the holder’s open transaction', async () => {
  const lease = await acquire('4', 'a')
  if (!lease) throw new Error('no lease')
  const order: string[] = []
  let rival: Promise<unknown> = Promise.resolve()
  await sql.begin(async (tx) => {
    await requireLease(tx, lease)
    rival = acquire('4', 'b').then((taken) => {
      order.push('rival')
      return taken
    })
    await until('the rival waits for the row', async () => {
      const waiting = await sql`
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
      return waiting.length === 1
    })
    // The lease expires in the meantime.
    await tx`update wallet_lease set expires_at = clock_timestamp() where address = ${lease.address}`
    order.push('holder')
  })
  expect(await rival).toMatchObject({ holder: 'b', fence: 2n })
  expect(order).toEqual(['holder', 'rival'])
})

test('behavior: a network is out of gas money only if none of the held wallets can pay', async () => {
  const chainId = 8_453
  const take = (digit: string, ttlMs = 60_000) =>
    acquireLease(sql, { chainId, address: `0x${digit.repeat(40)}`, holder: 'a', ttlMs })
  const pause = (digit: string, reason: string, ms = 15_000) =>
    pauseWallet(sql, { chainId, address: `0x${digit.repeat(40)}` }, new Date(Date.now() + ms), reason)
  expect(await isOutOfGasMoney(sql, chainId)).toBe(false)
  await take('a')
  expect(await isOutOfGasMoney(sql, chainId)).toBe(false)
  await pause('a', 'insufficient_gas_funds')
  expect(await isOutOfGasMoney(sql, chainId)).toBe(true)
  expect(await isOutOfGasMoney(sql, 31_337)).toBe(false)
  await take('b')
  expect(await isOutOfGasMoney(sql, chainId)).toBe(false)
  await pause('b', 'signer_unavailable')
  expect(await isOutOfGasMoney(sql, chainId)).toBe(false)
  await pause('b', 'insufficient_gas_funds')
  expect(await isOutOfGasMoney(sql, chainId)).toBe(true)
  await pause('a', 'insufficient_gas_funds', -1_000)
  expect(await isOutOfGasMoney(sql, chainId)).toBe(false)
})
