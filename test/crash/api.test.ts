import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { decodeJwt } from 'jose'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import {
  openShop,
  type Shop,
  signedBody,
  startGateway,
  type TestGateway,
  type VerifyBody,
} from '../support/gateway.ts'
import { death, killAll, portOf, startChild } from './children.ts'
import type { CrashingApiOptions } from './crashingApi.ts'

const macaroonKey = '07'.repeat(32)

let gateway: TestGateway
let shop: Shop
let folder: string
beforeAll(async () => {
  gateway = await startGateway({ macaroonSecrets: [{ kid: 'test', key: Buffer.from(macaroonKey, 'hex') }] })
  shop = await openShop(gateway.app)
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-crash-'))
  await writeFile(join(folder, 'deployments.json'), JSON.stringify(gateway.chain.deployments))
})
afterEach(killAll)
afterAll(async () => {
  await gateway?.close()
  await rm(folder, { recursive: true, force: true })
})

function startApi(crashAt: CrashingApiOptions['crashAt']) {
  const { macaroonSecrets, ...settings } = gateway.settings
  return startChild('crashingApi.ts', {
    databaseUrl: gateway.databaseUrl,
    rpcUrl: gateway.chain.url,
    deploymentsFile: join(folder, 'deployments.json'),
    receiptKeyFile: join(folder, 'receipt-keys.json'),
    settings,
    macaroonKey,
    crashAt,
  } satisfies CrashingApiOptions)
}

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
  'behavior: a gateway dies %s: the same request again is accepted once and gets one answer',
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
    // What was committed is what is answered: the same payment, with a receipt of then.
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
    // What it reserved of the payer's balance, it reserved once.
    const [reserved] = await gateway.database<{ total: bigint }[]>`
      select accepted_total as total from payer where address = ${payer.address.toLowerCase()}`
    expect(reserved?.total).toBe(50_000n)
  },
)
