/** The x402 reference facilitator's `/verify`, as its own documentation puts it behind Hono. */
import type { Server } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import { x402Facilitator } from '@x402/core/facilitator'
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types'
import { toFacilitatorEvmSigner } from '@x402/evm'
import { ExactEvmScheme } from '@x402/evm/exact/facilitator'
import { Hono } from 'hono'
import { createWalletClient, http, publicActions } from 'viem'
import { hardhat } from 'viem/chains'
import { devAccount } from '../../scripts/chain/accounts.ts'

const [port, rpcUrl] = process.argv.slice(2)
const account = devAccount(9)
const client = createWalletClient({ account, chain: hardhat, transport: http(rpcUrl) }).extend(publicActions)
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

const app = new Hono()
app.post('/verify', async (c) => {
  const { paymentPayload, paymentRequirements } = await c.req.json<{
    paymentPayload: PaymentPayload
    paymentRequirements: PaymentRequirements
  }>()
  return c.json(await facilitator.verify(paymentPayload, paymentRequirements))
})
app.get('/healthz', (c) => c.text('ok'))

const server = createAdaptorServer({ fetch: app.fetch }) as Server
server.listen(Number(port), '127.0.0.1')
