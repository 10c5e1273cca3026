import type { Database } from '@tollkeeper/ledger/store/database'
import { seedPlatform } from '../../test/support/seedPayments.ts'
import { seedTabSettlement } from '../../test/support/seedTabs.ts'
import type { ViewsSize } from './fillViews.ts'

/** One in this many stored tabs is open; the others are kept for their receipts. */
const openShare = 20

/**
 * Fills the tab store as it looks after a month: one tab for each 20 sales. One in twenty tabs is open. Each tab has items of two
 * providers: in three of ten tabs, the first item is provider 0's; all other items are spread evenly over all providers.
 */
export async function fillOpenTabs(
  sql: Database,
  { payments, providers, chainId, token, now }: ViewsSize,
): Promise<void> {
  const tabs = sql`(
    select n, decode(left(md5('buyer ' || n % 5000) || md5('b' || n % 5000), 40), 'hex') as payer, decode(md5('open tab ' || n), 'hex') as id,
      ${now}::timestamptz - n * interval '20 seconds' as opened_at, n % ${openShare} = 0 as is_open
    from generate_series(0, ${Math.floor(payments / 20)}::int - 1) n
  )`
  await sql`
    insert into tabs.tab (payer, id, chain_id, token, contract, platform, reward_share, nonce, expires_at, has_code, payment_id, opened_at,
      closed_at, close_reason, taken_at, reserved, lent, credit, used_at, requests, sequence, charged, bought)
    select payer, id, ${chainId}::int, decode(substr(${token}, 3), 'hex'), decode(substr(${seedTabSettlement}, 3), 'hex'),
      decode(substr(${seedPlatform}, 3), 'hex'), 500, sha256(id), extract(epoch from opened_at)::bigint + 93600, false,
      'pay_' || md5('open tab ' || n), opened_at, case when not is_open then opened_at end, case when not is_open then 'idle' end,
      case when not is_open then opened_at end, 1000000, 0, 10000000, opened_at, 40, 40, '{1000000,1000000}',
      array[20, 1000000, extract(epoch from opened_at)::bigint * 1000, 20, 1000000, extract(epoch from opened_at)::bigint * 1000]
    from ${tabs} tab`
  await sql`
    insert into tabs.line (payer, tab_id, position, split)
    select payer, id, position, sha256(id || position::text::bytea) from ${tabs} tab cross join generate_series(0, 1) position`
  await sql`
    insert into tabs.item (payer, tab_id, number, position, provider_id, endpoint_id, opened_at, is_taken)
    select payer, id, position, position, 'prov_' || md5('provider ' || provider), 'ep_' || md5('endpoint ' || provider || ' ' || n % 5),
      date_trunc('milliseconds', opened_at), not is_open
    from ${tabs} tab cross join generate_series(0, 1) position
    cross join lateral (
      select case when position = 0 and n / ${openShare} % 10 < 3 then 0 else (n / ${openShare} + position) % ${providers} end as provider
    ) seller`
}
