import { createWalletClient, encodeDeployData, http, publicActions } from 'viem'
import { entryPoint08Abi, entryPoint08Address, toSmartAccount } from 'viem/account-abstraction'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import {
  create2Address,
  create2Data,
  create2Factory,
  create2GasLimit,
} from '../../apps/devstack/chain/create2.ts'
import { readFiatTokenArtifact } from '../../apps/devstack/chain/fiatTokenArtifact.ts'
import type { Stack } from '../../apps/devstack/stack/stack.ts'

/** Opens viem's smart account over Circle's own ERC-1271 wallet, which is not deployed yet. */
export async function openSmartAccount({ chain }: Stack) {
  const owner = privateKeyToAccount(generatePrivateKey())
  const { abi, bytecode } = readFiatTokenArtifact('test/MockERC1271Wallet')
  const creationCode = encodeDeployData({ abi, bytecode, args: [owner.address] })
  const client = createWalletClient({ account: devAccount(17), transport: http(chain.url) }).extend(
    publicActions,
  )
  let asked = 0
  const unused = () => Promise.reject(new Error('only typed data is signed'))
  const account = await toSmartAccount({
    client,
    entryPoint: { abi: entryPoint08Abi, address: entryPoint08Address, version: '0.8' },
    getAddress: async () => create2Address(creationCode),
    getFactoryArgs: async () => ({ factory: create2Factory, factoryData: create2Data(creationCode) }),
    signTypedData: (typedData) => {
      asked++
      return owner.signTypedData(typedData)
    },
    encodeCalls: unused,
    getStubSignature: unused,
    signMessage: unused,
    signUserOperation: unused,
  })
  return {
    account,
    /** Returns how many signatures the owner was asked for. */
    asked: () => asked,
    deploy: async () => {
      const call = { to: create2Factory, data: create2Data(creationCode), gas: create2GasLimit(creationCode) }
      const hash = await client.sendTransaction({ ...call, chain: null })
      await client.waitForTransactionReceipt({ hash })
    },
  }
}
