/**
 * The facts about an offer that a page shows. Texts come from third parties and are not escaped: escape each one before output.
 */
export type PageFacts = {
  /** Price in decimal USDC, including all fees. */
  price: string
  /** `price` in USDC base units. */
  amount: bigint
  /** The provider's name. Undefined if the gateway returns none. */
  seller: string | undefined
  /** The endpoint's description. May be empty. */
  description: string
  /** Media type of the response. May be empty. */
  mimeType: string
  method: string
  /** The requested URL that the buyer would pay for. */
  url: string
  host: string
  /** Name of the network on which the buyer pays. */
  network: string
  isTest: boolean
  /** Whether mock mode is on. */
  isMock: boolean
  /** Whether the endpoint accepts only tabs. */
  isOnTab: boolean
  /** The provider's own page that pays with a wallet. */
  payUrl: string | undefined
  /** The listing on the gateway's market. */
  listingUrl: string | undefined
  gatewayUrl: string
  /** The token's address on a development chain. Undefined if the token is the network's known USDC. */
  usdcAddress: string | undefined
}
