import { decodeJwt } from 'jose'
import { expect, test } from 'vitest'
import { signedBody, type VerifyBody } from '../support/gateway.ts'
import { death, portOf } from './children.ts'
import { useCrashingApi } from './useCrashingApi.ts'

const { gateway, shop, startApi } = useCrashingApi()

async function verify(port: number, body: VerifyBody, idempotencyKey: string) {
  const response = await fetch(`http://127.0.0.1:${port}/verify`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'idempotency-key': idempotencyKey },
    body: JSON.stringify(body),
  })
  const { receipt, ...rest } = (await response.json()) as Record<string, unknown>
  return { status: response.status, body: rest, claims: receipt && decodeJwt(receipt as string) }
}

test.each(['before-commit', 'after-commit'] as const)(
  'behavior: if the gateway dies at %s and a request is repeated, the gateway accepts the request only once',
  async (crashAt) => {
    const payer = await gateway.buyer(60_000n)
    const body = await signedBody(gateway, shop, payer)
    const dying = startApi(crashAt)
    const died = death(dying)
    await expect(verify(await portOf(dying), body, 'first')).rejects.toThrow()
    await died
    const find = () => gateway.database<{ id: string; at: Date }[]>`
      select id, accepted_at as at from payment join presentation on payment_id = id where payer = ${payer.address.toLowerCase()}`
    const committed = await find()
    expect(committed).toHaveLength(crashAt === 'after-commit' ? 1 : 0)

    const port = await portOf(startApi(null))
    const answer = await verify(port, body, 'first')
    expect(answer).toMatchObject({ status: 200, body: { verified: true } })
    // The answer shows the committed payment: the same id, and a receipt with the time of its acceptance.
    const [stored, ...more] = await find()
    expect(more).toEqual([])
    expect(answer.body).toMatchObject({ paymentId: stored?.id })
    expect(answer.claims).toMatchObject({ paymentId: stored?.id, timestamp: stored?.at.toISOString() })
    if (committed[0]) expect(stored).toEqual(committed[0])
    expect(await verify(port, body, 'first')).toEqual(answer)
    expect(await verify(port, body, 'second')).toMatchObject({
      status: 409,
      body: { code: 'payment_replayed', paymentId: stored?.id },
    })
    // The payer's balance was reserved only once.
    const [reserved] = await gateway.database<{ total: bigint }[]>`
      select accepted_total as total from payer where address = ${payer.address.toLowerCase()}`
    expect(reserved?.total).toBe(50_000n)
  },
)
