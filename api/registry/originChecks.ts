import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { hasBody } from '@tollkeeper/ledger/discovery/bazaar'
import { declaredDays } from '@tollkeeper/ledger/discovery/listings'
import {
  type Finding,
  forgetDeclared,
  recordFinding,
  takeUnproven,
  type Unproven,
} from '@tollkeeper/ledger/discovery/originProofs'
import type { Database } from '@tollkeeper/ledger/store/database'
import { isRowFault } from '@tollkeeper/runtime/dependencies'
import { forEachRow, type OnBadRow, takeParts } from '@tollkeeper/runtime/stepBack'
import { isRecord } from '@tollkeeper/sdk/protocol/fields'
import type { AddressGuard } from '../http/addressGuard.ts'
import { send } from '../telling/send.ts'
import { readOriginAnswer } from './originAnswer.ts'

/*
 * Anybody can register or declare anybody's URL, with his own wallet. So the api asks each URL whom it wants paid: a wallet that its
 * 402 names is proven to be its seller's. The keeper asks nobody, because it holds gas keys.
 */

const atOnce = 4
const timeoutMs = 5_000
const maxBytes = 32_768

export type OriginChecksOptions = {
  sql: Database
  guard: AddressGuard
  issuer: string
  networks: readonly ServedNetwork[]
  onBadRow: OnBadRow
}

/** One round: asks the URLs that are due. Says whether there may be more. */
export function createOriginChecks({
  sql,
  guard,
  issuer,
  networks,
  onBadRow,
}: OriginChecksOptions): () => Promise<'busy' | 'idle'> {
  const own = new URL(issuer).origin
  const report = (error: unknown, { url, payTo }: Unproven) => onBadRow('origin', error, { url, payTo })

  return async () => {
    let due: Unproven[] = []
    await takeParts({
      forget: () => forgetDeclared(sql, declaredDays),
      check: async () => {
        due = await takeUnproven(sql, atOnce)
        await Promise.all(due.map((one) => forEachRow([one], check, report)))
      },
    })
    return due.length >= atOnce ? 'busy' : 'idle'
  }

  async function check(one: Unproven): Promise<void> {
    // The proxy serves what is registered below the gateway's own address, and pays the provider who registered it.
    const isOwn = one.declaredId === null && new URL(one.url).origin === own
    let failure: unknown
    const finding = isOwn
      ? proven
      : await ask(one, guard, networks).catch((error: unknown) => {
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

const proven: Finding = { kind: 'proven', said: null, amount: null }
/** As any seller that can't be proven, it is asked again after growing pauses. */
const unreadable: Finding = { kind: 'unproven', isAway: true, why: 'its answer can not be read or stored' }

async function ask(one: Unproven, guard: AddressGuard, networks: readonly ServedNetwork[]): Promise<Finding> {
  const isPosted = hasBody(one.method)
  const result = await send({
    url: urlToAsk(one),
    // Nothing is paid, so nothing is done there. Other methods aren't sent to a place that a stranger chose.
    method: isPosted ? 'POST' : 'GET',
    headers: { accept: 'application/json', 'content-type': 'application/json' },
    body: JSON.stringify(one.input ?? {}),
    guard,
    timeoutMs,
    maxResponseBytes: maxBytes,
  })
  if (result.status !== 'answered')
    return { kind: 'unproven', isAway: true, why: `no answer: ${result.failure}` }
  const { httpStatus, headers, body } = result
  return readOriginAnswer({ httpStatus, paymentRequired: headers['payment-required'], body }, one, networks)
}

/**
 * A URL for one of the paths of a route, in which each `:name` stands for itself. It has the example's query, because a seller may
 * check its input before it asks for payment.
 */
function urlToAsk({ url: registered, method, input }: Unproven): string {
  const url = new URL(registered.replace(/\/:(\w+)(?=\/|$)/g, '/$1').replace(/\*$/, ''))
  if (hasBody(method) || !isRecord(input)) return url.href
  for (const [name, value] of Object.entries(input).slice(0, maxParameters)) {
    if (/^(string|number|boolean)$/.test(typeof value) && !url.searchParams.has(name))
      url.searchParams.set(name, `${value}`.slice(0, maxParameterLength))
  }
  return url.href
}

const maxParameters = 20
const maxParameterLength = 200
