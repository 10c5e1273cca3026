import { address, integer, type Parser, url } from '@tollkeeper/runtime/parsers'
import { type Command, Option } from 'commander'
import type { Address } from 'viem'
import { parsedOption, repeatedOption } from '../terminal/options.ts'
import type { AuditFlags } from './run.ts'

export function addAuditCommand(program: Command): void {
  program
    .command('audit')
    .summary('compare receipts with the chain')
    .description(
      `Checks each receipt's signature, looks for its two transfers (to the provider and to the platform) in USDC's own logs on chain, and compares
tab lines with TabSettlement's events. Without --jwks, it reads the gateway's public keys; it sends no other request to the gateway. Exits with 0
if every receipt reconciles (and, with --wallet, every transfer has a receipt), with 1 if one doesn't, with 2 if the audit could not run.`,
    )
    .requiredOption(
      '--receipts <file>',
      'file with one receipt or tab line per line: a JWS, or JSON with a "receipt" or "tabLine"; - is standard input',
    )
    .addOption(
      repeatedOption(
        '--rpc <url>',
        'a node of the chain, preferably your own; repeat the flag for each further network',
        url,
      ).makeOptionMandatory(),
    )
    .option('--jwks <url|file>', "the gateway's keys (default: those of the gateway that the receipts name)")
    .option('--issuer <url>', 'accept only receipts that this gateway issued (claim iss)')
    .option('--provider <id>', 'accept only tab lines of this provider')
    .addOption(
      parsedOption(
        '--month <month>',
        'audit only receipts of payments that were accepted in this month (UTC), as in its statement',
        month,
      ),
    )
    .addOption(
      repeatedOption(
        '--wallet <address>',
        'also find transfers to and from this wallet that have no receipt',
        typedAddress,
      ),
    )
    .addOption(
      parsedOption('--from <date>', 'with --wallet: first day (UTC), or a time in ISO 8601', timeOrDay(0n)),
    )
    .addOption(parsedOption('--to <date>', 'with --wallet: last day, inclusive', timeOrDay(86_399n)))
    .addOption(
      parsedOption('--from-block <number>', 'start of the search: earlier blocks are skipped', block),
    )
    .addOption(
      parsedOption(
        '--confirmations <number>',
        "number of blocks that must follow a settlement's block (default: the network's number)",
        count,
      ),
    )
    .addOption(
      new Option('--deployments <file>', 'file with the contract addresses of a local chain').env(
        'DEPLOYMENTS_FILE',
      ),
    )
    .option('--allow-pending', 'exit with 0 even if payments are still to be settled')
    .option('--csv <file>', 'also write one line per receipt for a spreadsheet')
    .option('--json', 'print the whole report as JSON')
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper audit --receipts receipts.jsonl --rpc http://127.0.0.1:8545 --jwks http://127.0.0.1:4020/.well-known/jwks.json
  $ tollkeeper audit --receipts - --rpc "$RPC_URL_BASE" --wallet 0x1000000000000000000000000000000000000001 --from 2026-11-01 --to 2026-11-30
  $ tollkeeper receipts --provider prov_… | tollkeeper audit --receipts - --month 2026-11 --rpc "$RPC_URL_BASE"`,
    )
    .action(async (flags: AuditFlags) => {
      // Load viem and jose only when they are needed, so that `--help` is quick.
      const { runAudit } = await import('./run.ts')
      process.exitCode = await runAudit(flags)
    })
}

/** Keeps an address as the user typed it, because the report repeats it. */
const typedAddress: Parser<Address> = {
  ...address,
  parse: (text) => address.parse(text) && (text as Address),
}
const count = integer(0, 999_999_999_999)
const block: Parser<bigint> = {
  ...count,
  parse: (text) => (count.parse(text) === undefined ? undefined : BigInt(text)),
}

/** Returns the first second of a month (UTC), and the first second of the next month. */
const month: Parser<{ from: bigint; to: bigint }> = {
  expected: 'a month like 2026-11',
  parse(text) {
    const [, year, number] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(text) ?? []
    if (year === undefined || number === undefined) return undefined
    const at = (index: number) => BigInt(Date.UTC(Number(year), index) / 1000)
    return { from: at(Number(number) - 1), to: at(Number(number)) }
  },
}

/** Parses a time into Unix seconds. @param ofDay the seconds to add if the text is only a day. */
function timeOrDay(ofDay: bigint): Parser<bigint> {
  return {
    expected: 'a day (2026-11-21) or a time with its zone (2026-11-21T12:00:00Z)',
    parse(text) {
      const isDay = /^\d{4}-\d\d-\d\d$/.test(text)
      const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(text)
      const milliseconds = Date.parse(text)
      if (!(isDay || isTime) || Number.isNaN(milliseconds)) return undefined
      // Needed because Date.parse reads 2026-02-30 as March 2nd.
      if (isDay && !new Date(milliseconds).toISOString().startsWith(text)) return undefined
      return BigInt(Math.floor(milliseconds / 1000)) + (isDay ? ofDay : 0n)
    },
  }
}
