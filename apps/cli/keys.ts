import { type Command, Option } from 'commander'
import { runProgram } from './runProgram.ts'

/** `keys rotate receipt | macaroon | operator`. */
export function addKeysCommand(program: Command): void {
  const rotate = program
    .command('keys')
    .summary("the gateway's own keys")
    .description("The gateway's own keys.")
    .addHelpText('after', '\nExample:\n  $ tollkeeper keys rotate receipt')
    .command('rotate')
    .summary('a new key beside the old one')
    .description('Makes a new key. What the old one signed stays valid.')
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper keys rotate receipt --file .tollkeeper/receipt-keys.json',
    )

  rotate
    .command('receipt')
    .summary('the key that signs receipts')
    .description(
      `Adds a key to the receipt key file, or makes the file. The new key is published at once and signs some minutes
later, without a restart; old ones stay published, so that the receipts they signed verify for ever.`,
    )
    .addOption(new Option('--file <path>', 'the key file (RECEIPT_KEY_FILE)').env('RECEIPT_KEY_FILE'))
    .addHelpText('after', '\nExample:\n  $ tollkeeper keys rotate receipt')
    .action(({ file }: { file?: string }) => {
      if (file !== undefined) process.env.RECEIPT_KEY_FILE = file
      return runProgram(() => import('@tollkeeper/api/keys'), ['receipt'])
    })

  rotate
    .command('macaroon')
    .summary('the secret that mints challenges')
    .description(
      `Prints the values of MACAROON_SECRETS that bring a new secret in, step by step, so that no challenge under way
becomes invalid. Reads the present value from the environment; writes nothing.`,
    )
    .addHelpText('after', '\nExample:\n  $ tollkeeper --env .env keys rotate macaroon')
    .action(() => runProgram(() => import('@tollkeeper/api/keys'), ['macaroon']))

  rotate
    .command('operator')
    .summary("a key for the operator's views")
    .description(
      `Prints a new key, this once, and the value of OPERATOR_KEY_HASHES that lets it in beside those of the environment.
The key opens the dashboard's operator page. It can suspend providers and queue failed payments again. The command itself writes nothing.`,
    )
    .addHelpText('after', '\nExample:\n  $ tollkeeper --env .env keys rotate operator')
    .action(() => runProgram(() => import('@tollkeeper/api/keys'), ['operator']))
}
