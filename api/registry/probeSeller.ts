import {
  askedMethod,
  type JudgedNetwork,
  judgeFurther,
  judgeSellerAnswer,
  preflightHeaders,
  type Question,
  type SellerAnswer,
  type SellerReport,
} from '@tollkeeper/ledger/discovery/sellerAnswer'
import { type FindingCode, finding, type SellerFinding } from '@tollkeeper/ledger/discovery/sellerFindings'
import type { AddressGuard } from '@tollkeeper/runtime/addressGuard'
import { type SendOptions, type SendResult, send } from '@tollkeeper/runtime/send'

/*
 * Requests a seller's payment terms from its URL, without paying. The gateway's own checks, `POST /discovery/validate` and `tollkeeper
 * doctor --seller` all use this module, so they have the same findings.
 *
 * The URL is chosen by a stranger, and its server may execute a request without asking for payment. So only GET and POST are sent, with the
 * body `{}` unless the caller may send more, and no redirect is followed. Time and size are limited.
 */

export type ProbeOptions = {
  guard: AddressGuard
  /** The networks on which offers can be judged. */
  networks: readonly JudgedNetwork[]
  /** Timeout of each request in milliseconds. */
  timeoutMs?: number
}

const usualTimeoutMs = 5_000
/** Timeout in milliseconds of each additional request, which a good seller answers immediately. */
const furtherTimeoutMs = 2_000
const maxBytes = 32_768

export type Asked = {
  url: string
  /** Method by which the URL is sold. */
  method: string
  /** The JSON body of POST. Default: `{}`. */
  body?: unknown
}

/** A seller's answer to one request. */
export type Probe = {
  /** Null if there was no answer. */
  httpStatus: number | null
  report: SellerReport
}

/** Sends one request. */
export async function probeSeller({ url, method, body = {} }: Asked, options: ProbeOptions): Promise<Probe> {
  const question: Question = { url, method, sent: askedMethod(method) }
  const result = await ask(question, options, {}, body)
  if (result.status !== 'answered') {
    const findings = [findingOf(result)]
    return { httpStatus: null, report: { findings, forms: [], offers: [], payees: [], declaration: null } }
  }
  return { httpStatus: result.httpStatus, report: judgeSellerAnswer(result, question, options.networks) }
}

/** Sends one request. If the seller asks for payment, also sends the requests that browsers send, and HEAD for GET: at most four requests. */
export async function probeThoroughly(asked: Asked, given: ProbeOptions): Promise<Probe> {
  const probe = await probeSeller(asked, given)
  if (probe.httpStatus !== 402) return probe
  const question: Question = { url: asked.url, method: asked.method, sent: askedMethod(asked.method) }
  const options = { ...given, timeoutMs: Math.min(given.timeoutMs ?? usualTimeoutMs, furtherTimeoutMs) }
  const fromPage = { origin: 'https://page.example' }
  const preflight = {
    ...fromPage,
    'access-control-request-method': question.sent,
    'access-control-request-headers': preflightHeaders.toSorted().join(','),
  }
  const [page, allowed, head] = await Promise.all([
    ask(question, options, fromPage),
    ask({ ...question, sent: 'OPTIONS' }, options, preflight),
    question.sent === 'GET' ? ask({ ...question, sent: 'HEAD' }, options) : null,
  ])
  const further = judgeFurther({
    fromPage: answered(page),
    preflight: answered(allowed),
    head: answered(head),
  })
  const { report } = probe
  return { ...probe, report: { ...report, findings: [...report.findings, ...further] } }
}

function ask(
  { url, sent }: { url: string; sent: NonNullable<SendOptions['method']> },
  { guard, timeoutMs = usualTimeoutMs }: ProbeOptions,
  headers: Record<string, string> = {},
  body: unknown = {},
): Promise<SendResult> {
  const type = sent === 'POST' ? { 'content-type': 'application/json' } : undefined
  return send({
    url,
    method: sent,
    headers: { accept: 'application/json', ...type, ...headers },
    body: JSON.stringify(body),
    guard,
    timeoutMs,
    maxResponseBytes: maxBytes,
  })
}

function answered(result: SendResult | null): SellerAnswer | null {
  return result?.status === 'answered' ? result : null
}

const tlsCode = /CERT|SIGNATURE|ALTNAME|SSL|TLS|EPROTO|LEAF|SELF_SIGNED|ISSUER/
const dnsCodes = new Set([
  'ENOTFOUND',
  'EAI_AGAIN',
  'ENODATA',
  'ESERVFAIL',
  'ETIMEOUT',
  'EREFUSED',
  'ECANCELLED',
])

/** Reports a failure only by its code, because the message may contain an internal address. */
function findingOf({ failure, detail, code }: Extract<SendResult, { status: 'unanswered' }>): SellerFinding {
  const because = code === '' ? '' : ` (${code})`
  const say = (name: FindingCode, words: string) => finding(name, `${words}${because}.`)
  if (failure === 'address_refused') return finding('url_refused', `The URL is refused: ${detail}.`)
  if (failure === 'timeout') return finding('timeout')
  if (dnsCodes.has(code)) return say('unresolved', 'The host name has no address')
  if (tlsCode.test(code)) return say('tls_failed', 'Clients refuse the TLS certificate')
  if (code === 'HPE_HEADER_OVERFLOW') return say('headers_too_large', 'The answer has too many headers')
  if (code.startsWith('HPE_')) return say('not_http', 'The server does not answer by HTTP')
  return say('unreachable', 'No connection could be made, or it broke off without an answer')
}
