import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { seedHalf, seedPayment, seedProvider, toCandidate } from '../../../test/support/seedPayments.ts'
import { acceptPayments, type Candidate } from '../acceptance/acceptPayments.ts'
import { storeRefund } from '../acceptance/refunds.ts'
import { changeSales, createSalesSwitch, listSalesChanges, readSalesStop } from './salesStop.ts'

const sql = await useDatabase()
const provider = await seedProvider(sql)
const change = (isStopped: boolean, reason = '') =>
  changeSales(sql, { isStopped, reason, changedBy: 'me@here' })

const candidateOf = (source: Candidate['source']) =>
  toCandidate({
    source,
    providerId: source === 'gateway' ? provider.providerId : null,
    feeAmount: 0n,
    halves: [seedHalf({ value: 1n })],
    acceptedAt: new Date(),
    ...(source === 'facilitator' && { facilitation: { providerId: null, paymentIdentifier: null } }),
  })

test('behavior: the latest change decides whether sales are stopped, and all changes are kept', async () => {
  expect(await readSalesStop(sql)).toBeNull()
  await change(true, 'Moving')
  expect(await readSalesStop(sql)).toEqual({ reason: 'Moving', stoppedAt: expect.any(Date) })
  await change(false)
  expect(await readSalesStop(sql)).toBeNull()
  expect(await listSalesChanges(sql, 5)).toMatchObject([
    { isStopped: false, reason: '', changedBy: 'me@here' },
    { isStopped: true, reason: 'Moving', changedBy: 'me@here' },
  ])
})

test.each(['facilitator', 'submission'] as const)(
  'error: rejects all payments of source %s in a group while sales are stopped',
  async (source) => {
    const [first, second] = [candidateOf(source), candidateOf(source)]
    await change(true)
    expect(await acceptPayments(sql, [first, candidateOf(source)])).toEqual(['stopped', 'stopped'])
    expect(await sql`select from payment where id = ${first.id}`).toHaveLength(0)
    await change(false)
    expect(await acceptPayments(sql, [second])).toEqual(['accepted'])
    await change(true)
    expect(await acceptPayments(sql, [second])).toEqual(['replayed'])
    await change(false)
  },
)

test('behavior: stores a refund while sales are stopped', async () => {
  const { paymentId } = await seedPayment(sql, { provider })
  await change(true)
  const of = { paymentId, number: 1, providerId: provider.providerId }
  expect(await storeRefund(sql, of, candidateOf('refund'))).toBe('accepted')
  await change(false)
})

test('behavior: a process’s sales switch rejects payments with the operator’s reason while sales are stopped, and notices when sales start or stop', async () => {
  await change(true, 'Moving')
  await expect(createSalesSwitch(sql).requireOpen()).rejects.toMatchObject({
    code: 'sales_stopped',
    message: 'The operator has stopped sales: Moving. Nothing was charged',
    details: { reason: 'Moving', stopped_at: expect.any(String) },
  })
  const open = createSalesSwitch(sql)
  await change(false)
  await open.requireOpen()
  await change(true)
  await expect.poll(() => open.read(), { timeout: 5_000 }).not.toBeNull()
  await change(false)
})
