import { readDeclaration } from '@tollkeeper/ledger/discovery/declarations'
import { declaredDays } from '@tollkeeper/ledger/discovery/listings'
import {
  type Finding,
  forgetDeclared,
  recordFinding,
  type Said,
  takeUnproven,
  type Unproven,
} from '@tollkeeper/ledger/discovery/originProofs'
import type { Database } from '@tollkeeper/ledger/store/database'
import { isRowFault } from '@tollkeeper/runtime/dependencies'
import { forEachRow, type OnBadRow, takeParts } from '@tollkeeper/runtime/stepBack'
import type { Address } from 'viem'
import type { AddressGuard } from '../http/addressGuard.ts'
import { send } from '../telling/send.ts'

/*
 * Anybody can register or declare anybody's URL, with his own wallet. So the api asks each origin whom it wants paid: a wallet that its
 * 402 names is proven to be its seller's. The keeper asks nobody, because it holds gas keys.
 */

const atOnce = 4
const timeoutMs = 5_000
const maxBytes = 32_768

export type OriginChecksOptions = { sql: Database; guard: AddressGuard; issuer: string; onBadRow: OnBadRow }

/** One round: asks the origins that are due. Says whether there may be more. */
export function createOriginChecks({
  sql,
  guard,
  issuer,
  onBadRow,
}: OriginChecksOptions): () => Promise<'busy' | 'idle'> {
  const own = new URL(issuer).origin
  const report = (error: unknown, { origin, payTo }: Unproven) => onBadRow('origin', error, { origin, payTo })

  return async () => {
    let due: Unproven[] = []
    await takeParts(
      () => forgetDeclared(sql, declaredDays),
      async () => {
        due = await takeUnproven(sql, atOnce)
        await Promise.all(due.map((one) => forEachRow([one], check, report)))
      },
    )
    return due.length >= atOnce ? 'busy' : 'idle'
  }

  async function check(one: Unproven): Promise<void> {
    // The proxy serves what is registered below the gateway's own address, and pays the provider who registered it.
    const isOwn = one.declaredId === null && one.origin === own
    let failure: unknown
    const finding = isOwn
      ? proven
      : await ask(one, guard).catch((error: unknown) => {
          failure = error
          return unreadable
        })
    try {
      await recordFinding(sql, one, finding)
    } catch (error) {
      if (!isRowFault(error)) throw error
      failure = error
      await recordFinding(sql, one, unreadable)
    }
    if (failure !== undefined) throw failure
  }
}

const proven: Finding = { kind: 'proven', said: null }
/** As any seller that can't be proven, it is asked again after growing pauses. */
const unreadable: Finding = { kind: 'unproven', isAway: true, why: 'its answer can not be read or stored' }

async function ask(one: Unproven, guard: AddressGuard): Promise<Finding> {
  const result = await send({
    url: urlToAsk(one.url),
    // Nothing is paid, so nothing is done there. Other methods aren't sent to a place that a stranger chose.
    method: /^(POST|PUT|PATCH)$/.test(one.method) ? 'POST' : 'GET',
    headers: { accept: 'application/json', 'content-type': 'application/json' },
    body: '{}',
    guard,
    timeoutMs,
    maxResponseBytes: maxBytes,
  })
  const away = (why: string): Finding => ({ kind: 'unproven', isAway: true, why })
  if (result.status !== 'answered') return away(`no answer: ${result.failure}`)
  if (result.httpStatus !== 402) return away(`it answered ${result.httpStatus}, expected 402`)
  const header = result.headers['payment-required']
  const required = readJson(typeof header === 'string' ? Buffer.from(header, 'base64').toString() : '')
  const body = readJson(result.body)
  const payees = [required, body].flatMap(readPayees)
  if (payees.length === 0) return away('its 402 is none of x402')
  if (!payees.includes(one.payTo))
    return { kind: 'unproven', isAway: false, why: 'its 402 asks for payments to others' }
  return { kind: 'proven', said: one.declaredId === null ? null : readSaid(required, one) }
}

/** A URL for one of the paths of a route, in which each `:name` stands for itself. */
function urlToAsk(url: string): string {
  return url.replace(/\/:(\w+)(?=\/|$)/g, '/$1').replace(/\*$/, '')
}

/** The payees that an answer names: each `payTo`, and behind a splitter its wallet. */
function readPayees(answer: unknown): string[] {
  const { accepts } = record(answer)
  if (!Array.isArray(accepts)) return []
  return accepts.slice(0, 20).flatMap((entry) => {
    const { payTo, extra } = record(entry)
    const { provider } = record(record(extra).splitter)
    return [payTo, provider].flatMap((address) =>
      typeof address === 'string' ? [address.toLowerCase()] : [],
    )
  })
}

/** A declared resource's own description; null if it has nothing to show. */
function readSaid(required: unknown, { url, payTo }: Unproven): Said | null {
  const { resource, accepts, extensions } = record(required)
  const { bazaar } = record(extensions)
  if (bazaar === undefined || !Array.isArray(accepts)) return null
  const offer = record(accepts.find((one) => String(record(one).payTo).toLowerCase() === payTo))
  if (typeof offer.amount !== 'string' || !/^\d{1,19}$/.test(offer.amount)) return null
  const { description, mimeType, serviceName, tags, iconUrl } = record(resource)
  const read = readDeclaration(
    {
      resource: url,
      x402Version: 2,
      serviceName,
      tags,
      iconUrl,
      bazaar,
      description: typeof description === 'string' ? description : '',
      mimeType: typeof mimeType === 'string' ? mimeType : '',
      maxTimeoutSeconds:
        typeof offer.maxTimeoutSeconds === 'number' ? Math.floor(offer.maxTimeoutSeconds) : 60,
    },
    { chainId: 0, payTo: payTo as Address, amount: BigInt(offer.amount), providerId: null },
  )
  return typeof read === 'string' ? null : read
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}
