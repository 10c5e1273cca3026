import {
  type ShownPurchase,
  writeBuyCommand as writeCommand,
  writeMcpConfig as writeConfig,
} from '@tollkeeper/sdk/middleware/howToBuy'
import { formatShortUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { DiscoveryResource } from '../gateway/answers.ts'
import { href } from './routing.ts'

/** A listing of the catalog, with the fields that the market shows. */
export type Offer = {
  resource: string
  /** The seller's wallet. Wallet and resource together identify a listing. */
  seller: string
  isTool: boolean
  /** URL of the tool's MCP server; undefined if the seller hasn't registered one, or if the listing isn't a tool. */
  serverUrl: string | undefined
  /** An HTTP method, or "tool". */
  method: string
  /** Names of networks, or the CAIP-2 name of a chain that this version doesn't know. */
  networks: string[]
  isTest: boolean
  /** Price in USDC base units. */
  price: bigint
  /** The token's address; it differs from the network's known USDC only on a local chain. */
  asset: string
  /** Whether the URL has a `:name` or `*` that a buyer replaces. */
  isPattern: boolean
}

/** Reads a listing. */
export function readOffer({ resource, type, serverUrl, accepts, extensions }: DiscoveryResource): Offer {
  const [first] = accepts
  const names = [...new Set(accepts.map(({ network }) => nameOfChain(network)))]
  const { info } = extensions.bazaar as { info?: { input?: { method?: string } } }
  const isTool = type === 'mcp'
  return {
    resource,
    seller: first?.extra.seller ?? first?.payTo ?? '',
    isTool,
    serverUrl,
    method: isTool ? 'tool' : (info?.input?.method ?? 'GET'),
    networks: names,
    isTest: names.every((name) => Object.values(networks).some((one) => one.name === name && one.testnet)),
    asset: first?.asset ?? '',
    price: BigInt(first?.amount ?? first?.maxAmountRequired ?? '0'),
    isPattern: /\/:\w|\*$/.test(resource.replace(/^\w+:\/\//, '')),
  }
}

/** Returns a network's name. x402 version 2 gives the network's CAIP-2 id, and version 1 gives the name itself. */
function nameOfChain(network: string): string {
  const chainId = Number(/^eip155:(\d+)$/.exec(network)?.[1])
  return Object.values(networks).find((one) => one.chainId === chainId)?.name ?? network
}

/** Returns the link to a listing's page. */
export function listingLink({ seller, resource }: Pick<Offer, 'seller' | 'resource'>): string {
  return href('market', seller, resource)
}

type BuyOptions = { gatewayUrl: string; offer: Offer }

/** Returns the payment limit in the shown command and code: twice the price. Above the limit, the command and the code don't pay. */
function mostFor(price: bigint): bigint {
  return price * 2n
}

function purchaseOf({ gatewayUrl, offer }: BuyOptions): ShownPurchase {
  return {
    gatewayUrl,
    network: offer.networks[0] ?? 'base',
    usdcAddress: isLocal(offer) ? offer.asset : undefined,
    maxAmount: mostFor(offer.price),
  }
}

function isLocal({ networks }: Offer): boolean {
  return networks[0] === 'localhost'
}

function limitOf(price: bigint): string {
  return formatShortUsdc(mostFor(price))
}

/** Returns the command that pays for one request; undefined for a tool, which the command line can't call. */
export function writeBuyCommand(options: BuyOptions): string | undefined {
  const { offer } = options
  if (offer.isTool || offer.method !== 'GET') return undefined
  return writeCommand(purchaseOf(options), offer.resource)
}

/** Returns a tool's name at its server. */
function toolOf({ resource }: Offer): string {
  return decodeURIComponent(resource.slice(resource.lastIndexOf('/') + 1))
}

/** Explains how an agent reaches a tool. */
export function writeToolHint(offer: Offer): string {
  const { serverUrl } = offer
  return serverUrl === undefined
    ? 'The seller hasn’t registered the URL of the MCP server that has this tool. Ask the seller for the URL. Your agent then calls the tool through the MCP server “tollkeeper”, which pays.'
    : `Your agent calls the tool at ${serverUrl} through call_mcp_tool, a tool of the MCP server “tollkeeper”, which pays. It can’t spend more than the limits below.`
}

/** Returns the TypeScript code that calls a tool and pays for it. */
function writeToolCode({ gatewayUrl, offer }: BuyOptions): string | undefined {
  if (offer.serverUrl === undefined) return undefined
  return `import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { payingMcpClient } from '@tollkeeper/sdk/mcp'

const serverUrl = ${JSON.stringify(offer.serverUrl)}
const client = payingMcpClient(new Client({ name: 'agent', version: '1.0.0' }), {
  gatewayUrl: ${JSON.stringify(gatewayUrl)},
  network: ${JSON.stringify(offer.networks[0] ?? 'base')},
  walletPrivateKey: process.env.WALLET_PRIVATE_KEY,
  limits: { perPayment: ${JSON.stringify(limitOf(offer.price))} },
  serverUrl,${isLocal(offer) ? `\n  usdcAddress: ${JSON.stringify(offer.asset)},` : ''}
})
await client.connect(new StreamableHTTPClientTransport(new URL(serverUrl)))
const { content } = await client.callTool({ name: ${JSON.stringify(toolOf(offer))}, arguments: {} })
console.log(content)
`
}

/** Returns the TypeScript code that pays for one request with the SDK; undefined for a tool whose server is unknown. */
export function writeBuyCode({ gatewayUrl, offer }: BuyOptions): string | undefined {
  if (offer.isTool) return writeToolCode({ gatewayUrl, offer })
  const body = ['POST', 'PUT', 'PATCH'].includes(offer.method)
  const request =
    offer.method === 'GET' ? '' : `, { method: '${offer.method}'${body ? ', body: JSON.stringify({})' : ''} }`
  return `import { createClient } from '@tollkeeper/sdk'

const client = createClient({
  gatewayUrl: ${JSON.stringify(gatewayUrl)},
  network: ${JSON.stringify(offer.networks[0] ?? 'base')},
  walletPrivateKey: process.env.WALLET_PRIVATE_KEY,
  limits: { perPayment: ${JSON.stringify(limitOf(offer.price))} },${isLocal(offer) ? `\n  usdcAddress: ${JSON.stringify(offer.asset)},` : ''}
})
const { data } = await client.request(${JSON.stringify(offer.resource)}${request})
console.log(data)
`
}

/** Returns the entry for an MCP host's configuration with which an agent buys within a budget. */
export function writeMcpConfig(options: BuyOptions): string {
  const { isTool, serverUrl, resource } = options.offer
  return writeConfig(purchaseOf(options), isTool ? serverUrl : resource)
}
