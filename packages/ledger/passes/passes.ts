import type { PassTerms } from '@tollkeeper/sdk/protocol/passTerms'
import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'

/** Reasons why a pass ends before its time: see packages/ledger/functions/follow_passes.sql. */
export const passEndReasons = ['refunded', 'voided', 'unpaid'] as const
export type PassEndReason = (typeof passEndReasons)[number]

/** The current state of a pass. */
export type PassRecord = {
  /** The payment that bought it. */
  paymentId: string
  providerId: string
  endpointId: string
  payer: Address
  boundTo: PassTerms['boundTo']
  startsAt: Date
  endsAt: Date
  /** Number of requests bought; null if unlimited. */
  requests: number | null
  /** Number of requests used; 0 if they aren't counted. */
  used: number
  lastUsedAt: Date | null
  endReason: PassEndReason | null
  endedAt: Date | null
}

function columns(sql: Queryable) {
  return sql`payment_id as "paymentId", provider_id as "providerId", endpoint_id as "endpointId", payer, bound_to as "boundTo",
    starts_at as "startsAt", ends_at as "endsAt", requests, used, last_used_at as "lastUsedAt", end_reason as "endReason",
    ended_at as "endedAt"`
}

/** Finds the pass that a payment bought. */
export async function findPass(sql: Queryable, paymentId: string): Promise<PassRecord | undefined> {
  const [pass] = await sql<PassRecord[]>`select ${columns(sql)} from pass where payment_id = ${paymentId}`
  return pass
}

/** States of a pass. If several apply, `ended` takes precedence over `used_up`, and `used_up` over `expired`. */
export const passStates = ['valid', 'ended', 'used_up', 'expired'] as const
export type PassState = (typeof passStates)[number]

/** Returns the state of a pass at a time. */
export function passState({ endReason, requests, used, endsAt }: PassRecord, now: Date): PassState {
  if (endReason !== null) return 'ended'
  if (requests !== null && used >= requests) return 'used_up'
  return endsAt <= now ? 'expired' : 'valid'
}

export type PassFilter = {
  providerId: string
  endpointId?: string | undefined
  payer?: Address | undefined
  state?: PassState | undefined
}

/** Where a page of passes ended. */
export type PassPosition = Pick<PassRecord, 'startsAt' | 'paymentId'>

/** Finds a provider's passes, the newest first. */
export async function findPasses(
  sql: Queryable,
  { providerId, endpointId, payer, state }: PassFilter,
  { after, limit, now }: { after: PassPosition | null; limit: number; now: Date },
): Promise<PassRecord[]> {
  return sql<PassRecord[]>`
    select ${columns(sql)} from pass
    where provider_id = ${providerId}
      ${endpointId === undefined ? sql`` : sql`and endpoint_id = ${endpointId}`}
      ${payer === undefined ? sql`` : sql`and payer = ${payer}`}
      ${state === undefined ? sql`` : sql`and ${isInState(sql, state, now)}`}
      ${after === null ? sql`` : sql`and (starts_at, payment_id) < (${after.startsAt}, ${after.paymentId})`}
    order by starts_at desc, payment_id desc
    limit ${limit}`
}

/** Returns the SQL condition that matches {@link passState}. */
function isInState(sql: Queryable, state: PassState, now: Date) {
  const isUsedUp = sql`(requests is not null and used >= requests)`
  if (state === 'ended') return sql`end_reason is not null`
  if (state === 'used_up') return sql`end_reason is null and ${isUsedUp}`
  const isOpen = sql`end_reason is null and not ${isUsedUp}`
  return state === 'valid' ? sql`${isOpen} and ends_at > ${now}` : sql`${isOpen} and ends_at <= ${now}`
}

/** Finds the payments whose passes ended before their time, in the order of their ids. Middleware refuses these passes. */
export async function findEndedPasses(
  sql: Queryable,
  providerId: string,
  { after, limit, now }: { after: { paymentId: string } | null; limit: number; now: Date },
): Promise<{ paymentId: string; reason: PassEndReason }[]> {
  return sql<{ paymentId: string; reason: PassEndReason }[]>`
    select payment_id as "paymentId", end_reason as reason from pass
    where provider_id = ${providerId} and end_reason is not null and ends_at > ${now}
      ${after === null ? sql`` : sql`and payment_id > ${after.paymentId}`}
    order by payment_id
    limit ${limit}`
}

/** One request under a counted pass. */
export type PassUse = { paymentId: string; providerId: string; useId: string; at: Date }

/** The result of a use: see packages/ledger/functions/use_pass.sql. `left`: number of requests left; null for an unknown pass. */
export type PassUsed = {
  verdict: 'counted' | 'repeated' | 'returned' | 'used_up' | 'ended' | 'expired' | 'unknown'
  left: number | null
}

/** Counts a request on a pass, once for each `useId`. */
export async function usePass(
  sql: Queryable,
  { paymentId, providerId, useId, at }: PassUse,
): Promise<PassUsed> {
  const [used] = await sql<[PassUsed]>`
    select verdict, left_over as left from use_pass(${paymentId}, ${providerId}, ${useId}, ${at})`
  return used
}

/** Returns a use to the pass, because the provider failed to serve the request. */
export async function returnPassUse(
  sql: Queryable,
  { paymentId, providerId, useId, at }: PassUse,
): Promise<PassUsed> {
  const [used] = await sql<[PassUsed]>`
    select verdict, left_over as left from return_pass_use(${paymentId}, ${providerId}, ${useId}, ${at})`
  return used
}
