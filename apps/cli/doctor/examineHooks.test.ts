import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { seedProvider } from '../../../test/support/seedPayments.ts'
import { examineHooks } from './examineHooks.ts'

const sql = await useDatabase()

test('warns about a hook whose address is refused, and names its provider', async () => {
  expect(await examineHooks(sql, false)).toMatchObject({ status: 'ok', found: 'no provider has a hook' })
  const { providerId } = await seedProvider(sql)
  const setUrl = (url: string) => sql`
    insert into accept_hook (provider_id, url, secret) values (${providerId}, ${url}, 'whsec_c2VjcmV0')
    on conflict (provider_id) do update set url = excluded.url`
  await setUrl('https://8.8.8.8/hook')
  expect(await examineHooks(sql, false)).toMatchObject({
    status: 'ok',
    found: expect.stringMatching(/^1 provider has/),
  })
  await setUrl('https://10.0.0.1/hook')
  expect(await examineHooks(sql, false)).toMatchObject({
    status: 'warn',
    found: expect.stringContaining(providerId),
  })
  expect(await examineHooks(sql, true)).toMatchObject({ status: 'ok' })
})
