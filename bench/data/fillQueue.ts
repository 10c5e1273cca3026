import type { Address } from 'viem'
import type { Database } from '#ledger/store/database'
import { createIndexTables } from '../../test/support/indexTables.ts'

export type QueueSize = {
  payments: number
  chainId: number
  token: Address
  feeRecipient: Address
}

/** Of one provider wallet: not enough to fire a trigger by count or amount. */
const paymentsOfWallet = 90

/** Fills a queue: payments of 0.005 USDC of very many provider wallets. The oldest thousand
 * are due by their age. */
export async function fillQueue(sql: Database, { payments, chainId, token, feeRecipient }: QueueSize) {
  await createIndexTables(sql)
  const connection = await sql.reserve()
  try {
    // Foreign keys are right by construction here; indexes are made once, at the end.
    await connection`set session_replication_role = replica`
    await connection`set synchronous_commit = off`
    await connection`set maintenance_work_mem = '256MB'`
    const indexes = await connection<{ name: string; definition: string }[]>`
      select indexname as name, indexdef as definition from pg_indexes
      where schemaname = current_schema and tablename in ('payment', 'queue', 'signed_authorization', 'presentation')
        and indexname not in (select conname from pg_constraint)`
    for (const { name } of indexes) await connection`drop index ${connection(name)}`
    await connection`insert into provider (id, name) values ('prov_' || md5(''), 'Weather')`
    await connection`
      insert into payer (chain_id, token, address)
      select distinct ${chainId}::int, ${token}, '0x' || lpad(to_hex(n / 200), 40, '0')
      from generate_series(0, ${payments}::int - 1) n`
    // Numbers in ascending order fill the keys' indexes from left to right.
    await connection`
      insert into payment (id, source, request_id, provider_id, endpoint_id, chain_id, token, payer, payee, fee_recipient, price,
        provider_amount, fee_amount, valid_before, tier, effective_rate, resource, challenged_at,
        accepted_at)
      select 'pay_' || lpad(to_hex(n), 32, '0'), 'gateway', 'req_' || lpad(to_hex(n), 32, '0'), 'prov_' || md5(''), 'ep_' || md5(''),
        ${chainId}::int, ${token}, '0x' || lpad(to_hex(n / 200), 40, '0'),
        '0x' || lpad(to_hex(n / ${paymentsOfWallet}::int), 40, '0'), ${feeRecipient}, 5000, 4500, 500,
        extract(epoch from now())::bigint + 93600, 'ultra-micro', '0.1', 'https://api.example/', now(),
        now() - case when n < 1000 then interval '2 hours' else interval '30 minutes' end * (1 - n / ${payments}::float8)
      from generate_series(0, ${payments}::int - 1) n`
    await connection`
      insert into queue_group (chain_id, token, fee_recipient) values (${chainId}, ${token}, ${feeRecipient})`
    await connection`
      insert into queue (payment_id, group_id, stage, provider_id, payer, payee, provider_amount, fee_amount, accepted_at,
        valid_before)
      select p.id, g.id, 'waiting', p.provider_id, p.payer, p.payee, p.provider_amount, p.fee_amount, p.accepted_at, p.valid_before
      from payment p cross join queue_group g order by p.id`
    await connection`
      insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after,
        valid_before, nonce)
      select 'pay_' || lpad(to_hex(n), 32, '0'), half, ${chainId}::int, ${token}, '0x' || lpad(to_hex(n / 200), 40, '0'),
        case half when 0 then '0x' || lpad(to_hex(n / ${paymentsOfWallet}::int), 40, '0') else ${feeRecipient} end,
        case half when 0 then 4500 else 500 end, 0, extract(epoch from now())::bigint + 93600,
        '0x' || lpad(to_hex(2 * n + half), 64, '0')
      from generate_series(0, ${payments}::int - 1) n cross join generate_series(0, 1) half`
    await connection`
      insert into presentation (payment_id, request_hash, signature, fee_signature)
      select id, '', decode(repeat('11', 65), 'hex'), decode(repeat('11', 65), 'hex')
      from payment order by id`
    for (const { definition } of indexes) await connection.unsafe(definition)
    await connection`vacuum (analyze) payment, queue, signed_authorization, presentation, payer`
    await connection`set session_replication_role = origin`
    await connection`set synchronous_commit = on`
  } finally {
    connection.release()
  }
}
