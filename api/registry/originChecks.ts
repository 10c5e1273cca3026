import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { hasBody } from '@tollkeeper/ledger/discovery/bazaar'
import { declaredDays } from '@tollkeeper/ledger/discovery/listings'
import {
  type Finding,
  forgetDeclared,
  isProvenAtOrigin,
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
 *
 * The URL and the example are both a stranger's choice, and the URL's server may do what a request says without asking for payment. So
 * the first question has the body `{}` and no added query. The example is sent only to a server that has shown to be a seller's: it
 * answered 402, or it finds the input wrong and the same seller is proven at one of its URLs.
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
      : await ask(one).catch((error: unknown) => {
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
  async function ask(one: Unproven): Promise<Finding> {
    const first = await put(one, { url: urlToAsk(one), body: {} })
    if (first.finding.kind === 'proven') return first.finding
    const second = withExample(one)
    if (second === null || !(await maySendExample(one, first.httpStatus))) return first.finding
    const { finding } = await put(one, second)
    return finding.kind === 'proven' ? finding : first.finding
  }

  async function maySendExample(one: Unproven, httpStatus: number | null): Promise<boolean> {
    if (httpStatus === 402) return true
    return (httpStatus === 400 || httpStatus === 422) && (await isProvenAtOrigin(sql, one))
  }

  /** Puts one question. Its `httpStatus` is null if there was no answer. */
  async function put(
    one: Unproven,
    { url, body: asked }: Question,
  ): Promise<{ finding: Finding; httpStatus: number | null }> {
    const result = await send({
      url,
      // Nothing is paid, so a seller does nothing. Other methods aren't sent to a place that a stranger chose.
      method: hasBody(one.method) ? 'POST' : 'GET',
      headers: { accept: 'application/json', 'content-type': 'application/json' },
      body: JSON.stringify(asked),
      guard,
      timeoutMs,
      maxResponseBytes: maxBytes,
    })
    if (result.status !== 'answered') {
      const why = `no answer: ${result.failure}`
      return { finding: { kind: 'unproven', isAway: true, why }, httpStatus: null }
    }
    const { httpStatus, headers, body } = result
    const answer = { httpStatus, paymentRequired: headers['payment-required'], body }
    return { finding: readOriginAnswer(answer, one, networks), httpStatus }
  }
}

type Question = { url: string; body: unknown }

const proven: Finding = { kind: 'proven', said: null, amount: null }
/** As any seller that can't be proven, it is asked again after growing pauses. */
const unreadable: Finding = { kind: 'unproven', isAway: true, why: 'its answer can not be read or stored' }

/** A URL for one of the paths of a route, in which each `:name` stands for itself. */
function urlToAsk({ url }: Unproven): string {
  return new URL(url.replace(/\/:(\w+)(?=\/|$)/g, '/$1').replace(/\*$/, '')).href
}

/** The question with the example as body or query; null if that adds nothing. */
function withExample(one: Unproven): Question | null {
  const { method, input } = one
  const url = new URL(urlToAsk(one))
  if (hasBody(method)) {
    const isEmpty = input === null || (isRecord(input) && Object.keys(input).length === 0)
    return isEmpty ? null : { url: url.href, body: input }
  }
  if (!isRecord(input)) return null
  for (const [name, value] of Object.entries(input).slice(0, maxParameters)) {
    if (/^(string|number|boolean)$/.test(typeof value) && !url.searchParams.has(name))
      url.searchParams.set(name, `${value}`.slice(0, maxParameterLength))
  }
  return url.href === urlToAsk(one) ? null : { url: url.href, body: {} }
}

const maxParameters = 20
const maxParameterLength = 200
