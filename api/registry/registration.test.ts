import type { Registration } from '@tollkeeper/api/http/settings'
import { describe, expect, test } from 'vitest'
import { call } from '../../test/support/gateway.ts'
import { useGateway } from '../../test/support/useGateway.ts'

const gateway = useGateway()
const at = (registration: Registration) => gateway.another({ registration, trustedProxies: 1 })

async function register(on: ReturnType<typeof at>, headers: Record<string, string> = {}) {
  const {
    status,
    body,
    headers: answered,
  } = await call(on, 'POST', '/providers', {
    json: { name: 'Weather' },
    headers,
  })
  return { status, code: body.code, detail: body.detail, retryAfter: answered.get('retry-after') }
}

test('args: token: registration requires the operator’s token', async () => {
  const token = 'a-token-of-the-operator'
  const on = at({ mode: 'token', token })
  expect(await register(on)).toMatchObject({ status: 401, code: 'unauthorized' })
  expect((await register(on, { 'registration-token': `${token}x` })).status).toBe(401)
  expect((await register(on, { 'registration-token': token })).status).toBe(201)
})

test('error: closed registration refuses any token and explains who can register', async () => {
  const on = at({ mode: 'closed' })
  expect(await register(on, { 'registration-token': 'x' })).toMatchObject({
    status: 403,
    code: 'registration_closed',
    detail: expect.stringContaining('tollkeeper provider create --operator'),
  })
})

describe('args: open', () => {
  const from = (address: string) => ({ 'x-forwarded-for': address })

  test('behavior: hourly limits per /64 and in total are exact over parallel processes, and start again in the next hour', async () => {
    const start = Date.UTC(2027, 0, 1, 12, 30)
    gateway.setNow(start)
    const limits = { address: 3, total: 5 }
    const processes = [at({ mode: 'open', limits }), at({ mode: 'open', limits })] as const
    const statuses = async (addresses: string[]) => {
      const answers = addresses.map((address, i) => register(processes[i % 2] as never, from(address)))
      return (await Promise.all(answers)).map(({ status }) => status).sort()
    }
    const before = await count()
    // One subscriber owns all addresses of a /64.
    const subscriber = Array.from({ length: 6 }, (_, i) => `2001:db8:1:2::${i + 1}`)
    expect(await statuses(subscriber)).toEqual([201, 201, 201, 429, 429, 429])
    // Refused registrations didn't use up the total limit.
    expect(await statuses(['192.0.2.1', '192.0.2.2', '192.0.2.3'])).toEqual([201, 201, 429])
    expect(await count()).toBe(before + 5)
    expect(await register(processes[0], from('192.0.2.9'))).toMatchObject({
      status: 429,
      code: 'rate_limited',
      retryAfter: '1800',
    })
    gateway.setNow(start + 1_800_000)
    expect(await statuses(['2001:db8:1:2::1', '192.0.2.1'])).toEqual([201, 201])
    const [row] = await gateway.database`select count(distinct ends_at)::int as windows from quota`
    expect(row?.windows).toBe(1)
  })

  async function count(): Promise<number> {
    const [row] = await gateway.database<[{ count: number }]>`select count(*)::int as count from provider`
    return row.count
  }
})
