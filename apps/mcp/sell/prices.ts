import { readFile } from 'node:fs/promises'
import { formatShortUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { toolResource } from '@tollkeeper/sdk/protocol/toolResource'
import { CliError } from '../../cli/terminal/cliError.ts'

/** Returns a tool's price: decimal USDC, or `free`; undefined if the tool isn't sold. */
export type PriceOf = (tool: string) => string | undefined

/** The name that applies to all tools that the file doesn't name. */
const others = '*'

/** @throws {CliError} `unreadable_file`; `invalid_prices`, with the reason. */
export async function readPrices(path: string, server: string | undefined): Promise<PriceOf> {
  let json: unknown
  try {
    json = JSON.parse(await readFile(path, 'utf8'))
  } catch (error) {
    throw new CliError('unreadable_file', `--prices: ${path}: ${(error as Error).message}`, error)
  }
  return parsePrices(json, server)
}

/** @param json the contents of a price file, `{"forecast": "0.01", "*": "free"}`. */
export function parsePrices(json: unknown, server?: string): PriceOf {
  if (typeof json !== 'object' || json === null || Array.isArray(json) || Object.keys(json).length === 0)
    throw invalid('expected an object that names tools, like {"forecast": "0.01"}')
  const prices = new Map<string, string>()
  for (const [tool, price] of Object.entries(json)) {
    prices.set(tool, parsePrice(tool, price))
    try {
      toolResource(tool, server)
    } catch (error) {
      throw invalid((error as Error).message)
    }
  }
  return (tool) => prices.get(tool) ?? prices.get(others)
}

/** Parses a price. Rejects numbers, because they would be floats, in which 0.1 + 0.2 isn't 0.3. */
function parsePrice(tool: string, price: unknown): string {
  if (price === 'free') return price
  try {
    const amount = typeof price === 'string' ? parseUsdc(price) : 0n
    if (amount > 0n) return formatShortUsdc(amount)
  } catch {
    // The text isn't a USDC amount: report it below.
  }
  throw invalid(
    `${tool}: expected decimal USDC in quotes, like "0.01", or "free"; got ${JSON.stringify(price)}`,
  )
}

function invalid(reason: string): CliError {
  return new CliError('invalid_prices', `--prices: ${reason}`)
}
