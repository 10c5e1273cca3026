/** Makes payments for the benches of `/verify`, and holds each answer against what it must be. */
import { randomUUID } from 'node:crypto'
import { toHex } from 'viem'
import type { Challenge } from '#protocol/challenge'
import { type Buyer, createAuthorizer, type PaymentKind, signChallenge } from '../data/signPayments.ts'
import { type Answer, renderPost, saturate } from './load.ts'
import { type Rig, usdcPerUnit } from './rig.ts'
import { createX402Body } from './x402Body.ts'

export const connections = 50
/** Of how many payments one carries a signature that is not its payer's. */
const badEvery = 100

type Signed = { requests: Buffer[]; require: (answers: Answer[]) => void }

/** Makes payments and sees to it that each is answered as it must be. */
export function createPayments(rig: Rig) {
  const { shop, apiPort, database } = rig
  const {
    providerId,
    endpointIds: [endpointId],
  } = shop
  const authorize = createAuthorizer(rig.usdc)
  let made = 0
  const nextBuyer = () => rig.buyers[made++ % rig.buyers.length] as Buyer

  /** A transaction gets a number of its own when it writes something, and not before. */
  async function transactionsThatWrote(): Promise<number> {
    const [row] = await database`select pg_snapshot_xmax(pg_current_snapshot())::text as next`
    return Number(row?.next)
  }

  function challengeRequests(count: number): Buffer[] {
    const body = { providerId, endpointId, resource: shop.url, pricing: { usdcPerUnit } }
    return new Array(count).fill(renderPost('/challenge', body))
  }

  return {
    challengeRequests,
    /** Asks for challenges; fails if they write to the database. */
    async challenge(count: number): Promise<{ challenges: Challenge[]; perSecond: number }> {
      const before = await transactionsThatWrote()
      const { perSecond, answers } = await saturate({
        port: apiPort,
        requests: challengeRequests(count),
        connections,
      })
      requireAll(answers, 200, '/challenge')
      const writes = (await transactionsThatWrote()) - before
      // The api's usage counters and Postgres' own upkeep write now and then, whatever is asked.
      if (writes > 5 + count / 100)
        throw new Error(`${count} challenges wrote to the database ${writes} times`)
      return { perSecond, challenges: answers.map(({ body }) => JSON.parse(body.toString()) as Challenge) }
    },
    sign(challenges: Challenge[], kind: PaymentKind): Signed {
      const bodies = challenges.map((challenge) => ({
        macaroon: challenge.macaroon,
        payloads: signChallenge(authorize, rig.splitterFactory, { buyer: nextBuyer(), challenge, kind }),
        ...{ providerId, endpointId, pricing: { usdcPerUnit } },
      }))
      const isBad = (index: number) => index % badEvery === badEvery - 1
      bodies.forEach((body, index) => {
        if (isBad(index)) spoil(body.payloads, Math.floor(index / badEvery) % body.payloads.length)
      })
      return {
        requests: bodies.map((body) => renderPost('/verify', body, { 'idempotency-key': randomUUID() })),
        require(answers) {
          answers.forEach(({ status, body }, index) => {
            if (status === (isBad(index) ? 402 : 200)) return
            const which = isBad(index) ? 'with a bad signature' : 'with good signatures'
            throw new Error(`a payment ${which} was answered ${status}: ${body.toString().slice(0, 500)}`)
          })
        },
      }
    },

    async verify(signed: Signed, port = apiPort): Promise<number> {
      const { perSecond, answers } = await saturate({
        port,
        requests: signed.requests,
        connections,
      })
      signed.require(answers)
      return perSecond
    },

    forReference(count: number): Buffer[] {
      return Array.from({ length: count }, () => {
        const buyer = nextBuyer()
        const nonce = toHex(crypto.getRandomValues(new Uint8Array(32)))
        return renderPost(
          '/verify',
          createX402Body(rig.usdc, shop.url, authorize(buyer, shop.address, 47_500n, nonce)),
        )
      })
    },
  }
}

/** Another digit in the signature: it recovers to somebody else, or to nobody. */
function spoil(payloads: [string, string?], which: number): void {
  const payload = payloads[which] as string
  const at = payload.lastIndexOf(',') + 20
  const digit = payload[at] === '0' ? '1' : '0'
  payloads[which] = `${payload.slice(0, at)}${digit}${payload.slice(at + 1)}`
}

export function requireAll(answers: Answer[], status: number, what: string): void {
  for (const answer of answers) {
    if (answer.status === status) continue
    throw new Error(`${what} answered ${answer.status}: ${answer.body.toString().slice(0, 500)}`)
  }
}

export function requireReference(answers: Answer[]): void {
  for (const { body } of answers) {
    const verdict = JSON.parse(body.toString()) as { isValid: boolean }
    if (!verdict.isValid) throw new Error(`the reference refused: ${body.toString()}`)
  }
}
