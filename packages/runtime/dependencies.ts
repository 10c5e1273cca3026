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

/** Dependencies that can make an answer fail without the caller's or our fault. */
export type Dependency = 'database' | 'rpc'

/** A chain's nodes didn't answer, or too few of them for the question. */
export class ChainUnavailable extends BaseError {
  override readonly name = 'ChainUnavailable'

  constructor(message: string, options?: { cause?: unknown }) {
    super('dependency_unavailable', message, { ...options, details: { dependency: 'rpc' } })
  }
}

// Codes of postgres.js and Node for a server that can't be reached, and SQLSTATE classes 08 (connection), 53 (resources)
// and 57P (shut down or starting); 57014 (a statement that took too long), 55P03 (a lock), 25P03 and 25P04 (a transaction).
const databaseCodes =
  /^(?:CONNECT_TIMEOUT|CONNECTION_(?:CLOSED|ENDED|DESTROYED|CONNECT_TIMEOUT)|ECONN\w+|ENOTFOUND|EAI_AGAIN|EPIPE|ETIMEDOUT|ENOENT|08\w{3}|53\w{3}|57P\w{2}|57014|55P03|25P0[34])$/

/** The dependency that is down, by an error of its client; undefined for any other error. */
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

/** Whether the chain's node didn't answer the question at all, rather than with an error of it: a rate limit is no answer either. */
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

// SQLSTATE classes that values of one row can cause: 21, 22 (data), 23 (constraints), and 40 (deadlock, rollback).
const rowFaults = /^(?:21|22|23|40)/

/** Whether the database may have refused a group because of one row. */
export function isRowFault(error: unknown): boolean {
  return error instanceof postgres.PostgresError && rowFaults.test(error.code)
}

/** Whether text held a NUL, which no text in Postgres can hold: SQLSTATE 22021, character_not_in_repertoire. */
export function isUnstorableText(error: unknown): boolean {
  return error instanceof postgres.PostgresError && error.code === '22021'
}
