import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { parseChallenge } from '@tollkeeper/sdk/protocol/challenge'
import { isRecord, parseJson, textOf } from '@tollkeeper/sdk/protocol/fields'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { providerOfSplit } from '@tollkeeper/sdk/protocol/tab'
import type { Address } from 'viem'
import { hasBody } from './bazaar.ts'
import { type Declaration, type Declared, readDeclaration } from './declarations.ts'
import { declaredInV1, declaredInV2 } from './declared.ts'
import { type FindingCode, finding, type SellerFinding } from './sellerFindings.ts'

/**
 * Judges a seller's answer to a request without a payment. All catalog code that parses other servers' 402s uses it: the gateway's own
 * checks, `POST /discovery/validate` and `tollkeeper doctor --seller`. It does no I/O, and no answer makes it throw.
 */

/** A seller's answer. */
export type SellerAnswer = {
  httpStatus: number
  /** By lower-case name. */
  headers: Readonly<Record<string, string | readonly string[] | undefined>>
  body: string
  /** Whether the body is longer than the part that was read. */
  isCut: boolean
}

/** The request, without a payment. */
export type Question = {
  url: string
  /** The method by which the URL is sold. */
  method: string
  /** The method of the request. */
  sent: 'GET' | 'POST'
}

/** A network whose offers can be judged. */
export type JudgedNetwork = { network: Network; token: Address | null }

/** An offer in USDC on a known network. */
export type SellerOffer = {
  form: ChallengeForm
  scheme: 'exact' | 'tab'
  network: Network
  /** USDC base units. */
  amount: bigint
  /** Where the payment goes: a wallet, a splitter or a contract for tabs. */
  payTo: Address
  /** The wallet that finally receives the payment. */
  seller: Address
  maxTimeoutSeconds: number
  /** False if clients can't sign for it, because its token's EIP-712 domain or its timeout is wrong. */
  isPayable: boolean
}

/** The formats of a 402's challenge: ours, the header of x402 v2, the body of x402 v1 or v2. */
export type ChallengeForm = 'tollkeeper' | 'x402-v2' | 'x402-v1'

export type SellerReport = {
  /** The findings, in the order of the checks. */
  findings: SellerFinding[]
  /** The formats that clients can read. */
  forms: ChallengeForm[]
  /** The offers in USDC, in the seller's order. */
  offers: SellerOffer[]
  /** Every address that an offer names, lower-case, usable or not: payees, and the wallets behind splitters. */
  payees: string[]
  /** The seller's checked description of itself; null if it has none, or none that catalogs accept. */
  declaration: Declaration | null
}

/** Judges an answer. */
export function judgeSellerAnswer(
  answer: SellerAnswer,
  question: Question,
  networks: readonly JudgedNetwork[],
): SellerReport {
  const report: SellerReport = { findings: [], forms: [], offers: [], payees: [], declaration: null }
  report.findings.push(judgeStatus(answer, question))
  if (answer.httpStatus === 402) judgeChallenge(report, answer, question, networks)
  return report
}

/** Headers and server names of CDNs, and words on the pages with which they block or check clients. */
const cdnHeaders = ['cf-ray', 'cf-mitigated', 'x-amz-cf-id', 'x-sucuri-id', 'x-iinfo', 'x-akamai-request-id']
const cdnServers = /cloudflare|cloudfront|akamai|sucuri|imperva|ddos-guard|vercel/i
const cdnWords =
  /just a moment|attention required|captcha|challenge-platform|access denied|checking your browser/i

function judgeStatus(answer: SellerAnswer, { method, sent }: Question): SellerFinding {
  const { httpStatus: status } = answer
  const headerOf = (name: string) => headerText(answer, name)
  const without = sent === method ? 'to a request without a payment' : `to a ${sent} without a payment`
  const said = (code: FindingCode, more = '') =>
    finding(code, `It answered ${status} ${without}, expected 402${more}.`)
  const isPage = /\bhtml\b/i.test(headerOf('content-type'))
  const isCdn =
    cdnHeaders.some((name) => headerOf(name) !== '') ||
    cdnServers.test(headerOf('server')) ||
    cdnWords.test(answer.body)
  if (status === 402) return finding('answers_402')
  if ([403, 429, 503].includes(status) && isPage && isCdn)
    return said('blocked', ', with a page for browsers')
  if (status >= 200 && status < 300) return said('serves_unpaid')
  if (status >= 300 && status < 400) {
    const location = headerOf('location')
    return said('redirects', location === '' ? '' : `, and redirects to ${location.slice(0, 200)}`)
  }
  const codes: Partial<Record<number, FindingCode>> = {
    400: 'checks_input_first',
    401: 'asks_for_login',
    403: 'forbidden',
    404: 'not_found',
    405: 'method_not_allowed',
    410: 'not_found',
    415: 'checks_input_first',
    422: 'checks_input_first',
    429: 'rate_limited',
  }
  return said(codes[status] ?? (status >= 500 ? 'server_error' : 'unexpected_status'))
}

/** Maximum number of a 402's offers that are read. */
const maxOffers = 20

function judgeChallenge(
  report: SellerReport,
  answer: SellerAnswer,
  question: Question,
  networks: readonly JudgedNetwork[],
): void {
  const { findings, forms, offers } = report
  const header = headerText(answer, 'payment-required')
  const inHeader = header === '' ? undefined : parseJson(Buffer.from(header, 'base64').toString())
  const body = parseJson(answer.body)
  if (answer.isCut) findings.push(finding('body_cut'))
  if (header !== '' && !Array.isArray(record(inHeader).accepts)) findings.push(finding('header_unreadable'))
  if (header === '') findings.push(finding('no_header'))

  const faults: SellerFinding[] = []
  const readV2 = Array.isArray(record(inHeader).accepts)
  if (readV2) readOffers(report, faults, { required: inHeader, where: 'header', form: 'x402-v2' }, networks)
  const { macaroon, accepts, x402Version } = record(body)
  if (typeof macaroon === 'string') readOwnBody(report, faults, body, networks)
  else if (Array.isArray(accepts)) {
    const form = x402Version === 1 ? 'x402-v1' : 'x402-v2'
    // A version 2 body repeats the header, so its offers would count twice.
    if (!(readV2 && form === 'x402-v2'))
      readOffers(report, faults, { required: body, where: 'body', form }, networks)
  }
  if (forms.length === 0) {
    findings.push(finding('no_challenge'))
    return
  }
  findings.push(finding('challenge_readable', `Clients can read its challenge: ${forms.join(', ')}.`))
  findings.push(...faults)
  const payable = offers.filter(({ isPayable }) => isPayable)
  for (const one of payable) {
    const { scheme, amount, network, payTo, form } = one
    const price = `${formatUsdc(amount)} USDC on ${network.name} to ${payTo}`
    findings.push(finding('offer_usable', `It asks for ${price} (${scheme}, ${form}).`))
  }
  if (payable.length === 0) findings.push(finding('no_usable_offer'))
  judgeDescription(report, readV2 ? inHeader : body, question)
}

type Required = { required: unknown; where: 'header' | 'body'; form: 'x402-v2' | 'x402-v1' }

function readOffers(
  { forms, offers, payees }: SellerReport,
  faults: SellerFinding[],
  { required, where, form }: Required,
  networks: readonly JudgedNetwork[],
): void {
  forms.push(form)
  const entries = record(required).accepts as unknown[]
  for (const [place, entry] of entries.slice(0, maxOffers).entries()) {
    const { payTo, extra } = record(entry)
    payees.push(
      ...[payTo, record(record(extra).splitter).provider].flatMap((one) => textOf(one).toLowerCase() || []),
    )
    const read = readOffer(record(entry), form, networks)
    if (read.offer !== null) offers.push(read.offer)
    faults.push(
      ...read.faults.map(({ code, why }) => finding(code, `accepts[${place}] of the ${where}: ${why}`)),
    )
  }
}

type Fault = { code: FindingCode; why: string }
type ReadOffer = { offer: SellerOffer | null; faults: Fault[] }

function readOffer(
  entry: Record<string, unknown>,
  form: 'x402-v2' | 'x402-v1',
  networks: readonly JudgedNetwork[],
): ReadOffer {
  const { scheme, network: name, asset, payTo, maxTimeoutSeconds: timeout } = entry
  const none = (code: FindingCode, why: string): ReadOffer => ({ offer: null, faults: [{ code, why }] })
  if (scheme !== 'exact' && scheme !== 'tab')
    return none('other_scheme', `the scheme is ${shown(scheme)}, expected exact.`)
  const served = networks.find(({ network }) => name === network.caip2 || name === network.name)
  if (served === undefined) return none('unknown_network', `the network ${shown(name)} is not known here.`)
  const { network, token } = served
  const given = textOf(asset).toLowerCase()
  if (token === null ? !isAddress(given) : given !== token)
    return none(
      'not_usdc',
      `the asset is ${shown(asset)}, expected ${token === null ? 'an address' : `USDC on ${network.name}, ${token}`}.`,
    )
  const [field, other] =
    form === 'x402-v1'
      ? (['maxAmountRequired', 'amount'] as const)
      : (['amount', 'maxAmountRequired'] as const)
  const amount = entry[field] ?? entry[other]
  if (typeof amount !== 'string' || !/^\d{1,19}$/.test(amount) || BigInt(amount) === 0n)
    return none('invalid_amount', `${field} is ${shown(amount)}, expected base units like "10000".`)
  const payee = textOf(payTo).toLowerCase()
  if (!isAddress(payee)) return none('invalid_pay_to', `payTo is ${shown(payTo)}, expected an address.`)

  const faults: Fault[] = []
  const isTime = typeof timeout === 'number' && timeout >= 1 && timeout < 2 ** 31
  if (!isTime)
    faults.push({ code: 'invalid_timeout', why: `maxTimeoutSeconds is ${shown(timeout)}, expected seconds.` })
  const extra = record(entry.extra)
  const expected = network.eip712
  if (extra.name !== expected.name || extra.version !== expected.version) {
    const got = `extra.name and extra.version are ${shown(extra.name)} and ${shown(extra.version)}`
    const why = `${got}, expected "${expected.name}" and "${expected.version}".`
    faults.push({ code: 'wrong_domain', why })
  }
  const behind =
    scheme === 'tab' ? providerOfTab(extra.split) : textOf(record(extra.splitter).provider).toLowerCase()
  const offer: SellerOffer = {
    form,
    scheme,
    network,
    amount: BigInt(amount),
    payTo: payee,
    seller: isAddress(behind) ? behind : payee,
    maxTimeoutSeconds: isTime ? Math.floor(timeout) : usualTimeoutSeconds,
    isPayable: faults.length === 0,
  }
  return { offer, faults }
}

/** The timeout in a listing if the seller names none. */
const usualTimeoutSeconds = 60

function providerOfTab(split: unknown): string {
  return /^0x[0-9a-f]{64}$/.test(textOf(split)) ? providerOfSplit(BigInt(textOf(split))) : ''
}

/** Reads our own format, in which the price is either two parts that a buyer signs separately, or one payment to a splitter. */
function readOwnBody(
  { forms, offers, payees, findings }: SellerReport,
  faults: SellerFinding[],
  body: unknown,
  networks: readonly JudgedNetwork[],
): void {
  let challenge: ReturnType<typeof parseChallenge>
  try {
    challenge = parseChallenge(body)
  } catch (error) {
    const why = error instanceof Error ? error.message : 'it cannot be read'
    findings.push(
      finding('challenge_invalid', `The body has the form of our challenge, but ${why.slice(0, 200)}.`),
    )
    return
  }
  forms.push('tollkeeper')
  const [provider, fee] = challenge.accepts
  payees.push(provider.payTo)
  const read = readOffer(provider, 'x402-v1', networks)
  faults.push(...read.faults.map(({ code, why }) => finding(code, `accepts[0] of the body: ${why}`)))
  if (read.offer === null) return
  offers.push({
    ...read.offer,
    form: 'tollkeeper',
    amount: read.offer.amount + BigInt(fee.maxAmountRequired),
  })
}

function judgeDescription(report: SellerReport, required: unknown, { url }: Question): void {
  const { findings, offers } = report
  const { resource, extensions, accepts } = record(required)
  const [first] = Array.isArray(accepts) ? accepts : []
  const isV2 = typeof resource === 'object' && resource !== null
  const named = isV2 ? record(resource).url : record(first).resource
  judgeResource(findings, textOf(named), url)
  const described = isV2 ? record(resource) : record(first)
  if (textOf(described.description).trim() === '') findings.push(finding('no_description'))
  const { maxTimeoutSeconds } = record(first)
  const declared = isV2
    ? declaredInV2({ resource, extensions }, maxTimeoutSeconds)
    : declaredInV1(record(first))
  if (declared === null) {
    findings.push(finding('not_described'))
    return
  }
  judgeDeclared(report, declared, offers[0])
}

function judgeResource(findings: SellerFinding[], named: string, asked: string): void {
  const resource = URL.parse(named)
  if (named === '' || resource === null) return
  const url = new URL(asked)
  if (resource.origin !== url.origin)
    findings.push(
      finding(
        'resource_elsewhere',
        `Its challenge names ${named.slice(0, 200)}, at another origin than ${url.origin}.`,
      ),
    )
  else if (resource.pathname !== url.pathname)
    findings.push(
      finding(
        'resource_differs',
        `Its challenge names the path ${resource.pathname.slice(0, 200)}, not ${url.pathname}.`,
      ),
    )
}

function judgeDeclared(report: SellerReport, declared: Declared, offer: SellerOffer | undefined): void {
  const { findings } = report
  const read = readDeclaration(declared, {
    chainId: offer?.network.chainId ?? 0,
    payTo: offer?.seller ?? '0x',
    amount: offer?.amount ?? 0n,
    providerId: null,
  })
  if (typeof read === 'string') {
    findings.push(finding(codeOfFault(read), `Catalogs reject its description: ${read}.`))
    return
  }
  report.declaration = read
  const { method, type } = record(record(record(declared.bazaar).info).input)
  const how = textOf(method) || textOf(type)
  findings.push(finding('described', `Its discovery extension can be read${how && `: ${how}`}.`))
  const dropped = [
    declared.serviceName !== undefined && read.serviceName === null && 'serviceName',
    Array.isArray(declared.tags)
      ? declared.tags.length > read.tags.length && 'tags'
      : declared.tags !== undefined && 'tags',
    declared.iconUrl !== undefined && read.iconUrl === null && 'iconUrl',
  ].filter((one) => one !== false)
  if (dropped.length > 0)
    findings.push(
      finding(
        'service_fields_dropped',
        `Catalogs leave out ${dropped.join(', ')}, against the rules of x402.`,
      ),
    )
  const output = record(record(declared.bazaar).info).output
  if (output === undefined) findings.push(finding('no_output'))
}

function codeOfFault(fault: string): FindingCode {
  if (fault.startsWith('resource.')) return 'description_too_long'
  return fault.startsWith('resource:') ? 'resource_invalid' : 'description_invalid'
}

/** The answers to the additional requests that browsers and other clients send. */
export type FurtherAnswers = {
  /** The answer to the same request with an `Origin` header. */
  fromPage: SellerAnswer | null
  /** The answer to the preflight that a browser sends before it pays. */
  preflight: SellerAnswer | null
  /** The answer to HEAD; null if no HEAD was sent. */
  head: SellerAnswer | null
}

/** The headers that a paying page sends. */
export const preflightHeaders = ['payment-signature', 'content-type']

/** Judges whether pages of other origins can pay, and whether HEAD is served unpaid. */
export function judgeFurther({ fromPage, preflight, head }: FurtherAnswers): SellerFinding[] {
  const findings: SellerFinding[] = []
  const listOf = (answer: SellerAnswer, name: string) =>
    headerText(answer, name)
      .toLowerCase()
      .split(',')
      .map((one) => one.trim())
  if (fromPage !== null) {
    const exposed = listOf(fromPage, 'access-control-expose-headers')
    if (headerText(fromPage, 'access-control-allow-origin') === '') findings.push(finding('no_cors'))
    else if (!exposed.includes('*') && !exposed.includes('payment-required'))
      findings.push(finding('headers_not_exposed'))
  }
  if (preflight !== null) {
    const allowed = listOf(preflight, 'access-control-allow-headers')
    const isAllowed =
      preflight.httpStatus >= 200 &&
      preflight.httpStatus < 300 &&
      headerText(preflight, 'access-control-allow-origin') !== '' &&
      (allowed.includes('*') || preflightHeaders.every((name) => allowed.includes(name)))
    if (!isAllowed) findings.push(finding('preflight_fails'))
  }
  if (fromPage !== null && preflight !== null && findings.length === 0)
    findings.push(finding('browsers_can_pay'))
  if (head !== null && head.httpStatus >= 200 && head.httpStatus < 300) findings.push(finding('head_differs'))
  return findings
}

/**
 * Returns the method by which to request a URL that is sold by `method`. The request carries no payment, so it triggers nothing at the
 * seller.
 */
export function askedMethod(method: string): 'GET' | 'POST' {
  return hasBody(method) ? 'POST' : 'GET'
}

function headerText({ headers }: SellerAnswer, name: string): string {
  const value = headers[name]
  return typeof value === 'string' ? value : (value?.join(', ') ?? '')
}

function isAddress(text: string): text is Address {
  return /^0x[0-9a-f]{40}$/.test(text)
}

/** Formats an untrusted value for a sentence. */
function shown(value: unknown): string {
  return value === undefined ? 'missing' : (JSON.stringify(value) ?? typeof value).slice(0, 100)
}

function record(value: unknown): Record<string, unknown> {
  return isRecord(value) ? value : {}
}
