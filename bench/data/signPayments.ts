import { randomBytes } from 'node:crypto'
import secp256k1 from 'secp256k1'
import { type Address, bytesToHex, type Hex, keccak256 } from 'viem'
import { privateKeyToAddress } from 'viem/accounts'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { Database } from '#ledger/database'
import { feeNonce } from '#protocol/challenge'
import { hashAuthorization } from '#protocol/eip3009'
import { splitPrice } from '#protocol/tier'

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
    insert into endpoint (id, provider_id, wallet_id, chain_id, method, url, path, price)
    values (${`ep_${id}`}, ${`prov_${id}`}, ${`wal_${id}`}, ${chainId}, 'GET', 'https://api.example/', '/', 50000)`
}

/** Queues payments as `/verify` leaves them, really signed. */
export async function insertPayments(
  sql: Database,
  { network, token, domainSeparator }: ServedNetwork,
  { count, buyers, payees, feeRecipient, price, acceptedAt }: SignedPayments,
): Promise<string[]> {
  const { tier, providerAmount, feeAmount } = splitPrice(price)
  const { chainId } = network
  const validBefore = BigInt(Math.floor(Date.now() / 1000) + 93_600)
  const payments: Record<string, string | bigint | number | Date | Buffer>[] = []
  const authorizations: typeof payments = []
  for (let i = 0; i < count; i++) {
    const buyer = buyers[i % buyers.length]
    const payee = payees[i % payees.length]
    if (!buyer || !payee) throw new Error('no buyers, or nobody to pay')
    const id = randomBytes(16).toString('hex')
    const nonce = keccak256(`0x${id}`)
    payments.push({
      id: `pay_${id}`,
      request_id: `req_${id}`,
      provider_id: `prov_${'0'.repeat(32)}`,
      endpoint_id: `ep_${'0'.repeat(32)}`,
      chain_id: chainId,
      token,
      payer: buyer.address,
      payee,
      fee_recipient: feeRecipient,
      price,
      provider_amount: providerAmount,
      fee_amount: feeAmount,
      valid_before: validBefore,
      tier,
      effective_rate: '0.05',
      resource: 'https://api.example/',
      receipt: 'header.payload.signature',
      request_hash: Buffer.alloc(32),
      challenged_at: acceptedAt,
      accepted_at: acceptedAt,
    })
    const halves: [Address, bigint, Hex][] = [
      [payee, providerAmount, nonce],
      [feeRecipient, feeAmount, feeNonce(nonce)],
    ]
    for (const [half, [to, value, halfNonce]] of halves.entries()) {
      const digest = hashAuthorization(domainSeparator, {
        from: buyer.address,
        to,
        value,
        validAfter: 0n,
        validBefore,
        nonce: halfNonce,
      })
      const { signature, recid } = secp256k1.ecdsaSign(digest, buyer.key)
      authorizations.push({
        payment_id: `pay_${id}`,
        half,
        chain_id: chainId,
        token,
        authorizer: buyer.address,
        recipient: to,
        value,
        valid_after: 0,
        valid_before: validBefore,
        nonce: halfNonce,
        signature: Buffer.from([...signature, 27 + recid]),
      })
    }
  }
  await sql.begin(async (tx) => {
    await tx`
      insert into payer ${tx(buyers.map(({ address }) => ({ chain_id: chainId, token, address })))} on conflict do nothing`
    for (let from = 0; from < count; from += 500) {
      await tx`insert into payment ${tx(payments.slice(from, from + 500))}`
      await tx`insert into signed_authorization ${tx(authorizations.slice(2 * from, 2 * from + 1_000))}`
    }
  })
  return payments.map((payment) => String(payment.id))
}
