import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { hasBody } from '@tollkeeper/ledger/discovery/bazaar'
import { declaredDays } from '@tollkeeper/ledger/discovery/listings'
import {
  type Finding,
  forgetDeclared,
  isProvenAtOrigin,
  recordFinding,
  takeEndpoint,
  takeUnproven,
  type Unproven,
} from '@tollkeeper/ledger/discovery/originProofs'
import { finding, type SellerFinding } from '@tollkeeper/ledger/discovery/sellerFindings'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { AddressGuard } from '@tollkeeper/runtime/addressGuard'
import { isRowFault } from '@tollkeeper/runtime/dependencies'
import { forEachRow, type OnBadRow, takeParts } from '@tollkeeper/runtime/stepBack'
import { isRecord } from '@tollkeeper/sdk/protocol/fields'
import { findOwner } from './originAnswer.ts'
import { type Asked, type Probe, probeSeller, probeThoroughly } from './probeSeller.ts'

/*
 * Anyone can register any URL with a wallet of their own, or declare it to a facilitator. Therefore the api requests each URL: if the URL's
 * 402 names the wallet, the URL is proven to belong to that wallet's seller. The keeper sends no such requests, because it holds gas keys.
 *
 * Both the URL and the example are chosen by a stranger, and the URL's server may execute a request without asking for payment. So the
 * first request has the body `{}` and no added query. The example is sent only to a server that is known to be a seller's: either it
 * answered 402, or it rejected the input and the same seller is proven at another of the server's URLs.
 */

const atOnce = 4

export type OriginCheckOptions = {
  sql: Database
  guard: AddressGuard
  issuer: string
  networks: readonly ServedNetwork[]
}

export type OriginChecksOptions = OriginCheckOptions & { onBadRow: OnBadRow }

/** Creates the function that checks URLs that are due, one round per call. The function returns `busy` if more URLs may be due. */
export function createOriginChecks({
  onBadRow,
  ...options
}: OriginChecksOptions): () => Promise<'busy' | 'idle'> {
  const { sql } = options
  const check = createCheck(options, probeSeller)
  const report = (error: unknown, { url, payTo }: Unproven) => onBadRow('origin', error, { url, payTo })

  return async () => {
    let due: Unproven[] = []
    await takeParts({
      forget: () => forgetDeclared(sql, declaredDays),
      check: async () => {
        due = await takeUnproven(sql, atOnce)
        await Promise.all(due.map((one) => forEachRow([one], async (row) => void (await check(row)), report)))
      },
    })
    return due.length >= atOnce ? 'busy' : 'idle'
  }
}

/**
 * Creates the function that checks an endpoint's URL immediately, including the requests that browsers send, and stores the result.
 *
 * @returns all findings; null if there is nothing to check.
 */
export function createCheckNow(
  options: OriginCheckOptions,
): (endpointId: string) => Promise<SellerFinding[] | null> {
  const check = createCheck(options, probeThoroughly)
  return async (endpointId) => {
    const one = await takeEndpoint(options.sql, endpointId)
    return one === undefined ? null : check(one)
  }
}

/** Creates the function that checks a URL, stores the result and returns all findings. */
function createCheck(
  { sql, guard, issuer, networks }: OriginCheckOptions,
  probe: typeof probeSeller,
): (one: Unproven) => Promise<SellerFinding[]> {
  const own = new URL(issuer).origin
  const put = (asked: Asked) => probe(asked, { guard, networks })

  return async (one) => {
    // The proxy serves every endpoint registered below the gateway's own address, and pays the provider that registered it. So such an endpoint is
    // proven without a request.
    if (one.declaredId === null && new URL(one.url).origin === own) {
      await recordFinding(sql, one, proven)
      return [finding('served_here')]
    }
    let failure: unknown
    const { result, findings } = await ask(one).catch((error: unknown) => {
      failure = error
      return unreadable
    })
    try {
      await recordFinding(sql, one, result)
    } catch (error) {
      if (!isRowFault(error)) throw error
      failure = error
      await recordFinding(sql, one, unreadable.result)
    }
    if (failure !== undefined) throw failure
    return findings
  }

  async function ask(one: Unproven): Promise<Answered> {
    const first = judge(one, await put({ url: urlToAsk(one), method: one.method }))
    if (first.result.kind === 'proven') return first
    const second = withExample(one)
    if (second === null || !(await maySendExample(one, first.httpStatus))) return first
    const again = judge(one, await put(second))
    return again.result.kind === 'proven' ? again : first
  }

  async function maySendExample(one: Unproven, httpStatus: number | null): Promise<boolean> {
    if (httpStatus === 402) return true
    return (httpStatus === 400 || httpStatus === 422) && (await isProvenAtOrigin(sql, one))
  }
}

type Answered = { result: Finding; httpStatus: number | null; findings: SellerFinding[] }

function judge(one: Unproven, { httpStatus, report }: Probe): Answered {
  const result = findOwner(report, one)
  const isOthers = result.kind === 'unproven' && result.code === 'pays_others'
  const findings = isOthers ? [...report.findings, finding('pays_others')] : report.findings
  return { result, httpStatus, findings }
}

const proven: Finding = { kind: 'proven', said: null, amount: null }
/** Finding about a URL whose answer can't be stored. Like any URL that can't be proven, it is checked again after growing pauses. */
const unreadableFinding = finding('unreadable')
const unreadable: Answered = {
  result: { kind: 'unproven', isAway: true, code: unreadableFinding.code, why: unreadableFinding.message },
  httpStatus: null,
  findings: [unreadableFinding],
}

/** Returns one URL that the route matches: each `:name` becomes the text `name`, and a final `*` is removed. */
export function urlToAsk({ url }: Pick<Unproven, 'url'>): string {
  return new URL(url.replace(/\/:(\w+)(?=\/|$)/g, '/$1').replace(/\*$/, '')).href
}

/** Returns the request with the example as body or query; null if the example adds nothing. */
function withExample(one: Unproven): Asked | null {
  const { method, input } = one
  const url = new URL(urlToAsk(one))
  if (hasBody(method)) {
    const isEmpty = input === null || (isRecord(input) && Object.keys(input).length === 0)
    return isEmpty ? null : { url: url.href, method, body: input }
  }
  if (!isRecord(input)) return null
  for (const [name, value] of Object.entries(input).slice(0, maxParameters)) {
    if (/^(string|number|boolean)$/.test(typeof value) && !url.searchParams.has(name))
      url.searchParams.set(name, `${value}`.slice(0, maxParameterLength))
  }
  return url.href === urlToAsk(one) ? null : { url: url.href, method }
}

const maxParameters = 20
const maxParameterLength = 200
