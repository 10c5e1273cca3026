// Creates payments for the benches of `/verify`.

import { randomUUID } from 'node:crypto'
import type { Challenge } from '@tollkeeper/sdk/protocol/challenge'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { randomHex } from '../../test/support/usdc.ts'
import { type Buyer, createAuthorizer, type PaymentKind, signChallenge } from '../data/signPayments.ts'
import { countWrites } from '../support/benchEnv.ts'
import { type Answer, type Requests, renderPost, send } from './load.ts'
import { type Rig, usdcPerUnit } from './rig.ts'

/** Number of connections of the load generator. */
export const connections = 50
/** One in this many payments has a signature that isn't its payer's. */
const badEvery = 100

export function createPayments({ shop, apiPort, database, deployment, buyers }: Rig) {
  const { usdc, splitterFactory } = deployment
  const { providerId, endpointIds } = shop
  const asked = { providerId, endpointId: endpointIds[0], pricing: { usdcPerUnit } }
  const authorize = createAuthorizer(usdc)
  let made = 0
  const nextBuyer = () => buyers[made++ % buyers.length] as Buyer

  const challengeRequests = (count: number): Buffer[] =>
    new Array(count).fill(renderPost('/challenge', { ...asked, resource: shop.url }))

  return {
    challengeRequests,
    /** Requests challenges. @throws if they write to the database */
    async challenge(count: number): Promise<{ challenges: Challenge[]; perSecond: number }> {
      const before = await countWrites(database)
      const requests = challengeRequests(count)
      const { perSecond, answers } = await send({ port: apiPort, requests, connections })
      const writes = (await countWrites(database)) - before
      // Allow a few writes, because the api's usage counters and Postgres' maintenance write occasionally.
      if (writes > 5 + count / 100)
        throw new Error(`${count} challenges wrote to the database ${writes} times`)
      return { perSecond, challenges: answers.map(({ body }) => JSON.parse(body.toString()) as Challenge) }
    },

    /** Signs payments for challenges. The gateway must refuse the payments that have a bad signature. */
    sign(challenges: Challenge[], kind: PaymentKind) {
      const isBad = (index: number) => index % badEvery === badEvery - 1
      const requests = challenges.map((challenge, index) => {
        const payloads = signChallenge(authorize, splitterFactory, { buyer: nextBuyer(), challenge, kind })
        if (isBad(index)) spoil(payloads, Math.floor(index / badEvery) % payloads.length)
        const body = { macaroon: challenge.macaroon, payloads, ...asked }
        return renderPost('/verify', body, { 'idempotency-key': randomUUID() })
      })
      const isRight = ({ status }: Answer, index: number) => status === (isBad(index) ? 402 : 200)
      return { requests, isRight } satisfies Requests
    },

    /** Signs separate payments in the format of the reference. */
    forReference(count: number): Requests {
      const requests = Array.from({ length: count }, () => {
        const payment = authorize(nextBuyer(), shop.address, 47_500n, randomHex(32))
        return renderPost('/verify', createX402Body(payment, usdc, shop.url))
      })
      return { requests, isRight: isValid }
    },
  }
}

/** Whether a facilitator has verified a payment. */
export const isValid = ({ status, body }: Answer) =>
  status === 200 && (JSON.parse(body.toString()) as { isValid: unknown }).isValid === true

/** Returns the body that a seller's middleware sends to its facilitator, in version 2 of x402. */
export function createX402Body({ signature, ...signed }: SignedAuthorization, asset: string, url: string) {
  const { caip2: network, eip712: extra } = networks.localhost
  const texts = Object.fromEntries(Object.entries(signed).map(([name, value]) => [name, `${value}`]))
  const { value: amount, to: payTo } = texts
  const accepted = { scheme: 'exact', network, amount, asset, payTo, maxTimeoutSeconds: 3_600, extra }
  const payload = { signature, authorization: texts }
  const paymentPayload = { x402Version: 2, resource: { url }, accepted, payload }
  return { x402Version: 2, paymentPayload, paymentRequirements: accepted }
}

/** Changes a digit of the signature, so that it recovers to another address or to none. */
function spoil(payloads: [string, string?], which: number): void {
  const payload = payloads[which] as string
  const at = payload.lastIndexOf(',') + 20
  const digit = payload[at] === '0' ? '1' : '0'
  payloads[which] = `${payload.slice(0, at)}${digit}${payload.slice(at + 1)}`
}
