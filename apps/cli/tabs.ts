import type { Command } from 'commander'
import type { TabsFlags } from './database/lostTabs.ts'

/** `tabs`: the tabs that were lost with the tab store. */
export function addTabsCommand(program: Command): void {
  program
    .command('tabs')
    .summary('tabs that were lost with the tab store')
    .description(
      `Lists the tabs to which the ledger has reserved credit, and which the tab store doesn't know because it was restored from an
earlier time, or not at all. api and keeper refuse to start then (tab_store_behind). First restore the schema tabs from the backup
that the schema tollkeeper came from. If there is none, what was bought on these tabs is lost to the providers, and the buyers keep
their money.`,
    )
    .option('--accept-loss', 'let api and keeper start without these tabs; they release the credit')
    .option('--json', 'print the tabs as JSON')
    .addHelpText('after', '\nExample:\n  $ tollkeeper --env .env tabs')
    .action(async (flags: TabsFlags) => {
      const { runTabs } = await import('./database/lostTabs.ts')
      process.stdout.write(await runTabs(flags))
    })
}
