import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import { type Command, Option } from 'commander'
import { withKey } from '../provider/gateway.ts'
import type { ReceiptsFlags } from './download.ts'

/** `receipts`: writes all receipts of a provider to a file or a pipe. */
export function addReceiptsCommand(program: Command): void {
  withKey(program.command('receipts'))
    .summary("download a provider's receipts")
    .description(
      `Downloads all receipts of a provider as JSON Lines, the oldest first, as they stand now. A file that is there is
gone on with: where the connection broke, or with what came since. Give the same filters again, then.`,
    )
    .option('--file <file>', 'where to; - is standard output', '-')
    .option('--from <time>', 'accepted at or after, UTC: a day, or a time in ISO 8601')
    .option('--to <time>', 'accepted before')
    .addOption(new Option('--status <status>', 'only these').choices(paymentStatuses))
    .addOption(new Option('--network <name>', 'only of this network').choices(networkNames))
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
