import type { Address, Hex } from 'viem'
import type { Database, Transaction } from '#keeper/store/database'

/** One half of a payment that passed every check, as it is stored. */
export type AcceptedHalf = {
  recipient: Address
  value: bigint
  validAfter: bigint
  validBefore: bigint
  nonce: Hex
  signature: Hex
  /** The block at which the chain said that an unbound nonce was unused; null for a bound one. */
  acceptedBlock: bigint | null
}

/** A payment that passed every check but uniqueness and the payer's limit. */
export type Candidate = {
  id: string
  requestId: string
  providerId: string
  endpointId: string
  chainId: number
  token: Address
  payer: Address
  payerHasCode: boolean
  halves: [provider: AcceptedHalf, fee: AcceptedHalf]
  price: bigint
  tier: string
  effectiveRate: string
  resource: string
  receipt: string
  idempotencyKey: string | null
  /** SHA-256 in hex of what was presented. */
  requestHash: string
  /** Unix milliseconds. */
  challengedAt: number
  acceptedAt: number
  /** What the payer's `accepted_total` may reach: its balance or cap, plus what of it is no longer owed. */
  limit: bigint | null
}

/**
 * - `accepted`: stored, durable
 * - `replayed`: its challenge or one of its authorizations was stored before
 * - `over_limit`: the payer's balance or cap doesn't cover it, as far as `limit` knew
 */
export type Verdict = 'accepted' | 'replayed' | 'over_limit'

/**
 * Stores candidates in one transaction: reserves the payers' balance, then inserts payments and authorizations.
 * What happens to one candidate doesn't touch the others.
 *
 * Concurrent callers can't deadlock: payers are locked first, in order, and rows are inserted in order of `requestId`.
 *
 * @returns one verdict a candidate, in order.
 */
export async function acceptPayments(database: Database, candidates: Candidate[]): Promise<Verdict[]> {
  return database.begin(async (sql) => {
    const totals = await reserve(sql, candidates)

    const verdicts = candidates.map((candidate): Verdict => {
      const total = totals.get(payerKey(candidate)) as Reservation
      if (candidate.limit !== null && total.before + sumOf(candidate) > candidate.limit) return 'over_limit'
      // Counted even if the insert below finds it replayed: at worst, one of this group is told to try again.
      total.before += sumOf(candidate)
      return 'accepted'
    })

    const stored = await insert(
      sql,
      candidates.filter((_, index) => verdicts[index] === 'accepted'),
    )
    const refused = candidates.filter((candidate, index) => {
      if (verdicts[index] === 'accepted' && !stored.has(candidate.id)) verdicts[index] = 'replayed'
      return verdicts[index] !== 'accepted'
    })
    if (refused.length > 0) await release(sql, refused)
    return verdicts
  }) as Promise<Verdict[]>
}

type Reservation = { chainId: number; token: Address; address: Address; sum: bigint; before: bigint }

function payerKey({ chainId, token, payer }: Candidate): string {
  return `${chainId}:${token}:${payer}`
}

function sumOf({ halves: [provider, fee] }: Candidate): bigint {
  return provider.value + fee.value
}

function sumByPayer(candidates: Candidate[]): Map<string, Reservation> {
  const sums = new Map<string, Reservation>()
  for (const candidate of candidates) {
    const key = payerKey(candidate)
    const { chainId, token, payer: address } = candidate
    const entry = sums.get(key) ?? { chainId, token, address, sum: 0n, before: 0n }
    entry.sum += sumOf(candidate)
    sums.set(key, entry)
  }
  return sums
}

function toRows(sums: Map<string, Reservation>) {
  return [...sums.values()].map(({ chainId, token, address, sum }) => ({
    chain_id: chainId,
    token,
    address,
    sum: sum.toString(),
  }))
}

/** Adds the group's sums to its payers' totals, which locks their rows, and says what each total was before. */
async function reserve(sql: Transaction, candidates: Candidate[]): Promise<Map<string, Reservation>> {
  const sums = sumByPayer(candidates)
  const rows = await sql<{ chainId: number; token: Address; address: Address; total: bigint }[]>`
    insert into payer (chain_id, token, address, accepted_total)
    select chain_id, token, address, sum
    from json_to_recordset(${JSON.stringify(toRows(sums))}::text::json) as given (chain_id int, token text, address text, sum numeric)
    order by chain_id, token, address
    on conflict (chain_id, token, address) do update
      set accepted_total = payer.accepted_total + excluded.accepted_total
    returning chain_id as "chainId", token, address, accepted_total as total`
  for (const { chainId, token, address, total } of rows) {
    const entry = sums.get(`${chainId}:${token}:${address}`) as Reservation
    entry.before = total - entry.sum
  }
  return sums
}

/** Inserts payments with both their authorizations, and says which of them are new in all their parts. */
async function insert(sql: Transaction, candidates: Candidate[]): Promise<Set<string>> {
  if (candidates.length === 0) return new Set()
  const rows = await sql<{ id: string }[]>`
    with given as materialized (
      select * from json_to_recordset(${JSON.stringify(candidates.map(toRow))}::text::json) as given (
        id text, request_id text, provider_id text, endpoint_id text, chain_id int, token text, payer text,
        payer_has_code boolean, price numeric, tier text, effective_rate text, resource text, receipt text,
        idempotency_key text, request_hash text, challenged_at float8, accepted_at float8,
        payee text, provider_amount numeric, valid_after bigint, valid_before bigint, nonce text, signature text,
        accepted_block bigint,
        fee_recipient text, fee_amount numeric, fee_valid_after bigint, fee_valid_before bigint, fee_nonce text,
        fee_signature text, fee_accepted_block bigint
      )
      order by request_id
    ), inserted as (
      insert into payment (id, request_id, provider_id, endpoint_id, chain_id, token, payer, payer_has_code, payee,
        fee_recipient, provider_amount, fee_amount, valid_before, price, tier, effective_rate, resource, receipt,
        idempotency_key, request_hash, challenged_at, accepted_at)
      select id, request_id, provider_id, endpoint_id, chain_id, token, payer, payer_has_code, payee,
        fee_recipient, provider_amount, fee_amount, least(valid_before, fee_valid_before), price, tier,
        effective_rate, resource, receipt, idempotency_key, decode(request_hash, 'hex'),
        to_timestamp(challenged_at / 1000), to_timestamp(accepted_at / 1000)
      from given
      on conflict do nothing
      returning id
    )
    insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after,
      valid_before, nonce, signature, accepted_block)
    select id, half, chain_id, token, payer, recipient, value, since, until, own_nonce,
      decode(substr(own_signature, 3), 'hex'), own_block
    from given
    join inserted using (id)
    cross join lateral (values
      (0, payee, provider_amount, valid_after, valid_before, nonce, signature, accepted_block),
      (1, fee_recipient, fee_amount, fee_valid_after, fee_valid_before, fee_nonce, fee_signature, fee_accepted_block)
    ) as halves (half, recipient, value, since, until, own_nonce, own_signature, own_block)
    on conflict do nothing
    returning payment_id as id`
  const parts = new Map<string, number>()
  for (const { id } of rows) parts.set(id, (parts.get(id) ?? 0) + 1)
  return new Set(candidates.map(({ id }) => id).filter((id) => parts.get(id) === 2))
}

/** Takes back what refused candidates reserved, and what was inserted of those whose authorization was known. */
async function release(sql: Transaction, refused: Candidate[]): Promise<void> {
  await sql`delete from payment where id in ${sql(refused.map(({ id }) => id))}`
  await sql`
    update payer
    set accepted_total = payer.accepted_total - given.sum
    from json_to_recordset(${JSON.stringify(toRows(sumByPayer(refused)))}::text::json)
      as given (chain_id int, token text, address text, sum numeric)
    where payer.chain_id = given.chain_id and payer.token = given.token and payer.address = given.address`
}

function toRow(candidate: Candidate) {
  const [provider, fee] = candidate.halves
  return {
    id: candidate.id,
    request_id: candidate.requestId,
    provider_id: candidate.providerId,
    endpoint_id: candidate.endpointId,
    chain_id: candidate.chainId,
    token: candidate.token,
    payer: candidate.payer,
    payer_has_code: candidate.payerHasCode,
    price: candidate.price.toString(),
    tier: candidate.tier,
    effective_rate: candidate.effectiveRate,
    resource: candidate.resource,
    receipt: candidate.receipt,
    idempotency_key: candidate.idempotencyKey,
    request_hash: candidate.requestHash,
    challenged_at: candidate.challengedAt,
    accepted_at: candidate.acceptedAt,
    payee: provider.recipient,
    provider_amount: provider.value.toString(),
    valid_after: Number(provider.validAfter),
    valid_before: Number(provider.validBefore),
    nonce: provider.nonce,
    signature: provider.signature,
    accepted_block: provider.acceptedBlock === null ? null : Number(provider.acceptedBlock),
    fee_recipient: fee.recipient,
    fee_amount: fee.value.toString(),
    fee_valid_after: Number(fee.validAfter),
    fee_valid_before: Number(fee.validBefore),
    fee_nonce: fee.nonce,
    fee_signature: fee.signature,
    fee_accepted_block: fee.acceptedBlock === null ? null : Number(fee.acceptedBlock),
  }
}
