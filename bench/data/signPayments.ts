import { randomBytes } from 'node:crypto'
import secp256k1 from 'secp256k1'
import { type Address, bytesToHex, type Hex, keccak256 } from 'viem'
import { privateKeyToAddress } from 'viem/accounts'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { AcceptedAuthorization } from '#ledger/acceptance/acceptPayments'
import type { Database } from '#ledger/store/database'
import { feeNonce } from '#protocol/challenge'
import { hashAuthorization } from '#protocol/eip3009'
import { splitPrice } from '#protocol/tier'
import { type StoredPayment, storePayments } from '../../test/support/seedPayments.ts'

export type Buyer = { key: Uint8Array; address: Address }

export function createBuyers(count: number): Buyer[] {
  return Array.from({ length: count }, () => {
    const key = new Uint8Array(randomBytes(32))
    return { key, address: privateKeyToAddress(bytesToHex(key)).toLowerCase() as Address }
  })
}

export type SignedPayments = {
  count: number
  buyers: readonly Buyer[]
  payees: readonly Address[]
  feeRecipient: Address
  price: bigint
  acceptedAt: Date
}

/** A provider with one endpoint, which all payments are for. */
export async function insertProvider(sql: Database, chainId: number, wallet: Address): Promise<void> {
  const id = '0'.repeat(32)
  await sql`insert into provider (id, name) values (${`prov_${id}`}, 'Weather')`
  await sql`
    insert into wallet (id, provider_id, chain_id, address)
    values (${`wal_${id}`}, ${`prov_${id}`}, ${chainId}, ${wallet})`
  await sql`
    insert into endpoint (id, provider_id, wallet_id, chain_id, method, url, path, shape, price)
    values (${`ep_${id}`}, ${`prov_${id}`}, ${`wal_${id}`}, ${chainId}, 'GET', 'https://api.example/', '/', '/', 50000)`
}

/** Queues payments as `/verify` leaves them, really signed and by its own statement. */
export async function insertPayments(
  sql: Database,
  { network, token, domainSeparator }: ServedNetwork,
  { count, buyers, payees, feeRecipient, price, acceptedAt }: SignedPayments,
): Promise<string[]> {
  const { tier, providerAmount, feeAmount } = splitPrice(price)
  const validBefore = BigInt(Math.floor(Date.now() / 1000) + 93_600)
  const payments = Array.from({ length: count }, (_, i): StoredPayment => {
    const buyer = buyers[i % buyers.length]
    const payee = payees[i % payees.length]
    if (!buyer || !payee) throw new Error('no buyers, or nobody to pay')
    const id = randomBytes(16).toString('hex')
    const nonce = keccak256(`0x${id}`)
    const sign = (to: Address, value: bigint, halfNonce: Hex): AcceptedAuthorization => {
      const authorization = { from: buyer.address, to, value, validAfter: 0n, validBefore, nonce: halfNonce }
      const digest = hashAuthorization(domainSeparator, authorization)
      const { signature, recid } = secp256k1.ecdsaSign(digest, buyer.key)
      return {
        recipient: to,
        value,
        validAfter: 0n,
        validBefore,
        nonce: halfNonce,
        signature: bytesToHex(new Uint8Array([...signature, 27 + recid])),
        acceptedBlock: null,
      }
    }
    return {
      id: `pay_${id}`,
      requestId: `req_${id}`,
      providerId: `prov_${'0'.repeat(32)}`,
      endpointId: `ep_${'0'.repeat(32)}`,
      chainId: network.chainId,
      token,
      payer: buyer.address,
      halves: [sign(payee, providerAmount, nonce), sign(feeRecipient, feeAmount, feeNonce(nonce))],
      tier,
      resource: 'https://api.example/',
      acceptedAt,
    }
  })
  for (let from = 0; from < count; from += 500) await storePayments(sql, payments.slice(from, from + 500))
  return payments.map(({ id }) => id)
}
