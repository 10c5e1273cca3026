import { integer } from '@tollkeeper/runtime/parsers'
import { type Command, Option } from 'commander'
import type { LostTabsFlags } from './database/lostTabs.ts'
import type { TabsFlags } from './payments/tabs.ts'
import { withKey } from './provider/gateway.ts'
import { jsonOption, parsedOption } from './terminal/options.ts'

/** Adds `tabs list | lost`: a provider's tabs, and for the operator the tabs that were lost with the tab store. */
export function addTabsCommand(program: Command): void {
  const tabs = program
    .command('tabs')
    .summary('list your open and closed tabs; for operators: tabs lost with the tab store')
    .description(
      'Lists the tabs on which a provider sells, or for the operator the tabs that were lost with the tab store.',
    )
    .addHelpText('after', '\nExample:\n  $ tollkeeper tabs list --open')

  withKey(tabs.command('list'))
    .summary('list tabs and when they close')
    .description(
      'Lists the tabs on which the provider sold something: what was bought, by whom, what is signed, and when they close.',
    )
    .addOption(
      new Option('--open', 'only tabs that are still open; the same as --state open').conflicts('state'),
    )
    .addOption(
      new Option('--state <state>', 'only tabs in this state')
        .choices(['open', 'closed', 'all'])
        .default('all'),
    )
    .addOption(parsedOption('--limit <number>', 'tabs per page, 1 to 100', integer(1, 100)).default(20))
    .option('--cursor <cursor>', 'continue where the previous page ended')
    .addHelpText('after', '\nExample:\n  $ tollkeeper tabs list --open')
    .action(async (flags: TabsFlags) => (await import('./payments/tabs.ts')).listTabs(flags))

  tabs
    .command('lost', { isDefault: true })
    .summary('list tabs lost with the tab store, as the operator')
    .description(
      `Lists the tabs for which the ledger has reserved credit but which the tab store doesn't know, because the store was restored from an
earlier backup or is empty; \`lost\` may be omitted. If there are such tabs, api and keeper refuse to start (tab_store_behind). First restore the
schema \`tabs\` from the backup that the schema \`tollkeeper\` came from. Without such a backup, providers lose what was bought on these
tabs, and buyers keep their money. Reads DATABASE_URL.`,
    )
    .option(
      '--accept-loss',
      'let api and keeper start without these tabs; after that, they release the reserved credit',
    )
    .addOption(jsonOption())
    .addHelpText('after', '\nExample:\n  $ tollkeeper --env .env tabs lost')
    .action(async (flags: LostTabsFlags) => {
      const { runLostTabs } = await import('./database/lostTabs.ts')
      process.stdout.write(await runLostTabs(flags))
    })
}
