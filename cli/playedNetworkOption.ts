import { Option } from 'commander'
import type { PlayedNetwork } from '../local/stack/stack.ts'

/** The network that a local chain plays. The stack has the same list, but `--help` would load all of the stack. */
export function playedNetworkOption(): Option {
  const names = ['base-sepolia', 'localhost'] satisfies PlayedNetwork[]
  return new Option('--network <name>', 'the network that the chain plays').choices(names).default(names[0])
}
