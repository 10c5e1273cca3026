import { matching } from '@tollkeeper/runtime/parsers'
import type { Command } from 'commander'
import type { StatementFlags } from './payments/statement.ts'
import { withKey } from './provider/gateway.ts'
import { parsedOption } from './terminal/options.ts'

const month = matching('a month like 2026-11', /^(19[7-9]\d|2[01]\d\d)-(0[1-9]|1[0-2])$/)

/** Adds `statement`, which prints the sums of a provider's sales in a month. */
export function addStatementCommand(program: Command): void {
  withKey(program.command('statement'))
    .summary("show a month's sums: gross, fee, net, settled and refunded")
    .description(
      'Prints the sums of the payments that were accepted in a month, by network. With --csv, prints each payment and refund; its columns add up to the sums.',
    )
    .addOption(parsedOption('--month <month>', 'UTC month (default: the current month)', month))
    .option('--csv', 'print a line for each payment and refund')
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper statement --month 2026-11
  $ tollkeeper statement --month 2026-11 --csv > november.csv`,
    )
    .action(async (flags: StatementFlags) => (await import('./payments/statement.ts')).printStatement(flags))
}
