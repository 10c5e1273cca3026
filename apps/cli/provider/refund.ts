import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Command } from 'commander'
import { printable } from '../terminal/output.ts'
import { ownPath, parsePrice, printDone, request, withKey } from './gateway.ts'
import type { RefundFlags } from './signRefund.ts'

/** Adds `provider refund`, which signs a refund on this machine and sends it to the gateway. */
export function addRefundCommand(provider: Command): void {
  withKey(provider.command('refund'))
    .summary('refund a settled payment, whole or in part')
    .description(
      `Refunds a settled payment, whole or in part, from one of the provider's wallets. The command signs the refund on this machine. It
settles with the next batch, and the platform pays the gas. The wallet's key is read from WALLET_PRIVATE_KEY or a file, and never sent.`,
    )
    .argument('<payment>', 'payment id, pay_…')
    .option('--amount <usdc>', 'decimal USDC (default: everything that can still be refunded)', parsePrice)
    .option(
      '--number <number>',
      'number of the refund, 1 to 3. Repeating a number never pays twice (default: the next)',
    )
    .option(
      '--key-file <file>',
      "file with the wallet's private key: 0x and 64 hex digits (default: WALLET_PRIVATE_KEY)",
    )
    .option('--issuer <url>', "the gateway's public URL, if it differs from --gateway")
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper provider refund pay_… --provider prov_… --amount 0.02 --number 1',
    )
    .action(async (paymentId: string, flags: RefundFlags) => {
      const { requireNumber, signRefund } = await import('./signRefund.ts')
      requireNumber(flags)
      const path = ownPath(flags, 'payments', paymentId, 'refunds')
      const payload = await signRefund(paymentId, flags, await request(flags, { method: 'GET', path }))
      const answer = await request(flags, { path, body: { payload } })
      const { number, valueUsdc } = answer as { number: number; valueUsdc: string }
      printDone(
        answer,
        flags,
        `Accepted refund ${number} of ${printable(paymentId)}: ${formatUsdc(BigInt(valueUsdc))} USDC, which settles with the next batch. ` +
          `Next: \`tollkeeper payments show ${printable(paymentId)}\``,
      )
    })
}
