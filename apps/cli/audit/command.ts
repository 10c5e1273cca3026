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
      `Checks each receipt's signature and looks for both of its transfers in USDC's own logs on chain. Neither the
gateway nor its database is asked. Exits with 0 only if every receipt reconciles (and, with --wallet, every transfer
has a receipt), with 1 if one doesn't, with 2 if the audit could not be made.`,
    )
    .requiredOption(
      '--receipts <file>',
      'receipts, one a line: a JWS, or JSON with a "receipt"; - is standard input',
    )
    .addOption(
      repeatedOption(
        '--rpc <url>',
        'a node of the chain, your own at best; again for each further network',
        url,
      ).makeOptionMandatory(),
    )
    .option('--jwks <url|file>', "the gateway's keys (default: those of the gateway that the receipts name)")
    .option('--issuer <url>', 'accept only receipts of this gateway (their claim iss)')
    .addOption(
      repeatedOption(
        '--wallet <address>',
        'also find transfers to and from this wallet that have no receipt',
        typedAddress,
      ),
    )
    .addOption(
      parsedOption('--from <date>', 'first day for --wallet, UTC, or a time in ISO 8601', timeOrDay(0n)),
    )
    .addOption(parsedOption('--to <date>', 'last day for --wallet, inclusive', timeOrDay(86_399n)))
    .addOption(parsedOption('--from-block <number>', 'look at no block before this one', block))
    .addOption(
      parsedOption(
        '--confirmations <number>',
        "blocks on top of a settlement (default: the network's)",
        count,
      ),
    )
    .addOption(new Option('--deployments <file>', 'addresses on a local chain').env('DEPLOYMENTS_FILE'))
    .option('--allow-pending', 'exit with 0 even if payments are still to be settled')
    .option('--csv <file>', 'write a line a receipt for a spreadsheet')
    .option('--json', 'print the whole report as JSON')
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper audit --receipts receipts.jsonl --rpc http://127.0.0.1:8545 --jwks http://127.0.0.1:4020/.well-known/jwks.json
  $ tollkeeper audit --receipts - --rpc "$RPC_URL_BASE" --wallet 0x1000000000000000000000000000000000000001 --from 2026-11-01 --to 2026-11-30`,
    )
    .action(async (flags: AuditFlags) => {
      // viem and jose are loaded only when needed, so that `--help` is quick.
      const { runAudit } = await import('./run.ts')
      process.exitCode = await runAudit(flags)
    })
}

/** As it was typed, which the report repeats. */
const typedAddress: Parser<Address> = {
  ...address,
  parse: (text) => address.parse(text) && (text as Address),
}
const count = integer(0, 999_999_999_999)
const block: Parser<bigint> = {
  ...count,
  parse: (text) => (count.parse(text) === undefined ? undefined : BigInt(text)),
}

/** Unix seconds. @param ofDay those added when only a day is given. */
function timeOrDay(ofDay: bigint): Parser<bigint> {
  return {
    expected: 'a day (2026-11-21) or a time with its zone (2026-11-21T12:00:00Z)',
    parse(text) {
      const isDay = /^\d{4}-\d\d-\d\d$/.test(text)
      const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(text)
      const milliseconds = Date.parse(text)
      if (!(isDay || isTime) || Number.isNaN(milliseconds)) return undefined
      // Date.parse takes 2026-02-30 for March 2nd.
      if (isDay && !new Date(milliseconds).toISOString().startsWith(text)) return undefined
      return BigInt(Math.floor(milliseconds / 1000)) + (isDay ? ofDay : 0n)
    },
  }
}
