import { Option } from 'commander'
import type { PlayedNetwork } from '../local/stack/stack.ts'

/** Which network a local chain is. Not the stack's own list: `--help` would load all of it. */
export function playedNetworkOption(): Option {
  const names = ['base-sepolia', 'localhost'] satisfies PlayedNetwork[]
  return new Option('--network <name>', 'the network that the chain plays').choices(names).default(names[0])
}
