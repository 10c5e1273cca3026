import { ConfigError } from '#chain/networkSettings'
import { BaseError } from '#protocol/errors'

/** Exit statuses of every command. */
export const exitStatus = {
  /** It did what was asked, and all is well. */
  ok: 0,
  /** It did what was asked, and what it found is not well: an audit that doesn't reconcile, a sick system. */
  unwell: 1,
  /** It could not do what was asked. */
  failed: 2,
} as const

/** Something that the person at the terminal can put right; shown without a stack trace. */
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
  if (error instanceof CliError || error instanceof BaseError) return `${error.message} (${error.code})`
  if (error instanceof ConfigError) return `${error.message} (invalid_config)`
  // viem's messages carry whole request bodies and URLs, which hold credentials.
  if (error instanceof Error && 'shortMessage' in error) return `${error.shortMessage} (rpc_error)`
  return `${error instanceof Error ? error.message : String(error)} (internal_error)`
}
