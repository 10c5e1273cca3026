import type { Command } from 'commander'
import { ownPath, parsePrice, printAnswer, request, withKey } from './gateway.ts'
import type { RefundFlags } from './signRefund.ts'

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
    .option(
      '--number <number>',
      'which of its refunds: the same number again moves nothing twice (default: the next)',
    )
    .option('--key-file <file>', "the wallet's key, 0x and 64 hex digits")
    .option('--issuer <url>', "the gateway's public URL, where it isn't --gateway")
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper provider refund pay_… --provider prov_… --amount 0.02 --number 1',
    )
    .action(async (paymentId: string, flags: RefundFlags) => {
      const { requireNumber, signRefund } = await import('./signRefund.ts')
      requireNumber(flags)
      const path = ownPath(flags, 'payments', paymentId, 'refunds')
      const payload = await signRefund(paymentId, flags, await request(flags, { method: 'GET', path }))
      printAnswer(await request(flags, { path, body: { payload } }), flags)
    })
}
