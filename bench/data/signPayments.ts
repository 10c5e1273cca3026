import { keccak256 as nativeKeccak256 } from '@tollkeeper/chain/keccak256'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Database } from '@tollkeeper/ledger/store/database'
import { boundNonce, type Challenge, feeNonce, maxTimeoutSeconds } from '@tollkeeper/sdk/protocol/challenge'
import { domainSeparator, eip712Domain, hashAuthorization } from '@tollkeeper/sdk/protocol/eip3009'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { encodePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { splitterOf } from '@tollkeeper/sdk/protocol/splitter'
import { type TabState, type TabTerms, tabAuthorization } from '@tollkeeper/sdk/protocol/tab'
import { splitPrice } from '@tollkeeper/sdk/protocol/tier'
import secp256k1 from 'secp256k1'
import { type Address, bytesToHex, type Hex, hexToBytes, keccak256, numberToHex, stringToHex } from 'viem'
import { privateKeyToAddress } from 'viem/accounts'
import { type SeedProvider, type StoredPayment, storePayments } from '../../test/support/seedPayments.ts'
import { randomHex, validFor } from '../../test/support/usdc.ts'

export const platform: Address = '0x00000000000000000000000000000000000fee00'
export const payees = Array.from({ length: 20 }, (_, i): Address => numberToHex(0xa000 + i, { size: 20 }))

export type Buyer = { address: Address; key: Uint8Array }

/** Creates buyers, which are the same in each run. */
export function createBuyers(count: number): Buyer[] {
  return Array.from({ length: count }, (_, i) => {
    const key = keccak256(stringToHex(`bench buyer ${i}`))
    return { address: privateKeyToAddress(key).toLowerCase() as Address, key: hexToBytes(key) }
  })
}

/** Signs with native secp256k1, because a bench needs thousands of signatures. */
function signDigest(digest: Uint8Array, { key }: Buyer): Hex {
  const { signature, recid } = secp256k1.ecdsaSign(digest, key)
  return `${bytesToHex(signature)}${(27 + recid).toString(16)}`
}

const separatorOf = (usdc: Address) => domainSeparator(eip712Domain(networks.localhost, usdc))

/** Creates a function that signs states of tabs. */
export function createTabSigner(usdc: Address) {
  const separator = separatorOf(usdc)
  return (buyer: Buyer, terms: TabTerms, state: TabState) => {
    const authorization = tabAuthorization(terms, state, nativeKeccak256)
    const digest = hashAuthorization(separator, authorization, nativeKeccak256)
    return { nonce: authorization.nonce, signature: signDigest(digest, buyer) }
  }
}

export function createAuthorizer(usdc: Address) {
  const separator = separatorOf(usdc)
  return (
    buyer: Buyer,
    to: Address,
    value: bigint,
    nonce: Hex,
    window = validFor(maxTimeoutSeconds),
  ): SignedAuthorization => {
    const authorization = { from: buyer.address, to, value, ...window, nonce }
    return { ...authorization, signature: signDigest(hashAuthorization(separator, authorization), buyer) }
  }
}

/** `bound`: two authorizations with nonces derived from the challenge. `random`: two with random nonces. `oneSignature`: one to the splitter. */
export type PaymentKind = 'bound' | 'random' | 'oneSignature'

/** Signs a challenge like our SDK. @returns the payloads */
export function signChallenge(
  authorize: ReturnType<typeof createAuthorizer>,
  splitterFactory: Address,
  { buyer, challenge, kind }: { buyer: Buyer; challenge: Challenge; kind: PaymentKind },
): [string, string?] {
  const nonce = kind === 'random' ? randomHex(32) : boundNonce(challenge.issuer, challenge.requestId)
  const [provider, fee] = challenge.accepts
  const window = validFor(maxTimeoutSeconds)
  const [amount, feeAmount] = [BigInt(provider.maxAmountRequired), BigInt(fee.maxAmountRequired)]
  if (kind === 'oneSignature') {
    const terms = { payTo: provider.payTo, feePayTo: fee.payTo, amount, feeAmount }
    const splitter = splitterOf(terms, splitterFactory, nativeKeccak256)
    if (splitter === undefined) throw new Error('no splitter divides this price')
    return [encodePayload(authorize(buyer, splitter.address, amount + feeAmount, nonce, window))]
  }
  return [
    encodePayload(authorize(buyer, provider.payTo, amount, nonce, window)),
    encodePayload(authorize(buyer, fee.payTo, feeAmount, feeNonce(nonce), window)),
  ]
}

type SignedPayments = {
  provider: SeedProvider
  count: number
  buyers: readonly Buyer[]
  price: bigint
  acceptedAt: Date
}

/** Queues payments by the SQL statement of `/verify`, with real signatures. @returns the payments' identifiers */
export async function insertPayments(
  sql: Database,
  { network, token }: ServedNetwork,
  { provider, count, buyers, price, acceptedAt }: SignedPayments,
): Promise<string[]> {
  const { tier, providerAmount, feeAmount } = splitPrice(price)
  const [authorize, window] = [createAuthorizer(token), validFor(maxTimeoutSeconds)]
  const payments = Array.from({ length: count }, (_, i): StoredPayment => {
    const [buyer, payee] = [buyers[i % buyers.length] as Buyer, payees[i % payees.length] as Address]
    const id = randomHex(16).slice(2)
    const nonce = keccak256(`0x${id}`)
    const sign = (to: Address, value: bigint, halfNonce: Hex) => {
      const { from, ...signed } = authorize(buyer, to, value, halfNonce, window)
      return { ...signed, recipient: to, acceptedBlock: null }
    }
    return {
      id: `pay_${id}`,
      requestId: `req_${id}`,
      providerId: provider.providerId,
      endpointId: provider.endpointIds[0] ?? null,
      chainId: network.chainId,
      token,
      payer: buyer.address,
      halves: [sign(payee, providerAmount, nonce), sign(platform, feeAmount, feeNonce(nonce))],
      tier,
      resource: 'https://api.example/',
      acceptedAt,
    }
  })
  for (let from = 0; from < count; from += 500) await storePayments(sql, payments.slice(from, from + 500))
  return payments.map(({ id }) => id)
}
