import { setSuspended } from '@tollkeeper/ledger/registry/suspendProvider'
import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import {
  seedChainId,
  seedHalf,
  seedProvider,
  seedToken,
  seedTransfer,
} from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { createOpenLimit } from './openLimit.ts'

const sql = await useDatabase()
const paid = (address = randomHex(20)) => ({ chainId: seedChainId, token: seedToken, address })

/**
 * Stores open payments. If `providerId` is set, they were sent with that provider's API key. If it is null, they were sent without a key, to
 * the wallet `recipient`.
 */
async function open(count: number, providerId: string | null, recipient = randomHex(20)): Promise<void> {
  for (let n = 0; n < count; n++)
    await seedTransfer(sql, {
      halves: [seedHalf({ recipient })],
      providerId,
      facilitation: { providerId, paymentIdentifier: null },
      first: { stage: 'due', since: Date.now() },
    })
}

test('default: limits the open payments of an API key, summed over all paid wallets', async () => {
  const [{ providerId }, other] = [await seedProvider(sql), await seedProvider(sql)]
  await open(2, providerId)
  const take = (most: number, id = providerId) => createOpenLimit(sql, most).take(id, paid())
  await expect(take(3)).resolves.toBeUndefined()
  await expect(take(2)).rejects.toThrow('this API key has 2 payments open')
  await expect(take(2, other.providerId)).resolves.toBeUndefined()
})

test('default: without an API key, limits the open payments of the wallet that is paid', async () => {
  const wallet = randomHex(20)
  await open(2, null, wallet)
  const take = (most: number, address = wallet) => createOpenLimit(sql, most).take(null, paid(address))
  await expect(take(3)).resolves.toBeUndefined()
  await expect(take(2)).rejects.toThrow('this wallet has 2 payments open')
  await expect(take(2, randomHex(20))).resolves.toBeUndefined()
})

test('error: rejects payments with a suspended provider’s API key, and payments to a suspended provider’s wallet', async () => {
  const { providerId, wallet } = await seedProvider(sql)
  // A suspension covers only wallets that were registered before it. The wallet's registration time has microseconds, so a suspension in the
  // same millisecond could be earlier.
  await setSuspended(sql, providerId, new Date(Date.now() + 1_000))
  const limit = createOpenLimit(sql, 10)
  await expect(limit.take(providerId, paid())).rejects.toThrow('this provider is disabled')
  await expect(limit.take(null, paid(wallet))).rejects.toThrow('this provider is disabled')
})
