import { ConfigError } from '@tollkeeper/runtime/env'
import { ClientError } from '@tollkeeper/sdk/client/errors'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'

/** Exit statuses of every command. */
export const exitStatus = {
  /** Done, and nothing is wrong. */
  ok: 0,
  /** Done, and something is wrong: an audit that doesn't reconcile, a failed check. */
  unwell: 1,
  /** The command itself failed. */
  failed: 2,
} as const

/** An error that the user can correct; shown without a stack trace. */
export class CliError extends Error {
  override readonly name = 'CliError'
  readonly code: string

  constructor(code: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
  }
}

/** One line for the terminal: what went wrong, and its stable code. */
export function describeError(error: unknown): string {
  if (error instanceof CliError || error instanceof BaseError || error instanceof ClientError)
    return `${error.message} (${error.code})`
  if (error instanceof ConfigError) return `${error.message} (invalid_config)`
  // viem's messages carry whole request bodies and URLs, which hold credentials.
  if (error instanceof Error && 'shortMessage' in error) return `${error.shortMessage} (rpc_error)`
  return `${error instanceof Error ? error.message : String(error)} (internal_error)`
}
