import { setTimeout as delay } from 'node:timers/promises'
import { openJsonLinesFile } from '@tollkeeper/sdk/files/jsonLinesFile'
import { ask, type GatewayFlags, isRetryable, ownPath } from '../provider/gateway.ts'
import { CliError } from '../terminal/cliError.ts'
import { createProgressBar } from '../terminal/progressBar.ts'

export type ReceiptsFlags = GatewayFlags & {
  file: string
  from?: string
  to?: string
  status?: string
  network?: string
}

/** The destination of the lines, and the receipt after which to continue. */
type Output = {
  cursor: string | undefined
  write: (lines: string[]) => Promise<void>
  close: () => Promise<void>
}

/** Number of consecutive failures after which the download ends. Receipts that were already written stay. */
const mostFailures = 5
const firstDelayMs = 500

/** Writes all requested receipts. If the connection breaks, continues automatically. */
export async function downloadReceipts(flags: ReceiptsFlags): Promise<void> {
  const output = await openOutput(flags.file)
  const bar = createProgressBar(process.stderr)
  let { cursor } = output
  let count = 0
  let tabLines = 0
  try {
    for (let failures = 0; ; ) {
      try {
        for await (const lines of readLines(flags, cursor)) {
          await output.write(lines)
          cursor = cursorOf(lines.at(-1))
          count += lines.length
          tabLines += lines.filter(isTabLine).length
          failures = 0
          bar.update('Receipts', count)
        }
        break
      } catch (error) {
        if (!isRetryable(error)) throw error
        if (++failures === mostFailures) throw error
        await delay(firstDelayMs * 2 ** failures)
      }
    }
  } finally {
    bar.clear()
    await output.close()
  }
  const ofTabs = tabLines === 0 ? '' : ` and ${tabLines} tab lines`
  process.stderr.write(
    `${count - tabLines} receipts${ofTabs}${flags.file === '-' ? '' : ` added to ${flags.file}`}\n`,
  )
}

async function openOutput(path: string): Promise<Output> {
  if (path === '-') {
    const write = (lines: string[]) =>
      // Wait until the program at the other end of a pipe has read this chunk.
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
    throw new CliError('unreadable_file', `--file: ${path} was not written by this command`)
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

function isTabLine(line: string): boolean {
  return /^\{"paymentId":"[^"]*","tabLine":/.test(line)
}

/** Yields whole lines while they arrive. An incomplete line at the end is requested again. */
async function* readLines(
  { from, to, status, network, ...flags }: ReceiptsFlags,
  cursor: string | undefined,
): AsyncGenerator<string[]> {
  const query = Object.entries({ from, to, status, network, cursor }).filter(([, value]) => value)
  const response = await ask(flags, {
    method: 'GET',
    path: ownPath(flags, 'receipts'),
    query: { ...Object.fromEntries(query), tabLines: 'true' },
  })
  if (!response.body) return
  let rest = ''
  try {
    for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
      const lines = `${rest}${text}`.split('\n')
      rest = lines.pop() ?? ''
      if (lines.length > 0) yield lines
    }
  } catch (error) {
    throw new CliError(
      'gateway_unreachable',
      `The connection to ${flags.gateway} broke. Run the command again`,
      error,
    )
  }
}
