/**
 * Runs the x402 reference facilitator behind Hono, as in its repository's `examples/typescript/facilitator/basic`. A second argument gives
 * its wallet viem's nonce manager, which that example lacks. Without the nonce manager, settlements that start at the same time use the same nonce.
 */
import { serve } from '@hono/node-server'
import { x402Facilitator } from '@x402/core/facilitator'
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types'
import { toFacilitatorEvmSigner } from '@x402/evm'
import { ExactEvmScheme } from '@x402/evm/exact/facilitator'
import { Hono } from 'hono'
import { createWalletClient, http, nonceManager, publicActions } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { hardhat } from 'viem/chains'
import { devPrivateKey } from '../../apps/devstack/chain/accounts.ts'

const [rpcUrl = '', managesNonces] = process.argv.slice(2)
// The variants with and without the nonce manager may run on one chain, so each has a separate wallet.
const account = managesNonces
  ? privateKeyToAccount(devPrivateKey(9), { nonceManager })
  : privateKeyToAccount(devPrivateKey(8))
const client = createWalletClient({
  account,
  chain: hardhat,
  transport: http(rpcUrl),
  // Without this, viem would poll only every 4 s, which is two blocks of the bench's chain, because viem doesn't know this chain's block time.
  pollingInterval: 100,
}).extend(publicActions)
const signer = toFacilitatorEvmSigner({
  address: account.address,
  getCode: (args) => client.getCode(args),
  readContract: (args) => client.readContract({ ...args, args: args.args ?? [] }),
  verifyTypedData: (args) => client.verifyTypedData(args as Parameters<typeof client.verifyTypedData>[0]),
  writeContract: (args) => client.writeContract({ ...args, args: args.args ?? [] }),
  sendTransaction: (args) => client.sendTransaction(args),
  waitForTransactionReceipt: (args) => client.waitForTransactionReceipt(args),
})
const facilitator = new x402Facilitator().register('eip155:31337', new ExactEvmScheme(signer))

type Body = { paymentPayload: PaymentPayload; paymentRequirements: PaymentRequirements }

const app = new Hono()
for (const action of ['verify', 'settle'] as const)
  app.post(`/${action}`, async (c) => {
    const { paymentPayload, paymentRequirements } = await c.req.json<Body>()
    return c.json(await facilitator[action](paymentPayload, paymentRequirements))
  })
app.get('/supported', (c) => c.json(facilitator.getSupported()))
app.get('/healthz', (c) => c.text('ok'))
serve({ fetch: app.fetch, port: Number(process.env.PORT), hostname: '127.0.0.1' })
