import { type Command, Option } from 'commander'
import { formatTable, printable } from '../output.ts'
import { type GatewayFlags, ownPath, request, withKey } from './gateway.ts'

type Change = {
  changedAt: string
  by: string
  subject: string
  before: Record<string, unknown> | null
  after: Record<string, unknown>
}

/** `provider changes`: the registry's history. */
export function addChangesCommand(provider: Command): void {
  withKey(provider.command('changes'))
    .summary('who changed what, and when')
    .description('Shows what was changed of the provider, its wallets, endpoints and keys; the newest first.')
    .addOption(new Option('--limit <number>', 'how many').default('20'))
    .option('--cursor <cursor>', 'goes on where the page before ended')
    .addHelpText('after', '\nExample:\n  $ tollkeeper provider changes --provider prov_…')
    .action(async ({ limit, cursor, ...flags }: GatewayFlags & { limit: string; cursor?: string }) => {
      const query = { limit, ...(cursor !== undefined && { cursor }) }
      const answer = await request(flags, { method: 'GET', path: ownPath(flags, 'changes'), query })
      process.stdout.write(flags.json ? `${JSON.stringify(answer)}\n` : render(answer))
    })
}

function render(answer: Record<string, unknown>): string {
  const { changes, cursor } = answer as { changes: Change[]; cursor: string | null }
  const rows = changes.flatMap(({ changedAt, by, subject, before, after }) =>
    Object.entries(after).map(([field, value]) => [
      ...[changedAt, by, subject, field],
      before === null ? '(new)' : text(before[field]),
      text(value),
    ]),
  )
  const next = cursor === null ? '' : `More: --cursor ${printable(cursor)}\n`
  return `${formatTable(['when', 'who', 'what', 'field', 'before', 'after'], rows)}\n${next}`
}

function text(value: unknown): string {
  return printable(typeof value === 'string' ? value : JSON.stringify(value))
}
