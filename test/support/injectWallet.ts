import type { Page } from 'playwright-core'
import { type Hex, numberToHex, type PrivateKeyAccount, type TypedDataDefinition } from 'viem'

export type InjectedWallet = {
  /** The methods that the page called. */
  asked: string[]
}

/**
 * Puts a wallet into the page, as an extension does (EIP-1193). Like MetaMask, it signs only for the selected chain, which is
 * Ethereum until the page selects another chain.
 *
 * @param declines number of signatures that the user declines first.
 */
export async function injectWallet(
  page: Page,
  account: PrivateKeyAccount,
  chainId: number,
  declines = 0,
): Promise<InjectedWallet> {
  const asked: string[] = []
  let chain = 1
  let declined = 0
  const fail = (code: number, message: string) => ({ error: { code, message } })
  await page.exposeFunction('askWallet', async (method: string, params: unknown[]) => {
    asked.push(method)
    switch (method) {
      case 'eth_requestAccounts':
        return { result: [account.address] }
      case 'eth_chainId':
        return { result: numberToHex(chain) }
      case 'wallet_switchEthereumChain': {
        const [{ chainId: asked }] = params as [{ chainId: Hex }]
        if (Number(asked) !== chainId) return fail(4902, 'Unrecognized chain ID.')
        chain = chainId
        return { result: null }
      }
      case 'eth_signTypedData_v4': {
        const [signer, json] = params as [Hex, string]
        const { EIP712Domain: _, ...types } = JSON.parse(json).types
        const typedData = { ...JSON.parse(json), types } as TypedDataDefinition
        if (signer.toLowerCase() !== account.address.toLowerCase()) return fail(4100, 'Unauthorized.')
        if (Number(typedData.domain?.chainId) !== chain) {
          return fail(-32603, `Provided chainId must match the active chainId "${chain}"`)
        }
        if (declined++ < declines) return fail(4001, 'User rejected the request.')
        return { result: await account.signTypedData(typedData) }
      }
      default:
        return fail(-32601, `${method} is not known`)
    }
  })
  await page.evaluate(() => {
    type Answer = { result?: unknown; error?: object }
    const { askWallet } = globalThis as unknown as {
      askWallet: (method: string, params?: unknown[]) => Promise<Answer>
    }
    const request = async ({ method, params }: { method: string; params?: unknown[] }) => {
      const { result, error } = await askWallet(method, params)
      if (error) throw error
      return result
    }
    Object.assign(globalThis, { ethereum: { request } })
  })
  return { asked }
}
