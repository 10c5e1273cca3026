import { readNodeError } from '@tollkeeper/sdk/nodes/nodeErrors'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import postgres from 'postgres'
import {
  HttpRequestError,
  LimitExceededRpcError,
  SocketClosedError,
  TimeoutError,
  BaseError as ViemError,
} from 'viem'

/** Dependencies that can make a request fail although neither the caller nor our code is at fault. */
export type Dependency = 'database' | 'rpc'

/** Thrown if a chain's nodes didn't respond, or if fewer of them responded than the request needs. */
export class ChainUnavailable extends BaseError {
  override readonly name = 'ChainUnavailable'

  constructor(message: string, options?: { cause?: unknown }) {
    super('dependency_unavailable', message, { ...options, details: { dependency: 'rpc' } })
  }
}

// Error codes of postgres.js and Node for an unreachable server, and SQLSTATE classes 08 (connection), 53 (resources) and 57P
// (shut down or starting). Also 57014 (a statement that took too long), 55P03 (a lock that wasn't available), 25P03 and 25P04 (a
// transaction that took too long).
const databaseCodes =
  /^(?:CONNECT_TIMEOUT|CONNECTION_(?:CLOSED|ENDED|DESTROYED|CONNECT_TIMEOUT)|ECONN\w+|ENOTFOUND|EAI_AGAIN|EPIPE|ETIMEDOUT|ENOENT|08\w{3}|53\w{3}|57P\w{2}|57014|55P03|25P0[34])$/

/** Returns the dependency that is down, according to an error of its client; undefined for any other error. */
export function failedDependency(error: unknown): Dependency | undefined {
  if (isUnreachable(error)) return 'rpc'
  if (error instanceof AggregateError) return failedDependency(error.errors[0])
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  return databaseCodes.test(code) ? 'database' : undefined
}

// SQLSTATE codes with which the server ends work that took too long: a statement, a wait for a lock, a transaction.
const timeLimits = /^(?:57014|55P03|25P04)$/

/** Whether the database ended a statement, a wait for a lock, or a transaction because it took too long. */
export function isTimeLimit(error: unknown): boolean {
  return error instanceof postgres.PostgresError && timeLimits.test(error.code)
}

/** Whether the chain's node gave no response, as opposed to a response with an error. A rate limit counts as no response. */
export function isUnreachable(error: unknown): boolean {
  if (error instanceof ChainUnavailable) return true
  if (!(error instanceof ViemError)) return false
  return (
    error.walk(
      (cause) =>
        cause instanceof ChainUnavailable ||
        cause instanceof HttpRequestError ||
        cause instanceof TimeoutError ||
        cause instanceof SocketClosedError ||
        cause instanceof LimitExceededRpcError,
    ) !== null || readNodeError(error).kind === 'rate'
  )
}

// SQLSTATE classes of errors that a single row can cause: 21 and 22 (data), 23 (constraints), and 40 (deadlock, rollback).
const rowFaults = /^(?:21|22|23|40)/

/** Whether one row of a group may be the reason why the database rejected the group. */
export function isRowFault(error: unknown): boolean {
  return error instanceof postgres.PostgresError && rowFaults.test(error.code)
}

/** Whether text contained a NUL, which Postgres can't store in text: SQLSTATE 22021, character_not_in_repertoire. */
export function isUnstorableText(error: unknown): boolean {
  return error instanceof postgres.PostgresError && error.code === '22021'
}
