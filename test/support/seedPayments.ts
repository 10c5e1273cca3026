import {
  type AcceptedAuthorization,
  type AcceptedAuthorizations,
  acceptPayments,
  type Candidate,
} from '@tollkeeper/ledger/acceptance/acceptPayments'
import { recordEvents, recordPayouts } from '@tollkeeper/ledger/facts/record'
import type { Database } from '@tollkeeper/ledger/store/database'
import { type IdPrefix, newId } from '@tollkeeper/ledger/store/identifiers'
import type { Address, Hex } from 'viem'
import { randomHex } from './usdc.ts'

export const seedToken: Address = `0x${'ab'.repeat(20)}`
export const seedPlatform: Address = `0x${'fe'.repeat(20)}`
export const seedChainId = 31_337
export const seedScope = { chainId: seedChainId, token: seedToken }

export type SeedProvider = { providerId: string; walletId: string; wallet: Address; endpointIds: string[] }

/** Inserts a provider with one wallet and some endpoints directly into the tables. */
export async function seedProvider(sql: Database, endpoints = 1): Promise<SeedProvider> {
  const id = (prefix: IdPrefix) => newId(prefix)
  const [providerId, walletId, wallet] = [id('prov'), id('wal'), randomHex(20)]
  const endpointIds = Array.from({ length: endpoints }, () => id('ep'))
  await sql`insert into provider (id, name) values (${providerId}, 'Weather')`
  await sql`
    insert into wallet (id, provider_id, chain_id, address) values (${walletId}, ${providerId}, ${seedChainId}, ${wallet})`
  for (const [index, endpointId] of endpointIds.entries()) {
    const path = `/${index}`
    await sql`
      insert into endpoint (id, provider_id, wallet_id, chain_id, testnet, method, url, host, path, shape, price)
      values (${endpointId}, ${providerId}, ${walletId}, ${seedChainId}, true, 'GET', ${`https://weather.example${path}`}, 'weather.example',
        ${path}, ${path}, 50000)`
  }
  return { providerId, walletId, wallet, endpointIds }
}

/** The values that a test sets on a payment; the others get defaults. */
export type StoredPayment = Pick<Candidate, 'id'> &
  Partial<Omit<Candidate, 'acceptedAt' | 'authorizations'>> & {
    halves?: AcceptedAuthorizations
    acceptedAt?: Date
  }

/** Returns an accepted authorization, whose signature is never checked. */
export function seedHalf(change: Partial<AcceptedAuthorization> = {}): AcceptedAuthorization {
  return {
    recipient: randomHex(20),
    value: 5n,
    validAfter: 0n,
    validBefore: 2n ** 39n,
    acceptedBlock: null,
    nonce: randomHex(32),
    signature: randomHex(65),
    ...change,
  }
}

/** Stores payments as `/verify` does, so that tests use only payments that production would accept. */
export async function storePayments(sql: Database, payments: readonly StoredPayment[]): Promise<void> {
  await storeCandidates(sql, payments.map(toCandidate))
}

export async function storeCandidates(sql: Database, candidates: Candidate[]): Promise<void> {
  const verdicts = await acceptPayments(sql, candidates)
  const refused = verdicts.find((verdict) => verdict !== 'accepted')
  if (refused) throw new Error(`a payment was ${refused}`)
}

/** Creates a payment of one transfer, without a provider unless the test names one. */
export function toCandidate({
  acceptedAt = new Date(),
  halves = [seedHalf()],
  ...payment
}: Partial<StoredPayment>): Candidate {
  const [provider, fee = { recipient: seedPlatform, value: 0n }] = halves
  const { source = payment.facilitation ? 'facilitator' : 'gateway' } = payment
  return {
    id: newId('pay'),
    chainId: seedChainId,
    token: seedToken,
    payer: randomHex(20),
    providerId: null,
    endpointId: null,
    resource: '',
    requestId: source === 'gateway' ? newId('req') : null,
    source,
    first: { stage: 'waiting' },
    payerHasCode: false,
    payee: provider.recipient,
    feeRecipient: fee.recipient,
    providerAmount: provider.value,
    feeAmount: fee.value,
    splitter: null,
    authorizations: halves,
    price: provider.value + fee.value,
    tier: 'micropayment',
    effectiveRate: '0.05',
    idempotencyKey: null,
    requestHash: '00'.repeat(32),
    challengedAt: acceptedAt.getTime(),
    acceptedAt: acceptedAt.getTime(),
    limit: null,
    ...payment,
  }
}

/** Stores a payment that has one transfer and didn't come through the gateway. */
export async function seedTransfer(sql: Database, change: Partial<StoredPayment>): Promise<SeededPayment> {
  const candidate = toCandidate(change)
  await storeCandidates(sql, [candidate])
  const { id: paymentId, payer, authorizations } = candidate
  const [{ nonce }] = authorizations
  return { paymentId, payer, nonces: [nonce, nonce] }
}

export type SeedPayment = {
  provider: SeedProvider
  endpointId?: string
  payer?: Address
  acceptedAt?: Date
  providerAmount?: bigint
  feeAmount?: bigint
  /** Splitter that receives both shares by one authorization. */
  splitter?: Address
  /** Unix seconds. */
  validBefore?: number
}

export type SeededPayment = { paymentId: string; payer: Address; nonces: [Hex, Hex] }

/** Stores a payment as `/verify` does, except for signatures and receipt, which no view reads. */
export async function seedPayment(sql: Database, options: SeedPayment): Promise<SeededPayment> {
  const { provider, endpointId = provider.endpointIds[0] ?? '', payer = randomHex(20) } = options
  const { acceptedAt = new Date(), providerAmount = 47_500n, feeAmount = 2_500n } = options
  const { splitter = null } = options
  const { validBefore = Math.floor(acceptedAt.getTime() / 1000) + 93_600 } = options
  const paymentId = newId('pay')
  const nonces: [Hex, Hex] = [randomHex(32), randomHex(32)]
  const half = (recipient: Address, value: bigint, nonce: Hex) =>
    seedHalf({ recipient, value, nonce, validBefore: BigInt(validBefore) })
  await storePayments(sql, [
    {
      id: paymentId,
      providerId: provider.providerId,
      endpointId,
      chainId: seedChainId,
      token: seedToken,
      payer,
      payee: provider.wallet,
      feeRecipient: seedPlatform,
      providerAmount,
      feeAmount,
      splitter,
      halves: splitter
        ? [half(splitter, providerAmount + feeAmount, nonces[0])]
        : [half(provider.wallet, providerAmount, nonces[0]), half(seedPlatform, feeAmount, nonces[1])],
      resource: 'https://weather.example/0',
      acceptedAt,
    },
  ])
  return { paymentId, payer, nonces }
}

/** Records that a block settled authorizations of a payment, as the index would show it. */
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
  const signed = await sql<
    { half: number; token: Address; payer: Address; nonce: Hex; to: Address; value: bigint }[]
  >`
    select half, token, authorizer as payer, nonce, recipient as "to", value from signed_authorization
    where payment_id = ${payment.paymentId} and half in ${sql(halves)}`
  const events = signed.map(({ half, payer, nonce, to, value }) => ({
    authorizer: payer,
    nonce,
    state: 'used' as const,
    recipient: to,
    value,
    txHash,
    logIndex: half * 2,
    blockNumber: BigInt(blockNumber),
    blockHash: blockHashOf(blockNumber),
    blockTime: BigInt(blockTime),
    batchLogIndex,
  }))
  const [first] = signed
  if (!first) return txHash
  const { token } = first
  await sql.begin((tx) => recordEvents(tx, { chainId: seedChainId, token }, events, 'index'))
  for (const { authorizer, nonce, recipient, value, logIndex } of events)
    await sql`
      insert into indexer.authorization (chain_id, token, authorizer, nonce, state, recipient, value,
        tx_hash, log_index, block_number, block_hash, block_time, batch_log_index)
      values (${seedChainId}, ${token}, ${authorizer}, ${nonce}, 'used', ${recipient}, ${value}, ${txHash}, ${logIndex},
        ${blockNumber}, ${blockHashOf(blockNumber)}, ${blockTime}, ${batchLogIndex})`
  return txHash
}

export function blockHashOf(blockNumber: number): Hex {
  return `0x${blockNumber.toString(16).padStart(64, '0')}`
}

/** Records a block in which a splitter was swept. */
export async function seedPayout(
  sql: Database,
  {
    splitter,
    blockNumber,
    platformRecipient = seedPlatform,
  }: { splitter: Address; provider: Address; blockNumber: number; platformRecipient?: Address },
): Promise<Hex> {
  const txHash = randomHex(32)
  const block = {
    blockNumber: BigInt(blockNumber),
    blockHash: blockHashOf(blockNumber),
    blockTime: 1_795_262_500n,
  }
  const isPlatformPaid = platformRecipient === seedPlatform
  await recordPayouts(sql, { chainId: seedChainId, token: seedToken }, [
    { ...block, splitter, logIndex: 3, txHash, isPlatformPaid },
  ])
  return txHash
}
