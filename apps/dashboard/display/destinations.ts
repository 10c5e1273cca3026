import { href } from './routing.ts'

/** Where a pasted text leads: to a page, or to something that the gateway looks up. */
export type Destination =
  | { kind: 'page'; title: string; link: string }
  | { kind: 'transaction'; title: string; hash: string }
  | { kind: 'tab'; title: string; tabId: string }

const idPages = new Map<string, readonly [title: string, ...route: string[]]>([
  ['pay', ['Payment', 'payments']],
  ['ep', ['Endpoint', 'endpoints']],
  ['wh', ['Webhook', 'developers', 'webhooks']],
])

/** Returns the destination of a pasted id, address, transaction hash or receipt; undefined if the text is none of these. */
export function readDestination(text: string): Destination | undefined {
  const pasted = text.trim()
  const [, prefix = ''] = /^([a-z]+)_[0-9a-f]{32}$/.exec(pasted) ?? []
  const [title, ...route] = idPages.get(prefix) ?? []
  if (title !== undefined) return { kind: 'page', title: `${title} ${pasted}`, link: href(...route, pasted) }
  if (prefix === 'tab') return { kind: 'tab', title: `Tab ${pasted}`, tabId: pasted }
  const hex = pasted.toLowerCase()
  if (/^0x[0-9a-f]{40}$/.test(hex)) return { kind: 'page', title: `Buyer ${hex}`, link: href('buyers', hex) }
  if (/^0x[0-9a-f]{64}$/.test(hex)) return { kind: 'transaction', title: `Transaction ${hex}`, hash: hex }
  if (/^eyJ[\w-]+\.[\w-]+\.[\w-]+$/.test(pasted)) {
    return { kind: 'page', title: 'Check this receipt', link: href('receipt', pasted) }
  }
  return undefined
}

/** Returns the pages whose title contains every word of a text. Titles that begin with the text come first. */
export function matchPages<Page extends { title: string }>(pages: readonly Page[], text: string): Page[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  const isMatch = ({ title }: Page) => words.every((word) => title.toLowerCase().includes(word))
  const begins = ({ title }: Page) => Number(title.toLowerCase().startsWith(words[0] ?? ''))
  return pages.filter(isMatch).sort((a, b) => begins(b) - begins(a))
}
