/**
 * Runs a third-party x402 buyer, unmodified, with the settings from its README: `node buyers.js <name> <url>…`. Prints the results as
 * one line of JSON for each URL.
 */
import axios from 'axios'
import { createWalletClient, http } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { baseSepolia } from 'viem/chains'

const { PRIVATE_KEY, RPC_URL } = process.env

// AgentKit reports each use to its maker, and crashes if it can't. Fake the report, so that nothing leaves this
// machine.
const { fetch: fetchAnywhere } = globalThis
globalThis.fetch = async (input, init) =>
  new URL(input.url ?? input).hostname === '127.0.0.1' ? fetchAnywhere(input, init) : new Response()

const account = privateKeyToAccount(PRIVATE_KEY)
const wallet = createWalletClient({ account, chain: baseSepolia, transport: http(RPC_URL) })

const buyers = {
  async '@x402/fetch'() {
    const { wrapFetchWithPayment } = await import('@x402/fetch')
    return byFetch(wrapFetchWithPayment(fetch, await standardClient()))
  },
  async '@x402/axios'() {
    const { wrapAxiosWithPayment, x402Client } = await import('@x402/axios')
    const { ExactEvmScheme } = await import('@x402/evm')
    return byAxios(
      wrapAxiosWithPayment(
        axios.create(),
        new x402Client().register('eip155:*', new ExactEvmScheme(account)),
      ),
    )
  },
  async 'x402-fetch'() {
    const { wrapFetchWithPayment } = await import('x402-fetch')
    return byFetch(wrapFetchWithPayment(fetch, wallet))
  },
  async 'x402-axios'() {
    const { withPaymentInterceptor } = await import('x402-axios')
    return byAxios(withPaymentInterceptor(axios.create(), wallet))
  },
  /** Coinbase's wrapper around the standard's client. Coinbase's own client keeps the wallets on Coinbase's servers, so it can't be used here. */
  async '@coinbase/cdp-sdk'() {
    const { applySpendControls } = await import('@coinbase/cdp-sdk/x402')
    const { wrapFetchWithPayment } = await import('@x402/fetch')
    const client = await standardClient()
    applySpendControls(client, {
      maxAmountPerPayment: { atomic: 100_000n },
      allowedNetworks: ['eip155:84532'],
    })
    return byFetch(wrapFetchWithPayment(fetch, client))
  },
  async '@coinbase/agentkit'() {
    // Imported by path, because the package's index loads every exchange that it supports, and these aren't installed.
    const dist = `${import.meta.dirname}/node_modules/@coinbase/agentkit/dist`
    const { x402ActionProvider } = await import(`${dist}/action-providers/x402/index.js`)
    const { ViemWalletProvider } = await import(`${dist}/wallet-providers/viemWalletProvider.js`)
    const provider = new ViemWalletProvider(wallet)
    return async (url) => {
      const answer = JSON.parse(
        await x402ActionProvider().makeHttpRequestWithX402(provider, { url, method: 'GET' }),
      )
      return { status: answer.status, body: answer.data, proof: answer.paymentProof, error: answer.details }
    }
  },
  async '@dexterai/x402'() {
    const { wrapFetch } = await import('@dexterai/x402/client')
    return byFetch(
      wrapFetch(fetch, {
        evmPrivateKey: PRIVATE_KEY,
        preferredNetwork: 'eip155:84532',
        rpcUrls: { 'eip155:84532': RPC_URL },
      }),
    )
  },
  async '@faremeter/fetch'() {
    const { wrap } = await import('@faremeter/fetch')
    const { createPaymentHandler } = await import('@faremeter/payment-evm/exact')
    const { createLocalWallet } = await import('@faremeter/wallet-evm')
    const local = await createLocalWallet({ id: 84532, name: 'Base Sepolia' }, PRIVATE_KEY)
    return byFetch(wrap(fetch, { handlers: [createPaymentHandler(local)] }))
  },
  async thirdweb() {
    const { createThirdwebClient, defineChain } = await import('thirdweb')
    const { createWalletAdapter, privateKeyToAccount: accountOf } = await import('thirdweb/wallets')
    const { wrapFetchWithPayment } = await import('thirdweb/x402')
    const client = createThirdwebClient({ clientId: 'none' })
    const chain = defineChain({ id: 84532, rpc: RPC_URL })
    const connected = createWalletAdapter({
      client,
      chain,
      adaptedAccount: accountOf({ client, privateKey: PRIVATE_KEY }),
      onDisconnect() {},
      switchChain() {},
    })
    return byFetch(wrapFetchWithPayment(fetch, client, connected))
  },
  async mppx() {
    const { evm, Mppx } = await import('mppx/client')
    const mppx = Mppx.create({ polyfill: false, methods: [evm.charge({ account })] })
    return byFetch(mppx.fetch)
  },
}

async function standardClient() {
  const { x402Client } = await import('@x402/fetch')
  const { ExactEvmScheme } = await import('@x402/evm/exact/client')
  return new x402Client().register('eip155:*', new ExactEvmScheme(account))
}

const byFetch = (paying) => async (url) => {
  const response = await paying(url)
  return { status: response.status, body: await response.json(), proof: proofIn(response.headers) }
}

const byAxios = (client) => async (url) => {
  const { status, data, headers } = await client.get(url)
  return { status, body: data, proof: proofIn(new Headers({ ...headers })) }
}

/** Returns what the seller's answer reports about the payment. */
function proofIn(headers) {
  const header = headers.get('payment-response') ?? headers.get('x-payment-response')
  return header === null ? undefined : JSON.parse(atob(header))
}

const [who, ...urls] = process.argv.slice(2)
const buy = await buyers[who]()
for (const url of urls) {
  const outcome = await buy(url).catch((error) => ({ error: String(error?.message ?? error) }))
  console.log(`OUTCOME ${JSON.stringify(outcome)}`)
}
// Open connections would keep the process running.
process.exit()
