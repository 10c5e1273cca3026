import { address, integer, matching } from '@tollkeeper/runtime/parsers'
import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import { type Command, Option } from 'commander'
import { withKey } from '../provider/gateway.ts'
import { parsedOption, parseValue, timeText } from '../terminal/options.ts'
import type { ListFlags } from './list.ts'
import type { ShowFlags } from './show.ts'
import type { WatchFlags } from './watch.ts'

const txHash = matching('a transaction hash: 0x and 64 hex digits', /^0x[0-9a-fA-F]{64}$/)
const amount = matching('decimal USDC like 0.01', /^\d{1,12}(\.\d{1,6})?$/)
const paymentId = matching('a payment id, pay_…', /^pay_\w+$/)

/** Adds `payments list | show | watch`: a provider's payments. */
export function addPaymentsCommand(program: Command): void {
  const payments = program
    .command('payments')
    .summary('list, show and watch your payments')
    .description(
      "Shows a provider's payments: a list with filters, one payment with what happens next, or new ones as they arrive.",
    )
    .addHelpText('after', '\nExample:\n  $ tollkeeper payments list --status failed')

  withFilters(withKey(payments.command('list', { isDefault: true })))
    .summary('list payments, newest first')
    .description(
      'Lists payments, newest first; `list` may be omitted. Requests on a tab are one row per endpoint and hour.',
    )
    .addOption(parsedOption('--since <time>', 'accepted at or after this time, UTC', timeText))
    .addOption(parsedOption('--until <time>', 'accepted before this time', timeText))
    .addOption(parsedOption('--tx <hash>', 'settled in this transaction', txHash))
    .addOption(parsedOption('--min <usdc>', 'minimum price in USDC, fee included', amount))
    .addOption(parsedOption('--max <usdc>', 'maximum price in USDC, fee included', amount))
    .addOption(parsedOption('--limit <number>', 'payments per page, 1 to 100', integer(1, 100)).default(20))
    .option('--cursor <cursor>', 'continue where the previous page ended')
    .option('--csv', 'print all pages as CSV, in the columns of `statement --csv`')
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper payments list --status failed --since 2026-11-01
  $ tollkeeper payments list --network base --csv > payments.csv`,
    )
    .action(async (flags: ListFlags) => (await import('./list.ts')).listPayments(flags))

  withKey(payments.command('show'))
    .summary('show one payment and what happens next')
    .description('Shows a payment: its status in words, what happens next, its transaction and its receipt.')
    .argument('<payment>', 'payment id, pay_…', (text: string) => parseValue(text, paymentId))
    .addHelpText('after', '\nExample:\n  $ tollkeeper payments show pay_…')
    .action(async (id: string, flags: ShowFlags) => (await import('./show.ts')).showPayment(id, flags))

  withFilters(withKey(payments.command('watch')))
    .summary('print new payments and changes of status')
    .description(
      `Prints each new payment and each change of a status until Ctrl-C, with --json as JSON lines. Continues automatically after the gateway was unreachable.`,
    )
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper payments watch
  $ tollkeeper payments watch --status failed --json`,
    )
    .action(async (flags: WatchFlags) => (await import('./watch.ts')).runWatch(flags))
}

function withFilters(command: Command): Command {
  return command
    .addOption(new Option('--status <status>', 'only payments of this status').choices(paymentStatuses))
    .option('--endpoint <id>', 'only payments of this endpoint, ep_…')
    .addOption(new Option('--network <name>', 'only payments on this network').choices(networkNames))
    .addOption(parsedOption('--payer <address>', 'only payments of this buyer', address))
}
