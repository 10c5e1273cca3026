import { beforeAll, expect, test } from 'vitest'
import { collectBadRows, noBadRows, refuseWrites } from '../../../test/support/badRows.ts'
import { useDatabase } from '../../../test/support/database.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { newId } from '../store/identifiers.ts'
import { createRetention } from './retention.ts'

const database = await useDatabase()
const providerId = newId('prov')
const webhookId = newId('wh')
beforeAll(async () => {
  await database`insert into provider (id, name) values (${providerId}, 'Weather')`
  await database`
    insert into webhook (id, provider_id, url, events, secret)
    values (${webhookId}, ${providerId}, 'http://127.0.0.1:9/', '{payment.settled}', 'whsec_')`
})

const day = 86_400_000
const now = Date.now()
const daysAgo = (days: number) => new Date(now - days * day)

/** Deletes two rows per page until all tables were walked twice. */
async function forget() {
  const step = createRetention(database, { days: 30, now: () => now, limit: 2, onBadRow: noBadRows })
  for (let page = 0; page < 12; page++) await step()
}

async function tell(createdAt: Date, dispatchedAt: Date | null = createdAt): Promise<bigint> {
  const [row] = await database<[{ id: bigint }]>`
    insert into outbox (event, provider_id, data, created_at, dispatched_at)
    values ('batch.confirmed', ${providerId}, '{}', ${createdAt}, ${dispatchedAt}) returning id`
  return row.id
}

async function deliver(outboxId: bigint, nextAttemptAt: Date | null, startedAt = daysAgo(40)): Promise<void> {
  const id = newId('whd')
  await database`
    insert into webhook_delivery (id, outbox_id, webhook_id, message_id, attempts, next_attempt_at, created_at)
    values (${id}, ${outboxId}, ${webhookId}, ${id}, 1, ${nextAttemptAt}, ${daysAgo(40)})`
  await database`insert into webhook_attempt (delivery_id, attempt, started_at) values (${id}, 1, ${startedAt})`
}

test('default: deletes old messages with their log, and keeps recent, due and undispatched messages', async () => {
  // The rows that are kept come first, so a walk that restarted at each page would never reach the rows to delete.
  const due = await tell(daysAgo(40))
  await deliver(due, daysAgo(-1))
  const undispatched = await tell(daysAgo(40), null)
  const mailed = await tell(daysAgo(40))
  await database`
    insert into confirmed_contact (provider_id, address, confirmed_at) values (${providerId}, 'a@b.example', now())`
  await database`insert into mail_notice (outbox_id, provider_id) values (${mailed}, ${providerId})`
  // The message is old, but it was delivered late, because the receiver didn't answer for days or because someone sent the message again.
  const late = await tell(daysAgo(40))
  await deliver(late, null, daysAgo(29))
  const delivered = await tell(daysAgo(40))
  await deliver(delivered, null)
  await tell(daysAgo(31))
  const young = await tell(daysAgo(29))
  await deliver(young, null)
  await forget()
  const left = await database<{ id: bigint }[]>`select id from outbox order by id`
  expect(left.map(({ id }) => id)).toEqual([due, undispatched, mailed, late, young])
  const log = await database<{ outboxId: bigint; attempts: number }[]>`
    select outbox_id as "outboxId", (select count(*)::int from webhook_attempt a where a.delivery_id = d.id) as attempts
    from webhook_delivery d order by outbox_id`
  expect(log).toEqual([
    { outboxId: due, attempts: 1 },
    { outboxId: late, attempts: 1 },
    { outboxId: young, attempts: 1 },
  ])
})

async function send(resolvedAt: Date | null, state: 'mined' | 'closed') {
  const [wallet, hash] = [randomHex(20), randomHex(32)]
  await database`
    with made as (
      insert into batch (batch_id, chain_id, token, fee_recipient, trigger, lane, wallet, fence, state, result, closed_at)
      values (${randomHex(32)}, 31337, ${randomHex(20)}, ${randomHex(20)}, 'count', 'shared', ${wallet}, 1, ${state},
        ${state === 'closed' ? 'settled' : null}, ${state === 'closed' ? daysAgo(40) : null})
      returning id
    )
    insert into transaction (hash, batch_id, chain_id, wallet, nonce, kind, raw, gas, max_fee_per_gas,
      max_priority_fee_per_gas, resolved_at)
    select ${hash}, made.id, 31337, ${wallet}, 0, 'settle', '\\x02', 1, 1, 1, ${resolvedAt} from made`
  return hash
}

test('default: deletes the bytes of transactions some time after their nonce is resolved and their batch is closed', async () => {
  const kept = [
    await send(null, 'mined'),
    await send(daysAgo(40), 'mined'),
    await send(daysAgo(29), 'closed'),
  ]
  const gone = [await send(daysAgo(40), 'closed'), await send(daysAgo(31), 'closed')]
  await forget()
  const rows = await database<{ hash: string }[]>`select hash from transaction where raw is not null`
  expect(rows.map(({ hash }) => hash).sort()).toEqual([...kept].sort())
  const [left] =
    await database`select count(*)::int as count from transaction where hash in ${database(gone)}`
  expect(left).toEqual({ count: 2 })
  // Bytes that may have to be sent again can't be deleted.
  const open = database`update transaction set raw = null where hash = ${kept[0] ?? ''}`
  await expect(open).rejects.toMatchObject({ code: '23514' })
})

test.each(['check_violation', 'query_canceled'])(
  'behavior: 200 rows that can’t be deleted (%s) don’t delay others',
  async (code) => {
    await database`truncate outbox cascade`
    const bad: bigint[] = []
    for (let n = 0; n < 200; n++) bad.push(await tell(daysAgo(50)))
    const good = await tell(daysAgo(50))
    const allow = await refuseWrites(
      database,
      'outbox',
      'delete',
      `old.id between ${bad[0]} and ${bad.at(-1)}`,
      code,
    )
    const reports = collectBadRows()
    const step = createRetention(database, {
      days: 30,
      now: () => now,
      limit: 250,
      onBadRow: reports.onBadRow,
    })
    while ((await step()) === 'busy');
    const left = await database<
      { id: bigint }[]
    >`select id from outbox where id >= ${bad[0] as bigint} order by id`
    expect(left.map(({ id }) => id)).toEqual(bad)
    expect(left).not.toContain(good)
    expect(reports.bad.map(({ row }) => row.row)).toEqual(bad.map(String))
    await allow()
    while ((await step()) === 'busy');
    expect(await database`select from outbox where id >= ${bad[0] as bigint}`).toEqual([])
  },
)
