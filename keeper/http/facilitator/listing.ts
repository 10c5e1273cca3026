import { setTimeout as sleep } from 'node:timers/promises'
import { type Declaration, listDeclaration, readDeclaration } from '@tollkeeper/ledger/discovery/declarations'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { Logger } from '@tollkeeper/runtime/log'
import type { FacilitatorRequest } from './request.ts'

/** What happened to a resource that a payment declares (x402's extension `bazaar`). */
type ListingAnswer = { status: 'success' | 'processing' } | { status: 'rejected'; rejectedReason: string }

/** A resource that is paid for all the time is noted as often as this. */
const noteEveryMs = 60_000
const maxNoted = 10_000
/** How long an answer waits for the list. It must be shorter than its caller's turn to hear that the payment settled. */
const mostMs = 1_000

/** @returns values of the header `EXTENSION-RESPONSES`; undefined if a payment declares nothing. */
export function createListings(
  sql: Queryable,
  { log, now }: { log: Pick<Logger, 'warn'>; now: () => number },
) {
  const noted = new Map<string, number>()

  async function note(declaration: Declaration): Promise<ListingAnswer> {
    const { providerId, chainId, payTo, resource, amount } = declaration
    // A changed price is noted at once.
    const key = [providerId, chainId, payTo, resource, amount].join(' ')
    const notedAt = noted.get(key)
    if (notedAt !== undefined && now() - notedAt < noteEveryMs) return { status: 'success' }
    if (!(await listDeclaration(sql, declaration)))
      return { status: 'rejected', rejectedReason: 'this wallet has as many resources listed as it may' }
    if (noted.size >= maxNoted) noted.delete(noted.keys().next().value ?? '')
    noted.delete(key)
    noted.set(key, now())
    return { status: 'success' }
  }

  /** Reads what a payment declares, or says why it isn't listed. Never throws: a declaration must not decide about a payment. */
  function readOf(request: FacilitatorRequest, providerId: string | null): Declaration | string | undefined {
    const { declared, served, authorization } = request
    if (declared === null) return undefined
    const { chainId } = served.network
    const payment = { chainId, payTo: authorization.to, amount: authorization.value, providerId }
    try {
      return readDeclaration(declared, payment)
    } catch (err) {
      log.warn({ err, resource: declared.resource }, 'a declared resource could not be read')
      return 'extensions.bazaar: it can not be read'
    }
  }

  return {
    /** What is said at /verify: whether it will be listed once the payment settles. Never throws. */
    announce(request: FacilitatorRequest, providerId: string | null): string | undefined {
      const read = readOf(request, providerId)
      if (read === undefined) return undefined
      return encode(
        typeof read === 'string' ? { status: 'rejected', rejectedReason: read } : { status: 'processing' },
      )
    },
    /** Lists what a payment declares that has settled. Never throws: the money has moved. */
    async list(request: FacilitatorRequest, providerId: string | null): Promise<string | undefined> {
      const read = readOf(request, providerId)
      if (read === undefined) return undefined
      if (typeof read === 'string') return encode({ status: 'rejected', rejectedReason: read })
      const noted = note(read).catch((err: unknown): ListingAnswer => {
        log.warn({ err, resource: read.resource }, 'a declared resource could not be listed')
        return {
          status: 'rejected',
          rejectedReason: 'the list can not be written for now: the next payment lists it',
        }
      })
      return encode(
        await Promise.race([noted, sleep(mostMs, { status: 'processing' } as const, { ref: false })]),
      )
    },
  }
}

function encode(bazaar: ListingAnswer): string {
  return Buffer.from(JSON.stringify({ bazaar })).toString('base64')
}
