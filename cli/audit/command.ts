import { type Command, InvalidArgumentError, Option } from 'commander'
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
    .requiredOption(
      '--rpc <url>',
      'a node of the chain, your own at best; again for each further network',
      collect,
    )
    .option('--jwks <url|file>', "the gateway's keys (default: those of the gateway that the receipts name)")
    .option('--issuer <url>', 'accept only receipts of this gateway (their claim iss)')
    .option(
      '--wallet <address>',
      'also find transfers to and from this wallet that have no receipt',
      collectAddress,
    )
    .option('--from <date>', 'first day for --wallet, UTC, or a time in ISO 8601', parseFrom)
    .option('--to <date>', 'last day for --wallet, inclusive', parseTo)
    .option('--from-block <number>', 'look at no block before this one', parseBlock)
    .option('--confirmations <number>', "blocks on top of a settlement (default: the network's)", parseCount)
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

function collect(value: string, previous: string[] = []): string[] {
  if (!URL.canParse(value) || !/^https?:$/.test(new URL(value).protocol)) {
    throw new InvalidArgumentError('Expected an http(s) URL.')
  }
  return [...previous, value]
}

function collectAddress(value: string, previous: string[] = []): string[] {
  if (!/^0x[0-9a-fA-F]{40}$/.test(value)) throw new InvalidArgumentError('Expected 0x and 40 hex digits.')
  return [...previous, value]
}

function parseFrom(value: string): bigint {
  return parseTime(value, 0n)
}

function parseTo(value: string): bigint {
  return parseTime(value, 86_399n)
}

/** @param ofDay seconds to add if only a date is given. */
function parseTime(value: string, ofDay: bigint): bigint {
  const isDay = /^\d{4}-\d\d-\d\d$/.test(value)
  const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(value)
  const milliseconds = Date.parse(value)
  // Date.parse takes 2026-02-30 for March 2nd.
  const isReal =
    isDay && !Number.isNaN(milliseconds) && new Date(milliseconds).toISOString().startsWith(value)
  if (!(isReal || (isTime && !Number.isNaN(milliseconds)))) {
    throw new InvalidArgumentError(
      'Expected a day (2026-11-21) or a time with its zone (2026-11-21T12:00:00Z).',
    )
  }
  return BigInt(Math.floor(milliseconds / 1000)) + (isDay ? ofDay : 0n)
}

function parseBlock(text: string): bigint {
  return BigInt(parseCount(text))
}

function parseCount(text: string): number {
  if (!/^\d{1,12}$/.test(text)) throw new InvalidArgumentError('Expected a whole number.')
  return Number(text)
}
