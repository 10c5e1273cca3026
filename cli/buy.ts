import type { Command } from 'commander'
import { readVariable, requireVariable } from '#process/env'
import type { ClientOptions } from '#sdk/client/createClient'
import { CliError } from './cliError.ts'

/** `tollkeeper buy <url>`: one request, paid for. */
export function addBuyCommand(program: Command): void {
  program
    .command('buy')
    .summary('pay for one request')
    .description(
      'Asks for a URL, pays if it costs something, and prints what came. What was paid goes to standard error. ' +
        'The wallet is WALLET_PRIVATE_KEY, on NETWORK, by GATEWAY_URL; on a local chain USDC_ADDRESS names the token. ' +
        'With RECEIPT_FILE the receipt is kept, for `tollkeeper audit`.',
    )
    .argument('<url>')
    .option('--max <usdc>', 'pay no more than this', '0.10')
    .addHelpText(
      'after',
      '\nExample:\n  $ WALLET_PRIVATE_KEY=0x… NETWORK=base GATEWAY_URL=https://gateway.example tollkeeper buy https://api.example/forecast',
    )
    .action((url: string, { max }: { max: string }) => buy(url, max))
}

async function buy(url: string, maxPaymentUsdc: string): Promise<void> {
  const { createClient } = await import('#sdk/client/createClient')
  const { openReceiptFile } = await import('#sdk/files/receiptFile')
  const path = readVariable(process.env, 'RECEIPT_FILE')
  const usdcAddress = readVariable(process.env, 'USDC_ADDRESS')
  const file = path === null ? null : await openReceiptFile(path)
  const options: ClientOptions = {
    gatewayUrl: readVariable(process.env, 'GATEWAY_URL'),
    network: readVariable(process.env, 'NETWORK'),
    walletPrivateKey: requireVariable(process.env, 'WALLET_PRIVATE_KEY'),
    ...(usdcAddress !== null && { usdcAddress }),
    maxPaymentUsdc,
    onReceipt: (paid) => {
      process.stderr.write(`paid: payment ${paid.paymentId}\n`)
      return file?.keep(paid)
    },
  }
  try {
    const { data } = await create(() => createClient(options)).request(url)
    process.stdout.write(`${typeof data === 'string' ? data : JSON.stringify(data)}\n`)
  } finally {
    await file?.close()
  }
}

/** What the client finds wrong with its options is for the user to correct. */
function create<Created>(build: () => Created): Created {
  try {
    return build()
  } catch (error) {
    throw new CliError('invalid_config', (error as Error).message, error)
  }
}
