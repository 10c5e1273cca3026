import {
  address,
  choice,
  databaseUrl,
  matching,
  networkName,
  networkNameList,
  type Parser,
  url,
} from '@tollkeeper/runtime/parsers'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'

/** A parser, and an example of a valid answer. */
export type Answer<T> = Parser<T> & { example: string }

export const nameAnswer: Answer<string> = {
  ...matching('a name of 1 to 200 printable characters', /^\P{C}{1,200}$/u),
  example: 'Weather',
}

export const registrationAnswer: Answer<'own' | 'open'> = { ...choice('own', 'open'), example: 'own' }

export const networksAnswer: Answer<NetworkName[]> = {
  parse: networkNameList.parse,
  get expected() {
    return networkNameList.expected
  },
  example: 'base,base-sepolia',
}

export const urlAnswer: Answer<string> = { ...url, example: 'https://mainnet.base.org' }

/** An entry `network=url`. */
export const rpcAnswer: Answer<[NetworkName, string]> = {
  expected: 'a network and an http(s) URL, like base=https://mainnet.base.org',
  parse(text) {
    const at = text.indexOf('=')
    const network = networkName.parse(text.slice(0, at))
    const node = url.parse(text.slice(at + 1))
    return network === undefined || node === undefined ? undefined : [network, node]
  },
  isSecret: true,
  example: 'base=https://mainnet.base.org',
}

export const walletAnswer: Answer<`0x${string}`> = {
  ...address,
  explain: explainAddress,
  example: '0x1000000000000000000000000000000000000001',
}

export const databaseUrlAnswer: Answer<string> = {
  ...databaseUrl,
  example: 'postgres://tollkeeper:password@127.0.0.1:5432/tollkeeper',
}

function explainAddress(text: string): string {
  if (!/^0x/.test(text)) return `${JSON.stringify(text)}, which doesn't begin with 0x`
  if (!/^0x[0-9a-fA-F]{40}$/.test(text)) return `${JSON.stringify(text)}, which isn't 0x and 40 hex digits`
  return `${JSON.stringify(text)}, whose checksum is wrong: a character may be mistyped. Copy it again from your wallet`
}
