import { x402Facilitator } from '@x402/core/facilitator'
import { toFacilitatorEvmSigner } from '@x402/evm'
import { ExactEvmScheme } from '@x402/evm/exact/facilitator'
import { createWalletClient, http, nonceManager, publicActions } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { hardhat } from 'viem/chains'
import { devPrivateKey } from '../../local/chain/accounts.ts'

/**
 * The x402 reference facilitator, wired as in its repository's `examples/typescript/facilitator/basic`.
 *
 * @param managesNonces whether its wallet has viem's nonce manager, which it has not there: without one, settlements that begin at
 * once take the same nonce.
 */
export function createReferenceFacilitator(rpcUrl: string, managesNonces: boolean): x402Facilitator {
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
