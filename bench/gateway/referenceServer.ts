/** The x402 reference facilitator behind Hono; a third argument gives its wallet a nonce manager. */
import type { Server } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import { x402Facilitator } from '@x402/core/facilitator'
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types'
import { toFacilitatorEvmSigner } from '@x402/evm'
import { ExactEvmScheme } from '@x402/evm/exact/facilitator'
import { Hono } from 'hono'
import { createWalletClient, http, nonceManager, publicActions } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { hardhat } from 'viem/chains'
import { devPrivateKey } from '../../local/chain/accounts.ts'

const [port, rpcUrl = '', managesNonces] = process.argv.slice(2)
const facilitator = createReferenceFacilitator(rpcUrl, managesNonces !== undefined)

type Body = { paymentPayload: PaymentPayload; paymentRequirements: PaymentRequirements }

const app = new Hono()
for (const action of ['verify', 'settle'] as const)
  app.post(`/${action}`, async (c) => {
    const { paymentPayload, paymentRequirements } = await c.req.json<Body>()
    return c.json(await facilitator[action](paymentPayload, paymentRequirements))
  })
app.get('/healthz', (c) => c.text('ok'))

const server = createAdaptorServer({ fetch: app.fetch }) as Server
server.listen(Number(port), '127.0.0.1')

/**
 * The x402 reference facilitator, wired as in its repository's `examples/typescript/facilitator/basic`.
 *
 * @param managesNonces whether its wallet has viem's nonce manager, which it has not there: without one, settlements that begin at
 * once take the same nonce.
 */
function createReferenceFacilitator(rpcUrl: string, managesNonces: boolean): x402Facilitator {
  // Both may run on one chain: each has a wallet of its own.
  const account = managesNonces
    ? privateKeyToAccount(devPrivateKey(9), { nonceManager })
    : privateKeyToAccount(devPrivateKey(8))
  const client = createWalletClient({
    account,
    chain: hardhat,
    transport: http(rpcUrl),
    // viem's own for a chain whose block time it doesn't know is 4 s: two blocks.
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
  return new x402Facilitator().register('eip155:31337', new ExactEvmScheme(signer))
}
