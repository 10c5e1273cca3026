import { ConfigError } from '@tollkeeper/runtime/env'
import { ClientError } from '@tollkeeper/sdk/client/errors'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'

/** Exit statuses of every command. */
export const exitStatus = {
  /** Success without findings. */
  ok: 0,
  /** Success with findings: an audit that doesn't reconcile, a failed check. */
  unwell: 1,
  /** The command itself failed: wrong flags, no connection, a rejection. */
  failed: 2,
  /** `price`: the URL answered without asking for a payment. */
  free: 3,
  /** The user pressed Ctrl-C at a question. Shells report SIGINT with this status. */
  interrupted: 130,
} as const

/** Lines of `--help` that explain the exit status of a command. */
export const exitStatusHelp = `Exit status:
  0    done
  1    done, but something is wrong: an audit that doesn't reconcile, a failed check, a price above your limit;
       or start, demo, api, keeper or indexer ended with an error
  2    the command failed: wrong flags, no connection, or a refusal; the last line has its stable code
  3    price: the URL costs nothing
  130  ended by Ctrl-C at a question`

/** An error that the user can correct, so it is shown without a stack trace. */
export class CliError extends Error {
  override readonly name = 'CliError'
  readonly code: string

  constructor(code: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
  }
}

/** Describes an error in one line for the terminal: what went wrong, and its stable code. */
export function describeError(error: unknown): string {
  if (error instanceof CliError || error instanceof BaseError || error instanceof ClientError)
    return `${error.message} (${error.code})`
  if (error instanceof ConfigError) return `${error.message} (invalid_config)`
  // Don't show viem's whole messages: they contain request bodies and URLs, which may contain credentials.
  if (error instanceof Error && 'shortMessage' in error) return `${error.shortMessage} (rpc_error)`
  return `${error instanceof Error ? error.message : String(error)} (internal_error)`
}
