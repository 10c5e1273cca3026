import { compactVerify, importJWK, type JWK } from 'jose'
import { recoverTypedDataAddress } from 'viem'
import { type ErrorCode, isErrorCode, ProtocolError } from '../protocol/errors.ts'
import { isRecord, parseJson, textOf } from '../protocol/fields.ts'
import {
  type PassClaims,
  type PassProof,
  parsePassClaims,
  parsePassHeader,
  passProofData,
  passProofSeconds,
  passType,
} from '../protocol/pass.ts'
import { type GatewayClientOptions, postToGateway, sleep } from './gatewayClient.ts'
import { askUntilCertain, type WaitUntil } from './recovery.ts'
import type { Warnings } from './warnings.ts'

/**
 * Age in ms at which the gateway's keys are fetched again. During a rotation, the gateway publishes a new key 10 minutes before it uses the key. The
 * keys are fetched more often than that, so a new key is known before its first use.
 */
const keysMs = 300_000
/** Minimum interval in ms between fetches for an unknown key id. */
const unknownKeyMs = 30_000
/** Maximum age in ms of the list of ended passes. A refunded pass may therefore stay valid for this long. */
export const endedMs = 60_000
/** Maximum age in ms of the list of ended passes while the gateway isn't responding. */
const endedOutageMs = 3_600_000
/** Delay in ms after a failure before the gateway is called again. */
const retryMs = 5_000
/** Maximum number of remembered passes, and maximum number of remembered proofs. */
const maxRemembered = 1_000
/** Time in seconds by which a payer's clock may be ahead. */
const clockSkewSeconds = 60

/** A valid pass. */
export type OpenPass = {
  claims: PassClaims
  /** Number of requests left on the pass after this one. Undefined if they aren't counted. */
  left?: number
  /** Cancels the counting of this request. Call it if the request was not served. */
  giveBack?: () => Promise<void>
}

/** The result of a check. `unavailable`: the check needs the gateway, and the gateway isn't responding. */
export type PassVerdict =
  | ({ kind: 'open' } & OpenPass)
  | { kind: 'refused'; code: ErrorCode; detail: string }
  | { kind: 'unavailable'; detail: string }

/** A pass that is presented with a request. */
export type PresentedPass = {
  /** The value of the header `Service-Pass`. */
  header: string
  /** The endpoints that the request is for. */
  endpointIds: readonly string[]
  /** The origin that buyers call. A payer's proof must name it. Default: the origin of the endpoint's registered URL. */
  origin: string | undefined
  waitUntil?: WaitUntil | undefined
}

export type PassesOptions = {
  gateway: GatewayClientOptions & { apiKey: string }
  providerId: string
  warnings: Pick<Warnings, 'explain' | 'tell'>
  /** Returns the current time in Unix milliseconds. */
  now?: () => number
}

export type Passes = ReturnType<typeof createPasses>

/**
 * Creates a checker of passes. It verifies the signature and terms of a pass with the gateway's public keys, without calling the gateway. It finds
 * out whether a pass has ended from a list, which it fetches once a minute while passes are used. If a pass buys a number of requests, the gateway
 * counts each request.
 */
export function createPasses({ gateway, providerId, warnings, now = () => Date.now() }: PassesOptions) {
  const path = `/providers/${encodeURIComponent(providerId)}/passes`
  const keys = createKeys(gateway, now)
  const ended = createEnded(gateway, { path, warnings, now })
  const verified = new Map<string, { claims: PassClaims; kid: string }>()
  const proven = new Map<string, true>()

  /** @throws {ProtocolError} `pass_invalid`; `dependency_unavailable` if there are no keys. */
  async function verify(jws: string): Promise<PassClaims> {
    const findKey = await keys.current()
    const known = verified.get(jws)
    // Use the remembered claims only while the gateway still publishes the key that signed them.
    if (known && findKey(known.kid)) return known.claims
    const keyOf = async ({ kid = '' }: { kid?: string }) => {
      const key = findKey(kid) ?? (await keys.find(kid))
      if (key) return key
      throw new ProtocolError('pass_invalid', 'Pass: the gateway does not publish its signing key')
    }
    const { payload, protectedHeader } = await compactVerify(jws, keyOf, { algorithms: ['ES256'] }).catch(
      (error: unknown) => {
        if (error instanceof ProtocolError) throw error
        const { message } = error as Error
        throw new ProtocolError('pass_invalid', `Pass is not valid: ${message}`, { cause: error })
      },
    )
    const { typ, kid = '' } = protectedHeader
    if (typ !== passType)
      throw new ProtocolError(
        'pass_invalid',
        `Pass: the header must have typ ${passType}, got ${textOf(typ).slice(0, 40) || 'none'}`,
      )
    const claims = parsePassClaims(parseJson(new TextDecoder().decode(payload)))
    remember(verified, jws, { claims, kid })
    return claims
  }

  async function requireProof(
    claims: PassClaims,
    proof: PassProof | undefined,
    origin: string,
  ): Promise<void> {
    const { payer, jti: pass } = claims
    if (payer === undefined) return
    const refuse = (reason: string) =>
      new ProtocolError('pass_proof_invalid', `Proof of the payer: ${reason}`)
    if (!proof) throw refuse('the pass is bound to its payer, and there is no proof')
    const { expiresAt, signature } = proof
    const seconds = now() / 1000
    if (expiresAt <= seconds) throw refuse('the proof has expired')
    if (expiresAt > seconds + passProofSeconds + clockSkewSeconds)
      throw refuse(`a proof may be valid for at most ${passProofSeconds} seconds`)
    const name = [pass, payer, origin, expiresAt, signature].join(' ')
    if (proven.has(name)) return
    const signer = await recoverTypedDataAddress({
      ...passProofData({ origin, pass, expiresAt }),
      signature,
    }).catch(() => undefined)
    if (signer?.toLowerCase() !== payer)
      throw refuse(`${payer} did not sign the proof for ${origin} and this pass`)
    remember(proven, name, true)
  }

  async function open({ header, endpointIds, origin, waitUntil }: PresentedPass): Promise<PassVerdict> {
    const { jws, proof } = parsePassHeader(header)
    const claims = await verify(jws)
    if (claims.providerId !== providerId || !endpointIds.includes(claims.endpointId))
      return refused('pass_invalid', 'The pass is for another endpoint')
    if (claims.exp * 1000 <= now()) return refused('pass_expired')
    await requireProof(claims, proof, origin ?? claims.aud)
    if (claims.requests !== undefined) return count(claims, waitUntil)
    const list = await ended.current()
    if (!list) return { kind: 'unavailable', detail: 'The gateway did not list the passes that have ended' }
    return list.has(claims.jti) ? refused('pass_ended') : { kind: 'open', claims }
  }

  async function count(claims: PassClaims, waitUntil: WaitUntil | undefined): Promise<PassVerdict> {
    const useId = crypto.randomUUID()
    const uses = `${path}/${claims.jti}/uses`
    const giveBackOnce = async () => {
      const answer = await postToGateway(gateway, { path: `${uses}/${useId}/void`, body: {} })
      return answer !== undefined && answer.status < 500 && answer.status !== 429
    }
    const giveBack = async () => {
      if (!(await giveBackOnce())) askUntilCertain((delaysMs) => repeat(giveBackOnce, delaysMs), waitUntil)
    }
    const answer = await postToGateway(gateway, { path: uses, body: { useId } })
    if (answer?.status === 200 && isRecord(answer.body) && typeof answer.body.left === 'number')
      return { kind: 'open', claims, left: answer.body.left, giveBack }
    const { code } = isRecord(answer?.body) ? answer.body : {}
    if (answer?.status === 402 && isErrorCode(code)) return refused(code)
    // The gateway may have counted the request, but nothing is served for it, so cancel the counting.
    if (!answer || answer.status >= 500) void giveBack().catch(() => {})
    if (answer && answer.status < 500) warnings.explain(answer, 'counting a request under a pass')
    return { kind: 'unavailable', detail: 'The gateway did not count the request' }
  }

  return {
    /** Returns whether a pass has ended before its expiry. Returns false if this isn't known. @param paymentId the payment that bought the pass. */
    hasEnded: async (paymentId: string): Promise<boolean> => (await ended.current())?.has(paymentId) ?? false,
    /** Checks a pass that is presented with a request. Never throws. */
    async check(presented: PresentedPass): Promise<PassVerdict> {
      try {
        return await open(presented)
      } catch (error) {
        if (!(error instanceof ProtocolError)) throw error
        const { code, message } = error
        return code === 'dependency_unavailable'
          ? { kind: 'unavailable', detail: message }
          : refused(code, message)
      }
    },
  }
}

function refused(code: ErrorCode, detail = ''): Extract<PassVerdict, { kind: 'refused' }> {
  return { kind: 'refused', code, detail }
}

function remember<Value>(map: Map<string, Value>, key: string, value: Value): void {
  if (map.size >= maxRemembered) map.delete(map.keys().next().value ?? '')
  map.set(key, value)
}

async function repeat(ask: () => Promise<boolean>, delaysMs: Iterable<number>): Promise<boolean> {
  for (const delay of delaysMs) {
    await sleep(delay)
    if (await ask()) return true
  }
  return false
}

/**
 * Creates a cache of the gateway's public keys. Fetched keys stay valid while the gateway isn't responding. A key that the gateway no longer
 * publishes becomes invalid with the next fetch.
 */
function createKeys(gateway: GatewayClientOptions, now: () => number) {
  let keys: Map<string, CryptoKey> | undefined
  let fetchedAt = Number.NEGATIVE_INFINITY
  let triedAt = Number.NEGATIVE_INFINITY
  let fetching: Promise<void> | undefined

  async function load(): Promise<void> {
    triedAt = now()
    const answer = await getFromGateway(gateway, '/.well-known/jwks.json')
    const { keys: list } = answer.status === 200 && isRecord(answer.body) ? answer.body : {}
    if (!Array.isArray(list)) return
    const found = new Map<string, CryptoKey>()
    for (const jwk of list.filter(isRecord)) {
      if (typeof jwk.kid !== 'string' || jwk.kty !== 'EC' || jwk.crv !== 'P-256') continue
      const key = await importJWK(jwk as JWK, 'ES256').catch(() => undefined)
      if (key && !(key instanceof Uint8Array)) found.set(jwk.kid, key)
    }
    keys = found
    fetchedAt = triedAt
  }
  const refresh = () => {
    fetching ??= load()
      .catch(() => {})
      .finally(() => {
        fetching = undefined
      })
    return fetching
  }

  return {
    /** Finds a key among the fetched keys. @throws {ProtocolError} `dependency_unavailable` before the first successful fetch. */
    async current(): Promise<(kid: string) => CryptoKey | undefined> {
      if (now() - fetchedAt >= keysMs && now() - triedAt >= retryMs) {
        const refreshing = refresh()
        if (!keys) await refreshing
      } else if (!keys && fetching) await fetching
      if (!keys) throw new ProtocolError('dependency_unavailable', 'The gateway’s keys could not be fetched')
      const known = keys
      return (kid) => known.get(kid)
    },
    /** Finds a key that may have been published recently. Calls the gateway for an unknown key, but only at a limited rate. */
    async find(kid: string): Promise<CryptoKey | undefined> {
      if (fetching || now() - triedAt >= unknownKeyMs) await refresh()
      return keys?.get(kid)
    },
  }
}

type EndedPage = { etag: string | null; ids: readonly string[]; cursor: string | null }

/** Creates a cache of the list of passes that have ended before their expiry. */
function createEnded(
  gateway: GatewayClientOptions,
  { path, warnings, now }: Pick<PassesOptions, 'warnings'> & { path: string; now: () => number },
) {
  let pages: readonly EndedPage[] = []
  let list: ReadonlySet<string> | undefined
  let readAt = Number.NEGATIVE_INFINITY
  let triedAt = Number.NEGATIVE_INFINITY
  let reading: Promise<void> | undefined

  async function readPage(cursor: string | null, before: EndedPage | undefined): Promise<EndedPage> {
    const query = cursor === null ? '' : `?cursor=${encodeURIComponent(cursor)}`
    const answer = await getFromGateway(gateway, `${path}/ended${query}`, before?.etag)
    if (answer.status === 304 && before) return before
    const { ended, cursor: next = null } = answer.status === 200 && isRecord(answer.body) ? answer.body : {}
    if (!Array.isArray(ended)) {
      warnings.explain(answer, 'reading which passes have ended')
      throw new TypeError('the gateway returned no list of ended passes')
    }
    const ids = ended.filter(isRecord).map(({ paymentId }) => textOf(paymentId))
    return { etag: answer.headers.get('etag'), ids, cursor: typeof next === 'string' ? next : null }
  }

  async function load(): Promise<void> {
    const startedAt = now()
    triedAt = startedAt
    const read: EndedPage[] = []
    for (let cursor: string | null = null; ; ) {
      const before = pages[read.length]
      const isSame = (pages[read.length - 1]?.cursor ?? null) === cursor
      const page = await readPage(cursor, isSame ? before : undefined)
      read.push(page)
      if (page.cursor === null) break
      cursor = page.cursor
    }
    pages = read
    list = new Set(read.flatMap(({ ids }) => ids))
    readAt = startedAt
  }

  const usable = () => (now() - readAt < endedOutageMs ? list : undefined)

  return {
    /** @returns undefined if the gateway has not returned a list yet, or not within the last hour. */
    async current(): Promise<ReadonlySet<string> | undefined> {
      if (now() - readAt >= endedMs) {
        const hasFailed = triedAt > readAt
        if (!reading && (!hasFailed || now() - triedAt >= retryMs))
          reading = load()
            .catch(() => {})
            .finally(() => {
              reading = undefined
            })
        // After a failure, requests use the old list while it is usable, and don't wait for the gateway.
        if (!hasFailed || !usable()) await reading
      }
      return usable()
    },
  }
}

async function getFromGateway(
  { gatewayUrl, apiKey, timeoutMs, fetch = globalThis.fetch }: GatewayClientOptions,
  path: string,
  etag?: string | null,
) {
  const headers = new Headers({ accept: 'application/json' })
  if (apiKey && path.startsWith('/providers/')) headers.set('authorization', `Bearer ${apiKey}`)
  if (etag) headers.set('if-none-match', etag)
  const response = await fetch(`${gatewayUrl.replace(/\/+$/, '')}${path}`, {
    headers,
    // Don't follow redirects: another server would receive the API key. Workers don't support redirect 'error'.
    redirect: 'manual',
    signal: AbortSignal.timeout(timeoutMs),
  })
  const text = await response.text()
  return { status: response.status, headers: response.headers, body: parseJson(text), text }
}
