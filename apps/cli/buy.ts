import { access, open, rm, writeFile } from 'node:fs/promises'
import { readVariable, requireVariable } from '@tollkeeper/runtime/env'
import type { ClientOptions, PaidResponse } from '@tollkeeper/sdk/client/createClient'
import type { SellerReport } from '@tollkeeper/sdk/client/signedPayment'
import { decodePass } from '@tollkeeper/sdk/protocol/pass'
import { isoSeconds } from '@tollkeeper/sdk/protocol/time'
import type { Command } from 'commander'
import { CliError } from './terminal/cliError.ts'
import { httpUrl, type JsonFlag, jsonOption, parseValue } from './terminal/options.ts'
import { printable, printJson, printNote } from './terminal/output.ts'

type BuyFlags = JsonFlag & { max: string; output?: string; stateFolder?: string }

/** Adds `tollkeeper buy <url>`, which pays for one request. */
export function addBuyCommand(program: Command): void {
  program
    .command('buy')
    .summary('pay for one request')
    .description(
      'Requests a URL, pays if it has a price, and writes the response byte for byte. Notes on the payment go to standard error. ' +
        'The wallet of WALLET_PRIVATE_KEY pays on NETWORK (default: base-sepolia, which `tollkeeper start` simulates) through GATEWAY_URL; on ' +
        'localhost, USDC_ADDRESS names the token. Other x402 sellers are paid as well; --max also limits their prices. ' +
        'With RECEIPT_FILE, the receipt is kept for `tollkeeper audit`. With --state-folder, a purchased pass is used again ' +
        'until it expires or has no requests left, and a request whose response was lost is repeated with the same payment.',
    )
    .argument('<url>', 'URL to request', (text: string) => parseValue(text, httpUrl))
    .option('--max <usdc>', 'maximum price in decimal USDC', '0.10')
    .option('-o, --output <file>', 'write the response to this file instead of standard output')
    .option(
      '--state-folder <folder>',
      'folder for passes, and for payments whose response was lost (STATE_FOLDER)',
    )
    .addOption(jsonOption())
    .addHelpText(
      'after',
      '\nExample:\n  $ WALLET_PRIVATE_KEY=0x… NETWORK=base GATEWAY_URL=https://gateway.example tollkeeper buy https://api.example/forecast',
    )
    .action(buy)
}

/** A pass that this request bought or used. */
type UsedPass = {
  /** The payment that bought the pass. */
  paymentId: string
  expiresAt: string
  /** Number of requests left; null: unlimited. */
  left: number | null
  /** Whether this request bought the pass. */
  isBought: boolean
}

/** The last response to the request, and the pass that was sent with it. */
type Exchange = { answer: Response; presented: string | null }

async function buy(
  url: string,
  { max: perPayment, output, stateFolder, json = false }: BuyFlags,
): Promise<void> {
  const { href } = new URL(url)
  const { createClient } = await import('@tollkeeper/sdk/client/createClient')
  const { createFileStores } = await import('@tollkeeper/sdk/files/fileStores')
  const { openReceiptFile } = await import('@tollkeeper/sdk/files/receiptFile')
  const { env } = process
  const path = readVariable(env, 'RECEIPT_FILE')
  const folder = stateFolder ?? readVariable(env, 'STATE_FOLDER')
  const usdcAddress = readVariable(env, 'USDC_ADDRESS')
  const walletPrivateKey = requireVariable(env, 'WALLET_PRIVATE_KEY')
  const file = path === null ? null : await openReceiptFile(path)
  const stores = folder === null ? null : await createFileStores(folder)
  // Check the output file before anything is paid.
  if (output !== undefined) await requireWritable(output)
  let exchange: Exchange | undefined
  const asked = new Set([href])
  const options: ClientOptions = {
    gatewayUrl: readVariable(env, 'GATEWAY_URL'),
    network: readVariable(env, 'NETWORK'),
    walletPrivateKey,
    ...(usdcAddress !== null && { usdcAddress }),
    limits: { perPayment },
    otherSellers: true,
    ...(stores && { stores }),
    // Keeps the response's bytes, because the client itself reads only JSON and text.
    fetch: async (input, init) => {
      const response = await fetch(input, init)
      const from = String(input)
      if (!asked.has(from)) return response
      const location = response.headers.get('location')
      if (location !== null && URL.canParse(location, from)) asked.add(new URL(location, from).href)
      exchange = {
        answer: response.clone(),
        presented: new Headers(init?.headers).get('service-pass'),
      }
      return response
    },
    onReceipt: (paid) => {
      printNote(`paid: payment ${paid.paymentId}`)
      return file?.keep(paid)
    },
  }
  try {
    const paid = await create(() => createClient(options)).request(href)
    const { sellerReport } = paid
    if (sellerReport !== undefined) printNote(`paid: ${describeReport(sellerReport)}`)
    const pass = exchange && readPass(exchange)
    if (pass) printNote(`pass: ${describePass(pass, stores !== null)}`)
    const bytes = new Uint8Array((await exchange?.answer.arrayBuffer()) ?? new ArrayBuffer(0))
    if (output !== undefined) await writeFile(output, bytes)
    if (json) printJson(describeAnswer(href, paid, { pass, output, bytes }))
    else if (output === undefined) await print(bytes)
  } finally {
    await stores?.close()
    await file?.close()
  }
}

/** Returns the object that `--json` prints. */
function describeAnswer(
  url: string,
  { status, paymentId, receipt, sellerReport, data }: PaidResponse,
  { pass, output, bytes }: { pass: UsedPass | undefined; output: string | undefined; bytes: Uint8Array },
): object {
  const isBinary = data instanceof Uint8Array
  return {
    url,
    status,
    paymentId: paymentId ?? null,
    receipt: receipt ?? null,
    sellerReport: sellerReport ?? null,
    pass: pass ?? null,
    ...(output !== undefined
      ? { output }
      : isBinary
        ? { dataBase64: Buffer.from(bytes).toString('base64') }
        : { data }),
  }
}

/** Returns the pass that the request bought, or else the pass with which it was served. */
function readPass({ answer: { headers }, presented }: Exchange): UsedPass | undefined {
  const bought = decodePass(headers.get('service-pass') ?? '')
  const [jws = ''] = presented?.split(';') ?? []
  const pass = bought ?? decodePass(jws)
  if (!pass) return undefined
  const { jti: paymentId, exp, requests } = pass
  const left = headers.get('service-pass-left') ?? ''
  // The request that buys a pass is also the first request of the pass.
  const atPurchase = bought && requests !== undefined ? requests - 1 : null
  return {
    paymentId,
    expiresAt: isoSeconds(exp),
    left: /^\d{1,9}$/.test(left) ? Number(left) : atPurchase,
    isBought: bought !== undefined,
  }
}

function describePass({ expiresAt, left, isBought }: UsedPass, isKept: boolean): string {
  const requests = left === null ? '' : `, ${left} ${left === 1 ? 'request' : 'requests'} left`
  const advice = isBought && !isKept ? '. To use it again, buy with --state-folder' : ''
  return `${isBought ? 'bought' : 'used'}, valid until ${expiresAt}${requests}${advice}`
}

/** Describes the report of a seller who doesn't use Tollkeeper. Unlike a receipt, the report proves nothing. */
function describeReport({ success, transaction, reason }: SellerReport): string {
  const state =
    success === false
      ? `the seller reports a failure${reason ? ` (${printable(reason)})` : ''}`
      : 'to an x402 seller'
  return transaction === undefined ? state : `${state}, transaction ${transaction}`
}

/** On a terminal, ends the line, so that the prompt starts at the left. A pipe gets exactly the response's bytes. */
async function print(bytes: Uint8Array): Promise<void> {
  const end = process.stdout.isTTY && bytes.at(-1) !== 10 ? '\n' : ''
  await new Promise<void>((resolve, reject) => {
    process.stdout.write(bytes, (error) => (error ? reject(error) : resolve()))
  })
  process.stdout.write(end)
}

/** Checks that a file can be written, without changing an existing file or creating one. */
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

/** Runs a function that creates something, and reports invalid client options as a usage error. */
function create<Created>(build: () => Created): Created {
  try {
    return build()
  } catch (error) {
    throw new CliError('invalid_config', (error as Error).message, error)
  }
}
