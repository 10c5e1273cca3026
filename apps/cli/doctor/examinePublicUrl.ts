import { lookup } from 'node:dns/promises'
import { type IncomingMessage, request as requestPlainly } from 'node:http'
import { request as requestByTls } from 'node:https'
import { isIP, type LookupFunction } from 'node:net'
import { text } from 'node:stream/consumers'
import type { TLSSocket } from 'node:tls'
import type { PublicReceiptKey } from '@tollkeeper/api/payments/receipts/keys'
import { isPublicAddress } from '@tollkeeper/runtime/addressGuard'
import { ConfigError, type Environment, readVariable } from '@tollkeeper/runtime/env'
import { type Check, fail, ok, reasonOf, warn } from './check.ts'

const publicUrlCheck = 'public URL'

/** Timeout in ms of each step. */
const usualTimeoutMs = 5_000
/**
 * Number of days before the certificate's expiry at which to warn. Automatic renewals happen a month before expiry, so at this
 * time they have failed.
 */
const expiryDays = 14
const dayMs = 86_400_000
const mostBytes = 200_000

/** The data that the gateway at the public URL publishes; undefined if no gateway was reached there. */
export type Published = { keys: PublicReceiptKey[] } | undefined

type Answer = { status: number; location: string | undefined; body: unknown; certificateEnds: Date | null }

export type PublicUrlOptions = {
  /** Resolves a name to its addresses. Default: the system's resolver. */
  resolve?: (hostname: string) => Promise<{ address: string; family: number }[]>
  /** Whether anyone on the internet can reach an address. */
  isPublic?: (address: string) => boolean
  timeoutMs?: number
  now?: () => number
}

/**
 * Requests the gateway at `PUBLIC_URL` as a buyer would, and reports whether it is this gateway.
 *
 * @param ownKids the receipt keys in this environment's file; null if there are none, so nothing can be compared.
 */
export async function examinePublicUrl(
  env: Environment,
  ownKids: readonly string[] | null,
  {
    resolve = (hostname) => lookup(hostname, { all: true }),
    isPublic = isPublicAddress,
    timeoutMs = usualTimeoutMs,
    now = Date.now,
  }: PublicUrlOptions = {},
): Promise<{ check: Check; published: Published }> {
  const without = (check: Check) => ({ check, published: undefined })
  let address: string | null
  try {
    address = readVariable(env, 'PUBLIC_URL')
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    return without(
      fail(publicUrlCheck, error.message, 'set PUBLIC_URL to the address at which buyers reach the gateway'),
    )
  }
  if (address === null) {
    const found = 'not set here (PUBLIC_URL): run doctor with the environment of the api as well'
    return without({ name: publicUrlCheck, status: 'skip', found })
  }
  const url = new URL(address)
  const hostname = url.hostname.replace(/^\[|\]$/g, '')
  const at = await inTime(resolve(hostname), timeoutMs).catch((error: unknown) => reasonOf(error))
  if (typeof at === 'string' || at.length === 0) {
    const found = `${hostname} doesn't resolve${typeof at === 'string' ? `: ${at}` : ''}`
    return without(
      fail(publicUrlCheck, found, 'add a DNS record that leads to the reverse proxy, or correct PUBLIC_URL'),
    )
  }
  const warnings: [found: string, advice: string][] = []
  const hidden = at.find((one) => !isPublic(one.address))
  if (hidden) {
    const named = isIP(hostname) ? 'is' : 'resolves to'
    warnings.push([
      `${hostname} ${named} ${hidden.address}, a private address`,
      'buyers on the internet can reach only a public address. Correct the record, unless you use split DNS',
    ])
  }
  if (url.protocol === 'http:') {
    const found = 'http: anyone on the network path can read and change prices, payees and receipts'
    if (hidden === undefined)
      return without(
        fail(publicUrlCheck, found, 'give the reverse proxy a certificate, and set PUBLIC_URL to https://…'),
      )
    warnings.push(['http', 'use https before anyone else can reach it'])
  }
  try {
    const home = await ask(new URL(`${address}/`), at, timeoutMs)
    const wrong = judgeHome(home, address)
    if (wrong) return without(wrong)
    const jwks = await ask(new URL(`${address}/.well-known/jwks.json`), at, timeoutMs)
    const published = readKeys(jwks)
    if (published === undefined) {
      const found = `${address}/.well-known/jwks.json answers ${jwks.status} without receipt keys`
      return without(
        fail(publicUrlCheck, found, 'make the reverse proxy forward /.well-known/ to the gateway'),
      )
    }
    const kids = published.keys.map(({ kid }) => kid)
    if (ownKids !== null && !ownKids.some((kid) => kids.includes(kid))) {
      const found = `answers with other receipt keys (${kids.join(', ')})`
      const advice =
        'another gateway answers there, or an api that reads another RECEIPT_KEY_FILE: correct PUBLIC_URL, or give all api processes the same file'
      return { check: fail(publicUrlCheck, found, advice), published }
    }
    const left = home.certificateEnds && (home.certificateEnds.getTime() - now()) / dayMs
    if (left !== null && left < expiryDays) {
      warnings.push([
        `its certificate expires in ${Math.floor(left)} days`,
        'its renewal has failed: see the log of the reverse proxy (Caddy needs port 80 or 443 open)',
      ])
    }
    const until = left === null ? '' : `, certificate valid for ${Math.floor(left)} days`
    const identity =
      ownKids === null
        ? 'a gateway answers (no receipt keys here to compare)'
        : 'this gateway answers, with the receipt keys of this environment'
    const found = `${address}: ${identity}${until}, as seen from this host`
    if (warnings.length === 0) return { check: ok(publicUrlCheck, found), published }
    const all = [...warnings.map(([one]) => one), found].join('; ')
    return { check: warn(publicUrlCheck, all, warnings.map(([, advice]) => advice).join('; ')), published }
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : ''
    const advice = /CERT|SIGNATURE|ALTNAME|SSL|TLS/.test(code)
      ? 'buyers refuse the certificate: let the reverse proxy get one from a public authority for this name'
      : 'check that the reverse proxy runs, that its ports can be reached from here, and that the DNS record leads to it'
    return without(fail(publicUrlCheck, `${address}: no answer: ${reasonOf(error)}`, advice))
  }
}

function judgeHome({ status, location, body }: Answer, address: string): Check | undefined {
  if (location !== undefined && status >= 300 && status < 400) {
    const found = `${address} redirects to ${location}`
    return fail(
      publicUrlCheck,
      found,
      'the gateway signs PUBLIC_URL into every challenge: set it to the address at which the gateway itself answers',
    )
  }
  const { name, gatewayUrl } = (typeof body === 'object' && body !== null ? body : {}) as Record<
    string,
    unknown
  >
  if (status !== 200 || name !== 'Tollkeeper') {
    const found = `${address} answers ${status}, and not as a gateway`
    return fail(
      publicUrlCheck,
      found,
      'another server answers there: correct PUBLIC_URL or the reverse proxy',
    )
  }
  if (gatewayUrl === address) return undefined
  const found = `the gateway at ${address} calls itself ${String(gatewayUrl)}`
  return fail(
    publicUrlCheck,
    found,
    'give every api process the same PUBLIC_URL: challenges and receipts contain it under their signatures',
  )
}

function readKeys({ status, body }: Answer): Published {
  if (status !== 200 || typeof body !== 'object' || body === null || !('keys' in body)) return undefined
  const { keys } = body
  const isKey = (key: unknown) =>
    typeof key === 'object' && key !== null && 'kid' in key && typeof key.kid === 'string'
  return Array.isArray(keys) && keys.every(isKey) ? { keys: keys as PublicReceiptKey[] } : undefined
}

/** Requests the URL at the addresses that were checked. It doesn't follow redirects. */
async function ask(url: URL, at: { address: string; family: number }[], timeoutMs: number): Promise<Answer> {
  const send = url.protocol === 'https:' ? requestByTls : requestPlainly
  const toKnown: LookupFunction = (_, { all }, done) => {
    const [first] = at
    if (all) done(null, at)
    else done(null, first?.address ?? '', first?.family)
  }
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const request = send(url, {
      headers: { accept: 'application/json' },
      agent: false,
      lookup: toKnown,
      signal: AbortSignal.timeout(timeoutMs),
    })
    request.on('response', resolve).on('error', reject).end()
  })
  const { socket, statusCode: status = 0, headers } = response
  const certificateEnds =
    url.protocol === 'https:' ? new Date((socket as TLSSocket).getPeerCertificate().valid_to) : null
  // The timeout of the request stops a body that never ends. This limit stops a body that is too large.
  let size = 0
  response.on('data', (part: Buffer) => {
    size += part.length
    if (size > mostBytes) response.destroy(new Error(`more than ${mostBytes} bytes`))
  })
  const body = await text(response)
  return { status, location: headers.location, body: readJson(body), certificateEnds }
}

function readJson(body: string): unknown {
  try {
    return JSON.parse(body)
  } catch {
    return undefined
  }
}

/** Limits the time for which a name server that doesn't respond can delay the other checks. */
async function inTime<Value>(work: Promise<Value>, timeoutMs: number): Promise<Value> {
  const { promise, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new Error(`no response within ${timeoutMs / 1_000} s`)), timeoutMs)
  try {
    return await Promise.race([work, promise])
  } finally {
    clearTimeout(timer)
  }
}
