import { expect, test } from 'vitest'
import { useCutOffShop } from '../../../test/support/cutOffShop.ts'
import { call, signedBody, type VerifyBody } from '../../../test/support/gateway.ts'

// Postgres stalls for longer than the callers wait. A payment that reaches it afterwards is not accepted.

const buyers = 10

const cutOff = useCutOffShop()
const { gateway, shop, signAll, stored, openGate, present } = cutOff

test('behavior: a payment that reaches a stalled Postgres after its caller has left is not accepted', async () => {
  const bodies = await signAll(buyers)
  const [first, ...others] = bodies
  const verify = (json: VerifyBody | undefined) =>
    call<{ paymentId: string }>(cutOff.app, 'POST', '/verify', { json, headers: { prefer: 'wait=1' } })
  expect((await verify(first)).status).toBe(200)
  cutOff.proxy.stall()
  const gone = others.map(verify)
  // Waits until the callers' deadline has passed by the database's clock, which decides whether a payment is too late.
  await gateway.database`select pg_sleep(1.6)`
  cutOff.proxy.mend()
  expect((await Promise.all(gone)).map(({ status }) => status)).toEqual(Array(buyers - 1).fill(503))
  expect(await stored()).toHaveLength(1)
  const totals = await gateway.database<{ total: bigint }[]>`
    select accepted_total as total from payer where address = any(${others.map(({ payloads }) => payloads[0].slice(0, 42))})`
  expect(totals.filter(({ total }) => total !== 0n)).toEqual([])
  // One of the refused requests is stored if it is sent again and arrives in time.
  expect((await verify(others[0])).status).toBe(200)
})

test('behavior: no buyer is charged without service if the middleware stopped waiting while Postgres stalled', async () => {
  const bodies = await signAll(buyers)
  const gate = await openGate(2_000)
  await present(gate, await signedBody(gateway, shop, await gateway.buyer(50_000n)))
  cutOff.proxy.stall()
  const asking: Promise<unknown>[] = []
  const decisions = await Promise.all(bodies.map((body) => present(gate, body, (work) => asking.push(work))))
  for (const decision of decisions)
    expect(decision).toMatchObject({ kind: 'answer', answer: { status: 503 } })
  // The gateway counts the waiting time from when it receives the request. On a busy machine, that may be long after the middleware sent it.
  await gateway.database`select pg_sleep(1)`
  cutOff.proxy.mend()
  // After that, the middleware asks about each payment. Its questions cause no acceptance.
  await Promise.all(asking)
  expect(asking).toHaveLength(buyers)
  expect(await stored()).toMatchObject([{ voided: false }])
})
