import { setTimeout as sleep } from 'node:timers/promises'
import { type Declaration, listDeclaration, readDeclaration } from '@tollkeeper/ledger/discovery/declarations'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { Logger } from '@tollkeeper/runtime/log'
import type { FacilitatorRequest } from './request.ts'

/** The result of listing a resource that a payment declares (x402's extension `bazaar`). */
type ListingAnswer = { status: 'success' | 'processing' } | { status: 'rejected'; rejectedReason: string }

/** Minimum interval in ms between two writes of an unchanged resource, however often it is paid for. */
const noteEveryMs = 60_000
const maxNoted = 10_000
/**
 * Maximum time in ms for which the answer to /settle waits until the resource is written to the list. After that, the answer says `processing`. It
 * must be well below the caller's own timeout: the money has already moved, so the caller must receive the answer.
 */
const mostMs = 1_000

/**
 * Creates the functions that list resources declared by payments. They return values of the header `EXTENSION-RESPONSES`, or undefined if
 * a payment declares nothing.
 */
export function createListings(
  sql: Queryable,
  { log, now }: { log: Pick<Logger, 'warn'>; now: () => number },
) {
  const noted = new Map<string, number>()

  async function note(declaration: Declaration): Promise<ListingAnswer> {
    const { providerId, chainId, payTo, resource, amount } = declaration
    // The key contains the amount, so that a changed price is written at once.
    const key = [providerId, chainId, payTo, resource, amount].join(' ')
    const notedAt = noted.get(key)
    if (notedAt !== undefined && now() - notedAt < noteEveryMs) return { status: 'success' }
    if (!(await listDeclaration(sql, declaration)))
      return {
        status: 'rejected',
        rejectedReason: 'this wallet has reached its maximum number of listed resources',
      }
    if (noted.size >= maxNoted) noted.delete(noted.keys().next().value ?? '')
    noted.delete(key)
    noted.set(key, now())
    return { status: 'success' }
  }

  /** Reads what a payment declares, or returns why it isn't listed. Never throws, because a declaration must not decide about a payment. */
  function readOf(request: FacilitatorRequest, providerId: string | null): Declaration | string | undefined {
    const { declared, served, authorization } = request
    if (declared === null) return undefined
    const { chainId } = served.network
    const payment = { chainId, payTo: authorization.to, amount: authorization.value, providerId }
    try {
      return readDeclaration(declared, payment)
    } catch (err) {
      log.warn({ err, resource: declared.resource }, 'a declared resource could not be read')
      return 'extensions.bazaar could not be read: check its format'
    }
  }

  return {
    /** Returns /verify's answer: whether the resource will be listed once the payment settles. Never throws. */
    announce(request: FacilitatorRequest, providerId: string | null): string | undefined {
      const read = readOf(request, providerId)
      if (read === undefined) return undefined
      return encode(
        typeof read === 'string' ? { status: 'rejected', rejectedReason: read } : { status: 'processing' },
      )
    },
    /** Lists the resource that a settled payment declares. Never throws, because the money has moved. */
    async list(request: FacilitatorRequest, providerId: string | null): Promise<string | undefined> {
      const read = readOf(request, providerId)
      if (read === undefined) return undefined
      if (typeof read === 'string') return encode({ status: 'rejected', rejectedReason: read })
      const noted = note(read).catch((err: unknown): ListingAnswer => {
        log.warn({ err, resource: read.resource }, 'a declared resource could not be listed')
        return {
          status: 'rejected',
          rejectedReason: 'the list cannot be written now: the next payment will list the resource',
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
