import known from './generated/knownChains.json' with { type: 'json' }

const production = new Set(known.production)
const test = new Set(known.test)

/** Whether viem lists the chain as a production network, whose coins have real value. */
export function isProductionChain(chainId: number): boolean {
  return production.has(chainId)
}

/** Whether viem lists the chain as a test network. */
export function isTestChain(chainId: number): boolean {
  return test.has(chainId)
}
