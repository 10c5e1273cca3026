import type { Address, Hex } from 'viem'
import { type IdPrefix, newId } from '#api/identifiers'
import type { Database } from '#ledger/database'
import { randomHex } from './usdc.ts'

const seedToken: Address = `0x${'ab'.repeat(20)}`
const seedPlatform: Address = `0x${'fe'.repeat(20)}`
export const seedChainId = 31_337

export type SeedProvider = { providerId: string; walletId: string; wallet: Address; endpointIds: string[] }

/** A provider with one wallet and some endpoints, straight into the tables. */
export async function seedProvider(sql: Database, endpoints = 1): Promise<SeedProvider> {
  const id = (prefix: IdPrefix) => newId(prefix)
  const [providerId, walletId, wallet] = [id('prov'), id('wal'), randomHex(20)]
  const endpointIds = Array.from({ length: endpoints }, () => id('ep'))
  await sql`insert into provider (id, name) values (${providerId}, 'Weather')`
  await sql`
    insert into wallet (id, provider_id, chain_id, address) values (${walletId}, ${providerId}, ${seedChainId}, ${wallet})`
  for (const [index, endpointId] of endpointIds.entries()) {
    await sql`
      insert into endpoint (id, provider_id, wallet_id, chain_id, method, url, path, price)
      values (${endpointId}, ${providerId}, ${walletId}, ${seedChainId}, 'GET', ${`https://weather.example/${index}`}, ${`/${index}`}, 50000)`
  }
  return { providerId, walletId, wallet, endpointIds }
}

export type SeedPayment = {
  provider: SeedProvider
  endpointId?: string
  payer?: Address
  acceptedAt?: Date
  providerAmount?: bigint
  feeAmount?: bigint
  /** Unix seconds. */
  validBefore?: number
}

export type SeededPayment = { paymentId: string; payer: Address; nonces: [Hex, Hex] }

/** A payment as `/verify` leaves it, but for signatures and receipt, which no view reads. */
export async function seedPayment(sql: Database, options: SeedPayment): Promise<SeededPayment> {
  const { provider, endpointId = provider.endpointIds[0] ?? '', payer = randomHex(20) } = options
  const { acceptedAt = new Date(), providerAmount = 47_500n, feeAmount = 2_500n } = options
  const { validBefore = Math.floor(acceptedAt.getTime() / 1000) + 93_600 } = options
  const paymentId = newId('pay')
  const nonces: [Hex, Hex] = [randomHex(32), randomHex(32)]
  await sql.begin(async (transaction) => {
    await transaction`
      insert into payer (chain_id, token, address) values (${seedChainId}, ${seedToken}, ${payer}) on conflict do nothing`
    await transaction`
      insert into payment (id, request_id, provider_id, endpoint_id, chain_id, token, payer, payee, fee_recipient, price,
        provider_amount, fee_amount, valid_before, tier, effective_rate, resource, receipt, request_hash, challenged_at,
        accepted_at)
      values (${paymentId}, ${newId('req')}, ${provider.providerId}, ${endpointId}, ${seedChainId}, ${seedToken}, ${payer},
        ${provider.wallet}, ${seedPlatform}, ${providerAmount + feeAmount}, ${providerAmount}, ${feeAmount},
        ${validBefore}, 'micropayment', '0.05', 'https://weather.example/0', 'a.b.c', ${Buffer.alloc(32)},
        ${acceptedAt}, ${acceptedAt})`
    for (const [half, nonce] of nonces.entries()) {
      await transaction`
        insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after,
          valid_before, nonce, signature)
        values (${paymentId}, ${half}, ${seedChainId}, ${seedToken}, ${payer},
          ${half === 0 ? provider.wallet : seedPlatform}, ${half === 0 ? providerAmount : feeAmount}, 0, ${validBefore},
          ${nonce}, ${Buffer.alloc(65)})`
    }
  })
  return { paymentId, payer, nonces }
}

/** What the index would show once a block settled halves of a payment. */
export async function seedSettlement(
  sql: Database,
  payment: SeededPayment,
  options: {
    halves?: (0 | 1)[]
    txHash?: Hex
    batchLogIndex?: number | null
    blockNumber?: number
    blockTime?: number
  } = {},
): Promise<Hex> {
  const { halves = [0, 1], txHash = randomHex(32), batchLogIndex = 9 } = options
  const { blockNumber = 100, blockTime = 1_795_262_400 } = options
  for (const half of halves) {
    await sql`
      insert into indexer.authorization (chain_id, token, authorizer, nonce, state, recipient, value,
        tx_hash, log_index, block_number, block_hash, block_time, batch_log_index)
      select chain_id, token, authorizer, nonce, 'used', recipient, value, ${txHash}, ${half * 2}, ${blockNumber},
        ${`0x${blockNumber.toString(16).padStart(64, '0')}`}, ${blockTime}, ${batchLogIndex}
      from signed_authorization where payment_id = ${payment.paymentId} and half = ${half}`
  }
  return txHash
}
