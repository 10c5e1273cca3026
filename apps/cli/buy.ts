import { access, open, rm, writeFile } from 'node:fs/promises'
import { readVariable, requireVariable } from '@tollkeeper/runtime/env'
import type { ClientOptions } from '@tollkeeper/sdk/client/createClient'
import type { Command } from 'commander'
import { CliError } from './terminal/cliError.ts'

/** `tollkeeper buy <url>`: pays for one request. */
export function addBuyCommand(program: Command): void {
  program
    .command('buy')
    .summary('pay for one request')
    .description(
      'Asks for a URL, pays if it costs something, and writes what came, byte for byte. What was paid goes to standard error. ' +
        'The wallet is WALLET_PRIVATE_KEY, on NETWORK (base-sepolia, which `tollkeeper start` plays), by GATEWAY_URL; on localhost USDC_ADDRESS ' +
        'names the token. ' +
        'With RECEIPT_FILE the receipt is kept, for `tollkeeper audit`.',
    )
    .argument('<url>')
    .option('--max <usdc>', 'pay no more than this', '0.10')
    .option('-o, --output <file>', 'write it to this file, instead of standard output')
    .addHelpText(
      'after',
      '\nExample:\n  $ WALLET_PRIVATE_KEY=0x… NETWORK=base GATEWAY_URL=https://gateway.example tollkeeper buy https://api.example/forecast',
    )
    .action((url: string, { max, output }: { max: string; output?: string }) => buy(url, max, output))
}

async function buy(url: string, maxPaymentUsdc: string, output: string | undefined): Promise<void> {
  if (!URL.canParse(url)) throw new CliError('invalid_url', `expected an http(s) URL, got ${url}`)
  const { href } = new URL(url)
  const { createClient } = await import('@tollkeeper/sdk/client/createClient')
  const { openReceiptFile } = await import('@tollkeeper/sdk/files/receiptFile')
  const { env } = process
  const path = readVariable(env, 'RECEIPT_FILE')
  const usdcAddress = readVariable(env, 'USDC_ADDRESS')
  const walletPrivateKey = requireVariable(env, 'WALLET_PRIVATE_KEY')
  const file = path === null ? null : await openReceiptFile(path)
  // Before anything is paid.
  if (output !== undefined) await requireWritable(output)
  let answer: Response | undefined
  const options: ClientOptions = {
    gatewayUrl: readVariable(env, 'GATEWAY_URL'),
    network: readVariable(env, 'NETWORK'),
    walletPrivateKey,
    ...(usdcAddress !== null && { usdcAddress }),
    maxPaymentUsdc,
    // The client reads JSON and text; the answer's bytes are kept beside it.
    fetch: async (input, init) => {
      const response = await fetch(input, init)
      if (String(input) === href) answer = response.clone()
      return response
    },
    onReceipt: (paid) => {
      process.stderr.write(`paid: payment ${paid.paymentId}\n`)
      return file?.keep(paid)
    },
  }
  try {
    await create(() => createClient(options)).request(href)
    const bytes = new Uint8Array((await answer?.arrayBuffer()) ?? new ArrayBuffer(0))
    if (output === undefined) await print(bytes)
    else await writeFile(output, bytes)
  } finally {
    await file?.close()
  }
}

/** Ends the line on a terminal, so that the next one starts at its left; a pipe gets just these bytes. */
async function print(bytes: Uint8Array): Promise<void> {
  const end = process.stdout.isTTY && bytes.at(-1) !== 10 ? '\n' : ''
  await new Promise<void>((resolve, reject) => {
    process.stdout.write(bytes, (error) => (error ? reject(error) : resolve()))
  })
  process.stdout.write(end)
}

/** Leaves an existing file as it is, and no file where there was none. */
async function requireWritable(path: string): Promise<void> {
  try {
    const isNew = await access(path).then(
      () => false,
      () => true,
    )
    await (await open(path, 'a')).close()
    if (isNew) await rm(path)
  } catch (error) {
    throw new CliError('unwritable_file', `--output: ${(error as Error).message}`, error)
  }
}

/** Tells the user what is wrong with the client's options. */
function create<Created>(build: () => Created): Created {
  try {
    return build()
  } catch (error) {
    throw new CliError('invalid_config', (error as Error).message, error)
  }
}
