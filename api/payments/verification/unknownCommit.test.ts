import { expect, test } from 'vitest'
import { useCutOffShop } from '../../../test/support/cutOffShop.ts'
import { call } from '../../../test/support/gateway.ts'
import { until } from '../../../test/support/until.ts'

// Postgres commits but its answer is lost, so the gateway doesn't know whether the payment was accepted. Each buyer must either be served
// or not be charged.

/** The beginning of an array of payment rows: only the statement that stores payments sends one. */
const storing = '{"(pay_'
const buyers = 10

const cutOff = useCutOffShop()
const { gateway, shop, signAll, stored, openGate, present } = cutOff

test('behavior: if the answer to a commit is lost, the gateway finds out by itself what was stored, and every buyer gets a receipt', async () => {
  const bodies = await signAll(buyers)
  cutOff.proxy.loseAnswersTo(storing, 1)
  const answers = await Promise.all(
    bodies.map((json) => call<{ paymentId: string }>(cutOff.app, 'POST', '/verify', { json })),
  )
  expect(answers.map(({ status }) => status)).toEqual(Array(buyers).fill(200))
  const payments = await stored()
  expect(payments.map(({ id }) => id)).toEqual(answers.map(({ body }) => body.paymentId).sort())
  const totals = await gateway.database<{ total: bigint }[]>`
    select accepted_total as total from payer join payment on payment.payer = payer.address
    where provider_id = ${shop.providerId}`
  expect(totals.map(({ total }) => total)).toEqual(Array(buyers).fill(50_000n))
})

test('behavior: if the gateway does not find out what was stored, the middleware asks until the gateway knows, and then serves the requests', async () => {
  const bodies = await signAll(buyers)
  const gate = await openGate(60_000)
  cutOff.proxy.loseAnswersTo(storing, 8)
  const decisions = await Promise.all(bodies.map((body) => present(gate, body)))
  expect(decisions.map(({ kind }) => kind)).toEqual(Array(buyers).fill('serve'))
  const paid = decisions.map((decision) => (decision.kind === 'serve' ? decision.payment.paymentId : ''))
  expect(await stored()).toEqual(paid.sort().map((id) => ({ id, voided: false })))
})

test('behavior: if the middleware stops waiting before it learns what the gateway stored, it serves no request, and the stored payments are voided', async () => {
  const bodies = await signAll(buyers)
  // Long enough for a busy machine to store all of them.
  const gate = await openGate(4_000)
  cutOff.proxy.loseAnswersTo(storing, Number.POSITIVE_INFINITY)
  const decisions = await Promise.all(bodies.map((body) => present(gate, body)))
  for (const decision of decisions) {
    expect(decision).toMatchObject({ kind: 'answer', answer: { status: 503 } })
  }
  cutOff.proxy.mend()
  await until('all are stored', async () => (await stored()).length === buyers)
  await until('no buyer is charged', async () => (await stored()).every(({ voided }) => voided))
})
