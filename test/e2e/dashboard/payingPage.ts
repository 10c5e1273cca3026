import { createClient, type NetworkName, wrapFetch } from '@tollkeeper/sdk'
import { type Address, createWalletClient, custom, type EIP1193Provider } from 'viem'

// The script of a page that sells nothing and pays others. The test injects the user's wallet into the page.

export type Terms = {
  gatewayUrl: string
  facilitatorUrl: string
  network: NetworkName
  chainId: number
  usdcAddress: Address
}

async function open({ chainId: _, ...terms }: Terms) {
  const { ethereum } = globalThis as unknown as { ethereum: EIP1193Provider }
  const transport = custom(ethereum)
  const [account] = await createWalletClient({ transport }).requestAddresses()
  if (!account) throw new Error('the wallet gave no account')
  const wallet = createWalletClient({ account, transport })
  return { wallet, options: { ...terms, account: wallet, limits: { perPayment: '0.05' }, tabs: false } }
}

const page = {
  /** Returns the client's rejection, then lets the wallet switch the chain, and returns the purchase. */
  async buy(url: string, terms: Terms) {
    const { wallet, options } = await open(terms)
    const client = createClient(options)
    const refused = await client.request(url).catch(({ code }: { code: string }) => code)
    await wallet.switchChain({ id: terms.chainId })
    const { data, paymentId, payment } = await client.request(url)
    return { refused, data, paymentId, signatures: payment?.payloads.length }
  },

  async settle(url: string, terms: Terms) {
    const client = createClient((await open(terms)).options)
    const { payment, paymentId } = await client.request(url)
    if (!payment) throw new Error('nothing was signed')
    return { paymentId, ...(await client.settleNow(payment)) }
  },

  /** Returns everything that a page may read of a response from the paying fetch. */
  async fetch(url: string, terms: Terms) {
    const response = await wrapFetch(fetch, (await open(terms)).options)(url)
    return { status: response.status, body: await response.json(), headers: [...response.headers.keys()] }
  },
}

export type PayingPage = typeof page

Object.assign(globalThis, { page })
