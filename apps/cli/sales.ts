import { hostname, userInfo } from 'node:os'
import type { SalesChange } from '@tollkeeper/ledger/registry/salesStop'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { Command } from 'commander'
import { CliError } from './terminal/cliError.ts'
import { printable } from './terminal/output.ts'

type Flags = { json?: boolean }

/** Number of changes that `sales status` shows. */
const mostShown = 5

/** Adds `sales stop | start | status`: the operator's stop switch, in the gateway's database. */
export function addSalesCommand(program: Command): void {
  const sales = program
    .command('sales')
    .summary('stop all sales, or start them again')
    .description(
      `Stops all sales of the gateway, or starts them again. While sales are stopped, no new payment is accepted, and buyers get
503 sales_stopped without a charge. Accepted payments still settle, open tabs close as usual, and refunds, receipts and views continue.
All processes see a change within a second. Reads DATABASE_URL.`,
    )
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper --env .env sales stop --reason "Maintenance until 14:00 UTC"',
    )

  sales
    .command('stop')
    .summary('accept no new payments')
    .description('Accepts no new payments until `sales start`, also after restarts.')
    .option('--reason <text>', 'reason that buyers see, at most 200 characters', '')
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper --env .env sales stop --reason "Moving to another server"',
    )
    .action(({ reason, ...flags }: Flags & { reason: string }) => change(true, reason, flags))

  sales
    .command('start')
    .summary('accept payments again')
    .description('Accepts payments again after `sales stop`.')
    .option('--json', 'print JSON')
    .addHelpText('after', '\nExample:\n  $ tollkeeper --env .env sales start')
    .action((flags: Flags) => change(false, '', flags))

  sales
    .command('status', { isDefault: true })
    .summary('show whether payments are accepted')
    .description(
      `Shows whether payments are accepted, and the last ${mostShown} changes: when, by whom and why.`,
    )
    .option('--json', 'print JSON')
    .addHelpText('after', '\nExample:\n  $ tollkeeper --env .env sales status')
    .action((flags: Flags) => withSales(async (sql) => print(sql, flags)))
}

async function change(isStopped: boolean, reason: string, flags: Flags): Promise<void> {
  const { changeSales, maxReasonLength, readSalesStop } = await import(
    '@tollkeeper/ledger/registry/salesStop'
  )
  if (reason.length > maxReasonLength || /\p{Cc}/u.test(reason))
    throw new CliError(
      'invalid_flags',
      `--reason: expected one line of at most ${maxReasonLength} characters, got ${reason.length}`,
    )
  await withSales(async (sql) => {
    const stop = await readSalesStop(sql)
    const isSame = isStopped ? stop?.reason === reason : stop === null
    if (!isSame) await changeSales(sql, { isStopped, reason, changedBy: caller() })
    await print(sql, flags)
  })
}

/** Returns the user who runs the command, for the record. A container's user may have no name. */
function caller(): string {
  try {
    return `${userInfo().username}@${hostname()}`
  } catch {
    return hostname()
  }
}

async function withSales(act: (sql: Database) => Promise<void>): Promise<void> {
  const { withDatabase } = await import('./database/withDatabase.ts')
  await withDatabase('sales', act)
}

async function print(sql: Database, { json }: Flags): Promise<void> {
  const { listSalesChanges } = await import('@tollkeeper/ledger/registry/salesStop')
  const changes = await listSalesChanges(sql, mostShown)
  const stopped = changes[0]?.isStopped ?? false
  const answer = {
    stopped,
    reason: (stopped && changes[0]?.reason) || null,
    stoppedAt: stopped ? (changes[0]?.changedAt.toISOString() ?? null) : null,
    changes: changes.map(({ isStopped, reason, changedBy, changedAt }) => ({
      changedAt: changedAt.toISOString(),
      change: isStopped ? 'stop' : 'start',
      reason: reason || null,
      by: changedBy,
    })),
  }
  process.stdout.write(json ? `${JSON.stringify(answer)}\n` : describe(changes))
}

function describe(changes: readonly SalesChange[]): string {
  const [last] = changes
  const lines = changes.map(({ isStopped, reason, changedBy, changedAt }) =>
    `${changedAt.toISOString()}  ${isStopped ? 'stop ' : 'start'}  ${printable(changedBy)}  ${printable(reason)}`.trimEnd(),
  )
  const state = last?.isStopped
    ? 'Sales are stopped: no new payment is accepted. Accepted payments still settle.\nNext: tollkeeper sales start'
    : 'Payments are accepted.'
  return `${[state, ...(lines.length > 0 ? ['', ...lines] : [])].join('\n')}\n`
}
