import { encodeUtf8 } from '../protocol/bytes.ts'
import type { Challenge } from '../protocol/challenge.ts'
import { parseMacaroon } from '../protocol/macaroon.ts'
import {
  decodePass,
  encodePassHeader,
  type PassClaims,
  type PassProof,
  passProofData,
  passProofSeconds,
} from '../protocol/pass.ts'
import { isSamePass } from '../protocol/passTerms.ts'
import { isoTime } from '../protocol/time.ts'
import { ChallengeRefusedError, readProblem } from './errors.ts'
import type { Asked } from './offers.ts'
import { type PassStore, readSavedPass, type SavedPass } from './passStore.ts'
import type { Signer } from './payer.ts'
import type { PaymentScope } from './paymentStore.ts'
import type { Attempt } from './presentation.ts'
import { sha256 } from './sentBody.ts'
import type { Answer } from './transport.ts'

type HeldPass = {
  /** The pass's id in the store. */
  id: string
  jws: string
  claims: PassClaims
  origin: string
  proof?: PassProof
  /** The pending proof, which the wallet hasn't signed yet. Concurrent requests wait for the same proof, so that a person is asked only once. */
  proving?: Promise<PassProof> | undefined
}

/** Maximum number of passes in memory. */
const maxPasses = 1_000
/** A pass or proof is no longer presented when it expires within this many seconds, because the request needs time to arrive. */
const waySeconds = 5

/**
 * Holds the passes that payments bought, and presents them with requests to the same endpoint.
 *
 * @param store keeps the passes beyond the end of the process. Default: only memory.
 * @param scope the wallet, network and gateway of the passes.
 * @param warn receives warnings about the store.
 * @param now Unix seconds.
 */
export function createHeldPasses({
  payer,
  store,
  scope,
  log,
  warn = console.warn,
  now = () => Date.now() / 1000,
}: {
  payer: Signer
  store?: PassStore | undefined
  scope: PaymentScope
  log: (message: string) => void
  warn?: (message: string) => void
  now?: () => number
}) {
  /** Passes by origin and endpoint. */
  const passes = new Map<string, HeldPass>()
  /** The endpoint of each route at which a pass was bought. */
  const routes = new Map<string, string>()
  let loading: Promise<void> | undefined
  const { headerOf } = createProver({ payer, log, now })

  async function load(from: PassStore): Promise<void> {
    for (const record of await from.load()) {
      const read = readSavedPass(record)
      if (!read) {
        warn('[tollkeeper] A record in the store of passes is not a pass and is ignored')
        continue
      }
      const { claims, saved } = read
      if (claims.exp <= now() + waySeconds) await remove(saved.id)
      else if (isSameScope(saved.scope, scope)) {
        const key = keyOf(saved.origin, claims.endpointId)
        // If the client bought a pass while the store was being read, the bought pass is newer than the stored pass.
        if (passes.has(key)) continue
        passes.set(key, { id: saved.id, jws: saved.jws, claims, origin: saved.origin })
        routes.set(saved.route, key)
      }
    }
  }

  /** Loads the passes of the store once. If that fails, the next request tries again. */
  async function loaded(): Promise<void> {
    if (!store) return
    loading ??= load(store)
    await loading.catch((cause) => {
      loading = undefined
      throw cause
    })
  }

  /** Removes a pass from the store. If that fails, the pass stays there until it expires, and the seller may have to reject it again. */
  async function remove(id: string): Promise<void> {
    try {
      await store?.remove(id)
    } catch (error) {
      log(`a pass could not be removed from the store: ${error}`)
    }
  }

  /** Saves a pass. If that fails, the pass is kept only in memory, and the client buys another after a restart. */
  async function save(saved: SavedPass): Promise<void> {
    try {
      await store?.save(saved)
    } catch (error) {
      const until = isoTime(saved.expiresAt)
      warn(
        `[tollkeeper] The pass for ${saved.route} until ${until} was not stored and is kept only in memory: ${error}`,
      )
    }
  }

  async function find(asked: Asked, endpointId?: string): Promise<[key: string, pass: HeldPass] | undefined> {
    const key = endpointId === undefined ? routes.get(routeOf(asked)) : keyOf(asked.url, endpointId)
    const held = key === undefined ? undefined : passes.get(key)
    if (key === undefined || !held) return undefined
    if (held.claims.exp > now() + waySeconds) return [key, held]
    await forget(key, held)
    return undefined
  }

  /** Forgets a pass, unless another request has already replaced it with a newer pass. */
  async function forget(key: string, held: HeldPass): Promise<void> {
    if (passes.get(key) !== held) return
    passes.delete(key)
    await remove(held.id)
  }

  return {
    /**
     * Keeps the pass of a paid response. If the request was redirected to another seller, the pass is ignored, because it doesn't belong to the
     * requested seller.
     */
    async keep(asked: Asked, { url, headers }: Answer): Promise<void> {
      const jws = headers.get('service-pass')
      const claims = jws === null ? undefined : decodePass(jws)
      if (jws === null || !claims || asked.seller !== undefined) return
      const { origin } = new URL(asked.url)
      if (new URL(url).origin !== origin) return
      const key = keyOf(asked.url, claims.endpointId)
      const route = routeOf(asked)
      // Don't use the pass's `jti`: a seller could copy the `jti` of another seller's pass to replace or remove that pass.
      const id = await sha256(encodeUtf8(JSON.stringify([...scopeParts(scope), key])))
      passes.delete(key)
      passes.set(key, { id, jws, claims, origin })
      routes.set(route, key)
      const saving = save({ id, scope, origin, route, expiresAt: claims.exp, jws })
      if (routes.size > maxPasses) routes.delete(routes.keys().next().value ?? '')
      const [[oldest, evicted] = []] = passes
      if (passes.size > maxPasses && oldest !== undefined && evicted) await forget(oldest, evicted)
      await saving
      log(`keeping the pass of ${claims.jti} until ${isoTime(claims.exp)}`)
    },
    /**
     * Sends a request with the pass of its endpoint. Forgets a pass that has ended. Keeps a pass whose proof is rejected: the payer's clock is
     * probably wrong, so the proof of another pass would also be rejected.
     *
     * @param endpointId the endpoint that a 402 named, if the request's own route isn't known.
     * @returns undefined if there is no pass, or the payer doesn't sign. `isOver`: the response asks the client to buy another pass.
     * @throws {ChallengeRefusedError} `payment_store_failed` for a challenge, if the store can't be read: it may contain a valid pass.
     */
    async present<A extends Answer>(
      { asked, send, deadline }: Attempt<A>,
      endpointId?: string,
    ): Promise<{ answer: A; isOver: boolean } | undefined> {
      await loaded().catch((cause) => {
        log(`stored passes could not be read: ${cause}`)
        if (endpointId === undefined) return
        const reason =
          'stored passes could not be read, and this payment might buy one that is already stored'
        throw new ChallengeRefusedError(reason, { code: 'payment_store_failed', cause })
      })
      const [key, held] = (await find(asked, endpointId)) ?? []
      if (key === undefined || !held) return undefined
      const value = await headerOf(held)
      if (value === undefined) {
        await forget(key, held)
        return undefined
      }
      log(`presenting the pass of ${held.claims.jti}`)
      const answer = await send({ name: 'service-pass', value }, deadline)
      const { status, body, headers } = answer
      const isOver = status === 402 && readProblem(status, body).code !== 'pass_proof_invalid'
      if (isOver || headers.get('service-pass-left') === '0') await forget(key, held)
      else routes.set(routeOf(asked), key)
      return { answer, isOver }
    },
  }
}

/** Signs the proofs for passes that are bound to a payer. Each proof is valid for ten minutes. */
function createProver({
  payer,
  log,
  now,
}: {
  payer: Signer
  log: (message: string) => void
  now: () => number
}) {
  async function prove(held: HeldPass): Promise<PassProof | undefined> {
    const { claims, origin, proof } = held
    if (claims.payer === undefined) return undefined
    if (proof && proof.expiresAt > now() + waySeconds) return proof
    const sign = async (): Promise<PassProof> => {
      const expiresAt = Math.floor(now()) + passProofSeconds
      const data = passProofData({ origin, pass: claims.jti, expiresAt })
      log(`signing the proof for the pass of ${claims.jti}`)
      // Payers sign any typed data, although the type declares only EIP-3009's messages.
      held.proof = { expiresAt, signature: await payer.signTypedData(data as never) }
      return held.proof
    }
    held.proving ??= sign().finally(() => {
      held.proving = undefined
    })
    return held.proving
  }

  /** Returns the header that presents a pass. Returns undefined if the payer doesn't sign. */
  async function headerOf(held: HeldPass): Promise<string | undefined> {
    try {
      return encodePassHeader(held.jws, await prove(held))
    } catch {
      log('the proof for the pass was not signed')
      return undefined
    }
  }

  return { headerOf }
}

/**
 * Rejects a challenge whose pass differs from the pass in its macaroon. The macaroon decides what the gateway sells.
 *
 * @throws {ChallengeRefusedError}
 */
export function requirePromised({ pass, macaroon }: Challenge): void {
  if (!isSamePass(pass, parseMacaroon(macaroon).terms.pass))
    throw new ChallengeRefusedError('the pass in the challenge differs from the pass in its macaroon')
}

function scopeParts({ payer, network, gatewayUrl }: PaymentScope): string[] {
  return [payer.toLowerCase(), network, gatewayUrl]
}

function isSameScope(one: PaymentScope, other: PaymentScope): boolean {
  return scopeParts(one).join() === scopeParts(other).join()
}

/** @param url the seller's URL; only the origin counts. */
function keyOf(url: string, endpointId: string): string {
  return `${new URL(url).origin} ${endpointId}`
}

function routeOf({ method, url }: Asked): string {
  const { origin, pathname } = new URL(url)
  return `${method.toUpperCase()} ${origin}${pathname}`
}
