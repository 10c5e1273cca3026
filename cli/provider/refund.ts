import { readFile } from 'node:fs/promises'
import { type Command, InvalidArgumentError, Option } from 'commander'
import type { Address, Hex } from 'viem'
import { formatUsdc, parseUsdc } from '#protocol/amount'
import { maxTimeoutSeconds } from '#protocol/challenge'
import { eip712Domain, transferWithAuthorizationTypes } from '#protocol/eip3009'
import { networkByName } from '#protocol/networks'
import { encodePayload } from '#protocol/payload'
import { maxRefunds, refundNonce } from '#protocol/refund'
import { CliError } from '../cliError.ts'
import { type GatewayFlags, ownPath, parsePrice, printAnswer, request, withKey } from './gateway.ts'

type RefundFlags = GatewayFlags & { amount?: string; number?: number; keyFile?: string; issuer?: string }

/** `provider refund`: signs a refund here, and gives it to the gateway. */
export function addRefundCommand(provider: Command): void {
  withKey(provider.command('refund'))
    .summary('give a settled payment back')
    .description(
      `Refunds a settled payment, whole or in part, from one of the provider's wallets. The refund is signed here; it
settles with the next batch, and the platform pays the gas. The key of the wallet is read from WALLET_PRIVATE_KEY or a file, and never sent.`,
    )
    .argument('<payment>', 'its id, pay_…')
    .option('--amount <usdc>', 'decimal USDC (default: all that can still be refunded)', parsePrice)
    .addOption(
      new Option(
        '--number <number>',
        'which of its refunds: the same number again moves nothing twice (default: the next)',
      ).argParser(parseNumber),
    )
    .option('--key-file <file>', "the wallet's key, 0x and 64 hex digits")
    .option('--issuer <url>', "the gateway's public URL, where it isn't --gateway")
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper provider refund pay_… --provider prov_… --amount 0.02 --number 1',
    )
    .action(async (paymentId: string, flags: RefundFlags) => {
      const path = ownPath(flags, 'payments', paymentId, 'refunds')
      const payload = await sign(paymentId, flags, await request(flags, { method: 'GET', path }))
      printAnswer(await request(flags, { path, body: { payload } }), flags)
    })
}

async function sign(
  paymentId: string,
  { amount, number, keyFile, issuer, gateway }: RefundFlags,
  open: Record<string, unknown>,
): Promise<string> {
  const { network, asset, payer, refundableUsdc, next } = open as {
    network: string
    asset: Address
    payer: Address
    refundableUsdc: string
    next: { number: number; nonce: Hex } | null
  }
  const chosen = number ?? next?.number
  if (chosen === undefined) throw new CliError('refund_refused', 'It has had as many refunds as it may')
  const value = amount === undefined ? BigInt(refundableUsdc) : parseUsdc(amount)
  if (value === 0n) throw new CliError('refund_exceeds_payment', 'Nothing of it is left to refund')
  // The nonce decides of which payment it is a refund: nobody else's word is taken for it.
  const nonce = refundNonce((issuer ?? gateway).replace(/\/+$/, ''), paymentId, chosen)
  if (next?.number === chosen && next.nonce !== nonce)
    throw new CliError(
      'refund_nonce_mismatch',
      `The gateway has another public URL than ${issuer ?? gateway}: give it as --issuer`,
    )
  const { privateKeyToAccount } = await import('viem/accounts')
  const account = privateKeyToAccount(await readKey(keyFile))
  const authorization = {
    from: account.address.toLowerCase() as Address,
    to: payer,
    value,
    validAfter: 0n,
    validBefore: BigInt(Math.floor(Date.now() / 1000) + maxTimeoutSeconds),
    nonce,
  }
  process.stderr.write(`Refund ${chosen} of ${formatUsdc(value)} USDC to ${payer} on ${network}\n`)
  const signature = await account.signTypedData({
    domain: eip712Domain(networkByName(network), asset),
    types: transferWithAuthorizationTypes,
    primaryType: 'TransferWithAuthorization',
    message: authorization,
  })
  return encodePayload({ ...authorization, signature })
}

/** The key is in no message, whatever is wrong with it. */
async function readKey(file: string | undefined): Promise<Hex> {
  const text =
    file === undefined
      ? process.env.WALLET_PRIVATE_KEY
      : await readFile(file, 'utf8').catch((error: Error) => {
          throw new CliError('unreadable_file', `--key-file: ${error.message}`, error)
        })
  const key = text?.trim() ?? ''
  if (!/^0x[0-9a-fA-F]{64}$/.test(key))
    throw new CliError(
      'invalid_flags',
      "Give the wallet's key as WALLET_PRIVATE_KEY or --key-file: 0x and 64 hex digits",
    )
  return key as Hex
}

function parseNumber(value: string): number {
  const number = /^\d$/.test(value) ? Number(value) : 0
  if (number < 1 || number > maxRefunds) throw new InvalidArgumentError(`Expected 1 to ${maxRefunds}.`)
  return number
}
