import { ask, type GatewayFlags } from '../provider/gateway.ts'
import { CliError } from '../terminal/cliError.ts'

/** Prints the body of a response while receiving it, byte for byte. */
export async function printStream(flags: GatewayFlags, asked: Parameters<typeof ask>[1]): Promise<void> {
  const response = await ask(flags, asked)
  if (!response.body) return
  try {
    for await (const chunk of response.body) {
      // Wait until the program at the other end of a pipe has read this chunk.
      await new Promise<void>((resolve, reject) => {
        process.stdout.write(chunk, (error) => (error ? reject(error) : resolve()))
      })
    }
  } catch (error) {
    throw new CliError(
      'gateway_unreachable',
      `The connection to ${flags.gateway} broke, so the output is incomplete. Run the command again`,
      error,
    )
  }
}
