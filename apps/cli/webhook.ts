import type { Command } from 'commander'
import { withKey } from './provider/gateway.ts'
import type { WebhookTestFlags } from './webhook/sendTests.ts'

/** Adds `webhook test`, which tests whether the provider's URLs receive events. */
export function addWebhookCommand(program: Command): void {
  const webhook = program
    .command('webhook')
    .summary('test whether your webhooks receive events')
    .description(
      'Tests whether webhooks receive events. `provider webhook` registers, lists and removes them.',
    )
    .addHelpText('after', '\nExample:\n  $ tollkeeper webhook test')

  withKey(webhook.command('test'))
    .summary('send a signed test event and print the response')
    .description(
      'Sends a signed test event to each webhook, or to one, and prints the response. Exits with 1 if one of them did not return 2xx.',
    )
    .option('--webhook <id>', 'only this webhook, wh_…')
    .addHelpText('after', '\nExample:\n  $ tollkeeper webhook test --webhook wh_…')
    .action(async (flags: WebhookTestFlags) => {
      const { sendTests } = await import('./webhook/sendTests.ts')
      process.exitCode = await sendTests(flags)
    })
}
