import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import { type Command, Option } from 'commander'
import { withKey } from '../provider/gateway.ts'
import type { ReceiptsFlags } from './download.ts'

/** Adds `receipts`, which writes all receipts of a provider to a file or a pipe. */
export function addReceiptsCommand(program: Command): void {
  withKey(program.command('receipts'))
    .summary("download a provider's receipts")
    .description(
      `Downloads a provider's receipts as JSON Lines, oldest first, each with its current status. The receipts of a tab are followed by the
signed tab line. If the file exists, the command appends the receipts that the file lacks. Use the same filters each time.`,
    )
    .option('--file <file>', 'file to write; - is standard output', '-')
    .option('--from <time>', 'accepted at or after this time, UTC: a day, or a time in ISO 8601')
    .option('--to <time>', 'accepted before this time')
    .addOption(new Option('--status <status>', 'only receipts of this status').choices(paymentStatuses))
    .addOption(new Option('--network <name>', 'only receipts of this network').choices(networkNames))
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper receipts --provider prov_… --file receipts.jsonl
  $ tollkeeper receipts --provider prov_… --from 2026-11-01 | tollkeeper audit --receipts - --rpc http://127.0.0.1:8545`,
    )
    .action(async (flags: ReceiptsFlags) => {
      const { downloadReceipts } = await import('./download.ts')
      await downloadReceipts(flags)
    })
}
