import type { Command } from 'commander'
import { addBuying } from './buy/addBuying.ts'
import { addSelling } from './sell/addSelling.ts'

/** `tollkeeper mcp`, which is `tollkeeper mcp buy`, and `tollkeeper mcp sell`. */
export function addMcpCommand(program: Command): void {
  const mcp = program
    .command('mcp')
    .summary('buy for an agent, or sell tools, over MCP')
    .description("An MCP server that pays for an agent, and one that sells another server's tools.")
    .addHelpText(
      'after',
      '\nExample:\n  $ WALLET_PRIVATE_KEY=0x… NETWORK=base GATEWAY_URL=https://gateway.example tollkeeper mcp',
    )
  addBuying(mcp)
  addSelling(mcp)
}
