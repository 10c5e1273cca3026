import { matching } from '@tollkeeper/runtime/parsers'
import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { type Command, Option } from 'commander'
import { withKey } from '../provider/gateway.ts'
import { parsedOption } from '../terminal/options.ts'
import type { BookkeepingFlags, FeeDocumentFlags } from './download.ts'

const month = matching('a month like 2026-11', /^\d{4}-(0[1-9]|1[0-2])$/)

/** Adds `bookkeeping` and `fee-document`: a provider's books of a month, for its accountant. */
export function addBookkeepingCommands(program: Command): void {
  withKey(program.command('bookkeeping'))
    .summary("export a month's bookkeeping")
    .description(
      `Writes a month's books line by line: sales, refunds as negative amounts, and totals. A payment belongs to the month in which it
settled on chain. Once a month is final, its export never changes.`,
    )
    .addOption(parsedOption('--month <month>', 'the month, UTC', month).makeOptionMandatory())
    .addOption(
      new Option('--format <format>', 'format of the export; --json selects json')
        .choices(['csv', 'json'])
        .default('csv'),
    )
    .option('--currency <code>', "currency of the fiat values, such as EUR (default: the operator's)")
    .option('--file <file>', 'file to write; - is standard output', '-')
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper bookkeeping --provider prov_… --month 2026-11 --file 2026-11.csv`,
    )
    .action(async (flags: BookkeepingFlags) => {
      const { downloadBookkeeping } = await import('./download.ts')
      await downloadBookkeeping(flags)
    })

  withKey(program.command('fee-document'))
    .summary("show a month's fee document")
    .description(
      `Shows the fees that the platform kept from payments that settled in a month, one document per network. With --file, writes the documents as a
printable page.`,
    )
    .addOption(parsedOption('--month <month>', 'the month, UTC', month).makeOptionMandatory())
    .addOption(new Option('--network <name>', 'only the document of this network').choices(networkNames))
    .option('--file <file>', 'write a printable page (HTML) to this file')
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper fee-document --provider prov_… --month 2026-11
  $ tollkeeper fee-document --provider prov_… --month 2026-11 --file fees-2026-11.html`,
    )
    .action(async (flags: FeeDocumentFlags) => {
      const { showFeeDocument } = await import('./download.ts')
      await showFeeDocument(flags)
    })
}
