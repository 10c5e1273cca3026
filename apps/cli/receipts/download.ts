import { setTimeout as delay } from 'node:timers/promises'
import { openJsonLinesFile } from '@tollkeeper/sdk/files/jsonLinesFile'
import { BaseError, isErrorCode } from '@tollkeeper/sdk/protocol/errors'
import { ask, type GatewayFlags, ownPath, refuse } from '../provider/gateway.ts'
import { CliError } from '../terminal/cliError.ts'
import { createProgressBar } from '../terminal/progressBar.ts'

export type ReceiptsFlags = GatewayFlags & {
  file: string
  from?: string
  to?: string
  status?: string
  network?: string
}

/** Where lines go, and from which receipt to go on. */
type Output = {
  cursor: string | undefined
  write: (lines: string[]) => Promise<void>
  close: () => Promise<void>
}

/** How many vain tries in a row make us give up; what has come stays. */
const mostFailures = 5
const firstDelayMs = 500

/** Writes all requested receipts, and goes on by itself if the connection breaks. */
export async function downloadReceipts(flags: ReceiptsFlags): Promise<void> {
  const output = await openOutput(flags.file)
  const bar = createProgressBar(process.stderr)
  let { cursor } = output
  let count = 0
  try {
    for (let failures = 0; ; ) {
      try {
        for await (const lines of readLines(flags, cursor)) {
          await output.write(lines)
          cursor = cursorOf(lines.at(-1))
          count += lines.length
          failures = 0
          bar.update('Receipts', count)
        }
        break
      } catch (error) {
        if (!(error instanceof CliError && isRetryable(error.code))) throw error
        if (++failures === mostFailures) throw error
        await delay(firstDelayMs * 2 ** failures)
      }
    }
  } finally {
    bar.clear()
    await output.close()
  }
  process.stderr.write(`${count} receipts${flags.file === '-' ? '' : ` added to ${flags.file}`}\n`)
}

function isRetryable(code: string): boolean {
  return code === 'gateway_unreachable' || (isErrorCode(code) && new BaseError(code).retryable)
}

async function openOutput(path: string): Promise<Output> {
  if (path === '-') {
    const write = (lines: string[]) =>
      // Waits for the reader of a pipe.
      new Promise<void>((resolve, reject) => {
        process.stdout.write(`${lines.join('\n')}\n`, (error) => (error ? reject(error) : resolve()))
      })
    return { cursor: undefined, write, close: async () => {} }
  }
  const file = await openJsonLinesFile(path, '{"paymentId":"').catch((error: Error) => {
    throw new CliError('unreadable_file', `--file: ${path}: ${error.message}`, error)
  })
  const { lastLine } = file
  const cursor = lastLine === undefined ? undefined : cursorOf(lastLine)
  if (lastLine !== undefined && cursor === undefined) {
    await file.close()
    throw new CliError('unreadable_file', `--file: ${path} is no file of this command's`)
  }
  return { cursor, write: (lines) => file.append(...lines), close: () => file.close() }
}

function cursorOf(line: string | undefined): string | undefined {
  try {
    const { cursor } = JSON.parse(line ?? '') as { cursor?: unknown }
    return typeof cursor === 'string' ? cursor : undefined
  } catch {
    return undefined
  }
}

/** Whole lines, as they come. A torn line is fetched again. */
async function* readLines(
  { from, to, status, network, ...flags }: ReceiptsFlags,
  cursor: string | undefined,
): AsyncGenerator<string[]> {
  const query = Object.entries({ from, to, status, network, cursor }).filter(([, value]) => value)
  const response = await ask(flags, {
    method: 'GET',
    path: ownPath(flags, 'receipts'),
    query: Object.fromEntries(query) as Record<string, string>,
  })
  if (!response.ok || !response.body) throw await refuse(flags, response)
  let rest = ''
  try {
    for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
      const lines = `${rest}${text}`.split('\n')
      rest = lines.pop() ?? ''
      if (lines.length > 0) yield lines
    }
  } catch (error) {
    throw new CliError('gateway_unreachable', `The connection to ${flags.gateway} broke`, error)
  }
}
