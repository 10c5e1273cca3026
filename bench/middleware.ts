/**
 * What the middleware adds to a request with a payment: its time, less the same handler's without it and the gateway's
 * own for a verification. One request at a time, the three kinds by turns, so that they meet the same machine.
 */
import { randomUUID } from 'node:crypto'
import { parseArgs } from 'node:util'
import { encodeAuthorizationHeader } from '#protocol/authorizationHeader'
import type { Challenge } from '#protocol/challenge'
import { type Line, openLines, renderGet, renderPost } from './gateway/load.ts'
import { type Buyer, createSigner, type Rig, startRig, usdcPerUnit } from './gateway/rig.ts'
import { median, percentile, round2 } from './support/statistics.ts'

export type MiddlewareReport = {
  /** Of a paid request, less `handlerP50Ms` and `verifyP50Ms`. */
  addedP50Ms: number
  paidP50Ms: number
  paidP99Ms: number
  handlerP50Ms: number
  verifyP50Ms: number
}

export async function run(args: string[]): Promise<MiddlewareReport> {
  const { values } = parseArgs({
    args,
    options: {
      json: { type: 'boolean', default: false },
      requests: { type: 'string', default: '1000' },
    },
  })
  const rig = await startRig({ buyers: 100 })
  try {
    return await measure(rig, Number(values.requests))
  } finally {
    await rig.close()
  }
}

async function measure(rig: Rig, requests: number): Promise<MiddlewareReport> {
  const { shop } = rig
  const provider = await rig.startServer('providerServer.ts', [
    rig.api.url,
    shop.providerId,
    usdcPerUnit,
    new URL(shop.url).origin,
  ])
  const signer = createSigner(rig)
  const [toProvider] = (await openLines(provider.port, 1)) as [Line]
  const [toGateway] = (await openLines(rig.apiPort, 1)) as [Line]
  const times = { paid: [] as number[], handler: [] as number[], verify: [] as number[] }
  const free = renderGet('/free')
  const warmup = Math.ceil(requests / 5)

  for (let i = -warmup; i < requests; i++) {
    const buyer = rig.buyers[(i + warmup) % rig.buyers.length] as Buyer
    // The challenge comes from the middleware, as a buyer's does.
    const unpaid = await toProvider.send(renderGet('/forecast'))
    const paid = signer.sign(buyer, JSON.parse(unpaid.body.toString()) as Challenge)
    const direct = signer.sign(buyer, await challenge(toGateway, rig))
    const authorization = encodeAuthorizationHeader(paid)

    const took = {
      paid: await time(toProvider, renderGet('/forecast', { authorization })),
      handler: await time(toProvider, free),
      verify: await time(toGateway, renderPost('/verify', direct, { 'idempotency-key': randomUUID() })),
    }
    if (i < 0) continue
    for (const kind of ['paid', 'handler', 'verify'] as const) times[kind].push(took[kind])
  }
  toProvider.close()
  toGateway.close()
  const [paid, handler, verify] = [median(times.paid), median(times.handler), median(times.verify)]
  return {
    addedP50Ms: round2(paid - handler - verify),
    paidP50Ms: round2(paid),
    paidP99Ms: round2(percentile(times.paid, 0.99)),
    handlerP50Ms: round2(handler),
    verifyP50Ms: round2(verify),
  }
}

async function challenge(line: Line, { shop }: Rig): Promise<Challenge> {
  const [endpointId] = shop.endpointIds
  const { body } = await line.send(
    renderPost('/challenge', { providerId: shop.providerId, endpointId, resource: shop.url }),
  )
  return JSON.parse(body.toString()) as Challenge
}

async function time(line: Line, request: Buffer): Promise<number> {
  const began = performance.now()
  const { status, body } = await line.send(request)
  const ms = performance.now() - began
  if (status !== 200) throw new Error(`answered ${status}: ${body.toString().slice(0, 500)}`)
  return ms
}
