import { hrefWith, type Route, type Search } from './routing.ts'

/** The result of a search: a link, or the id of a tab, for which the gateway must look up the payment. */
export type Found = { link: string } | { tabId: string } | undefined

const list: Route = ['payments']

/** Finds a payment's id, a tab's id, an address or a transaction hash in pasted text; undefined for anything else. */
export function findByText(text: string): Found {
  const term = text.trim()
  if (/^pay_[0-9a-f]{32}$/.test(term)) return { link: hrefWith([...list, term], {}) }
  if (/^tab_[0-9a-f]{32}$/.test(term)) return { tabId: term }
  if (/^0x[0-9a-fA-F]{40}$/.test(term)) return { link: hrefWith(list, { payer: term.toLowerCase() }) }
  if (/^0x[0-9a-fA-F]{64}$/.test(term)) return { link: hrefWith(list, { tx_hash: term.toLowerCase() }) }
  return undefined
}

/** Names of the payments page's filters in its link. Dates are days in the chosen zone. */
const filterNames = [
  'status',
  'endpointId',
  'network',
  'payer',
  'tx_hash',
  'from',
  'to',
  'min_usdc',
  'max_usdc',
  'testnet',
] as const

/** Returns the filters that a link sets. */
export function filtersOf(search: Search): Search {
  return Object.fromEntries(filterNames.flatMap((name) => (search[name] ? [[name, search[name]]] : [])))
}
