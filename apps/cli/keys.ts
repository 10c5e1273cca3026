import { type Command, Option } from 'commander'
import { runProgram } from './runProgram.ts'
import { type JsonFlag, jsonOption } from './terminal/options.ts'

/** Adds `keys rotate receipt | macaroon | operator`. */
export function addKeysCommand(program: Command): void {
  const keys = program
    .command('keys')
    .summary("create and rotate the gateway's keys")
    .description("Creates and rotates the gateway's own keys.")
    .addHelpText('after', '\nExample:\n  $ tollkeeper keys rotate receipt')
  const rotate = keys
    .command('rotate')
    .summary('create a new key next to the old one')
    .description('Creates a new key. Everything that the old key signed stays valid.')
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper keys rotate receipt --file .tollkeeper/receipt-keys.json',
    )

  rotate
    .command('receipt')
    .summary('add a key that signs receipts')
    .description(
      `Adds a key to the receipt key file, or creates the file. The new key is published at once and signs some minutes later, without a
restart. Old keys stay published, so that the receipts they signed verify permanently.`,
    )
    .addOption(new Option('--file <path>', 'key file (RECEIPT_KEY_FILE)').env('RECEIPT_KEY_FILE'))
    .addOption(jsonOption())
    .addHelpText('after', '\nExample:\n  $ tollkeeper keys rotate receipt')
    .action(({ file, json }: JsonFlag & { file?: string }) => {
      if (file !== undefined) process.env.RECEIPT_KEY_FILE = file
      return runKeys('receipt', json)
    })

  rotate
    .command('macaroon')
    .summary('print a new secret that signs challenges')
    .description(
      `Prints the values of MACAROON_SECRETS that introduce a new secret step by step, so that no outstanding challenge becomes
invalid. Reads the current value from the environment and writes nothing.`,
    )
    .addOption(jsonOption())
    .addHelpText('after', '\nExample:\n  $ tollkeeper --env .env keys rotate macaroon')
    .action(({ json }: JsonFlag) => runKeys('macaroon', json))

  rotate
    .command('operator')
    .summary("print a new key for the operator's views")
    .description(
      `Prints a new key, shown only this once, and a value of OPERATOR_KEY_HASHES that accepts the new key as well as the current keys. The key
opens the dashboard's operator page. It can suspend providers and queue failed payments again. The command writes nothing.`,
    )
    .addOption(jsonOption())
    .addHelpText('after', '\nExample:\n  $ tollkeeper --env .env keys rotate operator')
    .action(({ json }: JsonFlag) => runKeys('operator', json))
}

function runKeys(kind: 'receipt' | 'macaroon' | 'operator', json = false): Promise<void> {
  return runProgram(() => import('@tollkeeper/api/keys'), json ? [kind, '--json'] : [kind])
}
