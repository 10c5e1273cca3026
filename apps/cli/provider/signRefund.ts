import { readFile } from 'node:fs/promises'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { maxTimeoutSeconds } from '@tollkeeper/sdk/protocol/challenge'
import { eip712Domain, transferWithAuthorizationTypes } from '@tollkeeper/sdk/protocol/eip3009'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { maxRefunds, refundNonce } from '@tollkeeper/sdk/protocol/refund'
import type { Address, Hex } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { CliError } from '../terminal/cliError.ts'
import type { GatewayFlags } from './gateway.ts'

export type RefundFlags = GatewayFlags & {
  amount?: string
  number?: string
  keyFile?: string
  issuer?: string
}

/** @throws {CliError} `invalid_flags` */
export function requireNumber({ number }: RefundFlags): void {
  const isOne = number === undefined || (/^[1-9]$/.test(number) && Number(number) <= maxRefunds)
  if (!isOne)
    throw new CliError(
      'invalid_flags',
      `--number: expected a number from 1 to ${maxRefunds}, got ${JSON.stringify(number)}`,
    )
}

/** Signs a refund of a payment. @param open what the gateway reports about the payment's refunds. @returns the payload for the gateway. */
export async function signRefund(
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
  const chosen = number === undefined ? next?.number : Number(number)
  if (chosen === undefined)
    throw new CliError('refund_refused', 'The payment has the maximum number of refunds already')
  const value = amount === undefined ? BigInt(refundableUsdc) : parseUsdc(amount)
  if (value === 0n) throw new CliError('refund_exceeds_payment', 'The payment is refunded completely already')
  // Compute the nonce here instead of taking it from the gateway, because the nonce determines which payment is refunded.
  const nonce = refundNonce((issuer ?? gateway).replace(/\/+$/, ''), paymentId, chosen)
  if (next?.number === chosen && next.nonce !== nonce)
    throw new CliError(
      'refund_nonce_mismatch',
      `The gateway's public URL is not ${issuer ?? gateway}: pass its public URL with --issuer`,
    )
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

/** Reads the wallet's key. No error message contains it. */
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
