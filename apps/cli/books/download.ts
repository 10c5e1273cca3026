import { createWriteStream } from 'node:fs'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { ReadableStream as WebStream } from 'node:stream/web'
import { ask, type GatewayFlags, ownPath, request } from '../provider/gateway.ts'
import { CliError } from '../terminal/cliError.ts'
import { formatTable, paint, printable } from '../terminal/output.ts'

export type BookkeepingFlags = GatewayFlags & {
  month: string
  format: 'csv' | 'json'
  currency?: string
  file: string
}

export type FeeDocumentFlags = GatewayFlags & { month: string; network?: string; file?: string }

/** Writes a month's bookkeeping to its destination while receiving it. */
export async function downloadBookkeeping(flags: BookkeepingFlags): Promise<void> {
  const { month, currency, json, file } = flags
  const format = json ? 'json' : flags.format
  const response = await download(
    flags,
    'bookkeeping',
    { month, format, ...(currency && { currency }) },
    file,
  )
  const isFinal = response.headers.get('bookkeeping-state') === 'final'
  const where = file === '-' ? '' : ` in ${file}`
  process.stderr.write(
    isFinal
      ? `Bookkeeping of ${month}${where}: final\n`
      : `Bookkeeping of ${month}${where}: preliminary. Export it again once the month has ended and all of it is final.\n`,
  )
}

type FeeDocument = { number: string; network: string; payments: number } & Record<
  'gross_usdc' | 'fee_usdc' | 'net_usdc' | 'rate',
  string
>

/** Prints a month's fees by network, or writes them as a printable page. */
export async function showFeeDocument(flags: FeeDocumentFlags): Promise<void> {
  const { month, network, file, json } = flags
  const query = { month, ...(network && { network }) }
  if (file !== undefined) {
    await download(flags, 'fee-document', { ...query, format: 'html' }, file)
    process.stderr.write(`${file}: open it in a browser, and print it from there\n`)
    return
  }
  const answer = await request(flags, { method: 'GET', path: ownPath(flags, 'fee-document'), query })
  if (json) {
    process.stdout.write(`${JSON.stringify(answer)}\n`)
    return
  }
  const { state, documents } = answer as { state: string; documents: FeeDocument[] }
  const title = state === 'final' ? `Fees of ${month}` : `Fees of ${month} so far (preliminary)`
  const rows = documents.map(({ number, network, payments, gross_usdc, fee_usdc, net_usdc, rate }) =>
    [number, network, String(payments), gross_usdc, rate, fee_usdc, net_usdc].map(printable),
  )
  const header = ['document', 'network', 'payments', 'gross USDC', 'rate', 'fee USDC', 'net USDC']
  const table = rows.length === 0 ? 'No fees were booked.' : formatTable(header, rows)
  process.stdout.write(
    `${paint('bold', title)}\n${table}\nFor a page that you can print: tollkeeper fee-document --month ${month} --file fees-${month}.html\n`,
  )
}

/** Writes a response to a file or to standard output, without keeping all of it in memory. */
async function download(
  flags: GatewayFlags,
  path: string,
  query: Record<string, string>,
  file: string,
): Promise<Response> {
  const response = await ask(flags, { method: 'GET', path: ownPath(flags, path), query })
  if (!response.body) return response
  const body = Readable.fromWeb(response.body as WebStream<Uint8Array>)
  try {
    if (file === '-') await pipeline(body, process.stdout, { end: false })
    else await pipeline(body, createWriteStream(file))
  } catch (error) {
    const isOfFile = (error as NodeJS.ErrnoException).syscall === 'open'
    if (isOfFile) throw new CliError('unreadable_file', `--file: ${file} can't be written`, error)
    throw new CliError(
      'gateway_unreachable',
      `The connection to ${flags.gateway} broke, so ${file === '-' ? 'the output' : file} is incomplete. Run the command again`,
      error,
    )
  }
  return response
}
